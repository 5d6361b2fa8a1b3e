"""Products of queries and keys that depend on the tokens between them: in blocks as for all pairs."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lengthwise import attend, encodings
from lengthwise.attention import Mask, TokenInfo, plan, statistics
from lengthwise.attention.backends import reference
from lengthwise.config import ConfigError
from lengthwise.encodings.documents import cumulative_sum
from lengthwise.forms import AttentionModifiers, DecayProduct, HouseholderProduct
from lengthwise.span import Span

D, HEADS = 6, 4
# Keys, queries, the window, and the number of documents, whose tokens take turns. A block has 64 keys.
CALLS = [
    (150, 150, None, 1),
    (150, 17, None, 1),
    (131, 131, 50, 1),
    (140, 140, None, 3),
    (140, 60, 90, 2),
    (65, 1, None, 2),
]


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def householder(*shape: int) -> tuple[Any, list[Tensor]]:
    w, beta = torch.nn.functional.normalize(numbers(1, *shape, D), dim=-1), 2 * torch.sigmoid(2 * numbers(2, *shape))
    return HouseholderProduct, [w, beta]


def decay(strength: float) -> Any:
    def tensors(batch: int, heads: int, keys: int) -> tuple[Any, list[Tensor]]:
        log_f = -strength * numbers(3, batch, heads * D, keys).abs()

        def form(log_f: Tensor, documents: Tensor | None) -> DecayProduct:
            return DecayProduct(cumulative_sum(log_f, documents).unflatten(1, (heads, D)).mT, documents)

        return form, [log_f]

    return tensors


def output_and_gradients(backend: str, make: Any, call: tuple[int, int, int | None, int]) -> list[Tensor]:
    keys, queries, window, count = call
    documents = None if count == 1 else numbers(4, 2, keys).mul(9).long() % count
    form, tensors = make(2, HEADS, keys)
    inputs = [numbers(5, 2, HEADS, queries, D), numbers(6, 2, 2, keys, D), numbers(7, 2, 2, keys, D), *tensors]
    leaves = [x.clone().requires_grad_() for x in inputs]
    modifiers = AttentionModifiers(product=form(*leaves[3:], documents))
    span, mask = Span.of(keys, queries), Mask(queries, keys, documents=documents, window=window)
    out = plan(modifiers, span, mask, inputs[0], backend=backend)(*leaves[:3])
    return [out, *torch.autograd.grad((out * numbers(8, *out.shape)).sum(), leaves)]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", [householder, decay(0.01), decay(1000.0)], ids=["householder", "weak", "strong"])
def test_blocks_agree_with_all_pairs(make: Any, call: tuple[int, int, int | None, int]) -> None:
    for actual, expected in zip(*(output_and_gradients(b, make, call) for b in ("blocked", "reference")), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", ["reference", "blocked"])
@pytest.mark.parametrize(
    "product",
    [HouseholderProduct(numbers(1, 1, 1, 70, D), torch.zeros(1, 1, 70)), DecayProduct(torch.full((1, 1, 70, D), -3.0))],
)
def test_a_product_that_changes_nothing_is_the_plain_one(product: Any, backend: str) -> None:
    """beta = 0, or a running sum that never changes; both forms are shared by all heads."""
    q, k, v = numbers(5, 3, 2, HEADS, 70, D)
    changed = plan(AttentionModifiers(product=product), Span.of(70), Mask(70, 70), q, backend=backend)(q, k, v)
    torch.testing.assert_close(changed, attend(q, k, v, backend="reference"), rtol=0, atol=1e-14)


def test_reflections_keep_lengths() -> None:
    """beta = 2 and |w| = 1: the products with all unit vectors as keys are the reflected query."""
    (w, beta), q = householder(1, 1, 9)[1], numbers(5, 1, 1, 9, D)
    key = torch.zeros(9, D, dtype=torch.float64)
    lengths = []
    for n in range(D):
        key[0] = torch.eye(D, dtype=torch.float64)[n]
        form = AttentionModifiers(product=HouseholderProduct(w, 2 + 0 * beta))
        visible = Mask(9, 9).visible(q.device)[:, None]
        lengths.append(reference.logits(form, q, key[None, None], Span.of(9), visible, 1.0)[0, 0, 8, 0] ** 2)
    assert math.isclose(sum(map(float, lengths)), float(q[0, 0, 8].square().sum()), rel_tol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("name", ["PaTHFoX", "Wall"])
def test_no_tensor_is_as_large_as_all_pairs(name: str) -> None:
    largest = 0

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            largest = max([largest, *(x.numel() for x in tree_leaves(out) if isinstance(x, Tensor))])
            return out

    q, x = torch.randn(1, 1, 640, 8, requires_grad=True), torch.randn(1, 640, 4)
    encoding = getattr(encodings, name)(num_heads=1, head_dim=8, d_model=4)
    with Look():
        attend(q, q, q, encoding, tokens=TokenInfo(x=x, documents=torch.arange(640)[None] // 250)).sum().backward()
    assert largest <= 640 * (64 + 8)  # what all blocks have: the tokens of a block for each token, and its vector


@pytest.mark.parametrize("name", ["PaTH", "Wall"])
def test_statistics_have_blocks_too(name: str) -> None:
    encoding = getattr(encodings, name)(num_heads=2, head_dim=75, d_model=5).double()
    torch.nn.init.normal_(encoding.b)
    q, k = numbers(5, 2, 1, 2, 150, 75)
    tokens = TokenInfo(x=numbers(6, 1, 150, 5), documents=torch.arange(150)[None] % 2)
    actual = statistics(q, k, encoding, tokens=tokens)
    v = torch.eye(150, dtype=torch.float64)[None, None].expand(1, 2, -1, -1)
    parts = [v[..., :75], v[..., 75:]]
    weights = torch.cat([attend(q, k, part, encoding, tokens=tokens, backend="reference") for part in parts], -1)
    expected = torch.special.entr(weights.detach()).sum(-1).mean(-1)
    torch.testing.assert_close(actual.entropy, expected, rtol=0, atol=1e-9)


def test_what_other_backends_and_other_sizes_get() -> None:
    q, x = torch.randn(1, 2, 5, 8), torch.randn(1, 5, 4)
    path = encodings.PaTH(num_heads=2, head_dim=8, d_model=4)
    wall = encodings.Wall(num_heads=2, head_dim=8, d_model=4)
    with pytest.raises(ConfigError, match=r"HouseholderProduct changes q at every token.*\(PaTH\)"):
        attend(q, q, q, path, tokens=TokenInfo(x=x), backend="sdpa")
    with pytest.raises(ConfigError, match=r"DecayProduct has a weight for every channel.*\(Wall\)"):
        attend(q, q, q, wall, tokens=TokenInfo(x=x), backend="sdpa")
    for encoding in (path, wall):
        with pytest.raises(ConfigError, match=r"made for heads of 8 dims, and q has 4; use \w+\(head_dim=4\)"):
            attend(q[..., :4], q[..., :4], q[..., :4], encoding, tokens=TokenInfo(x=x))
        with pytest.raises(ConfigError, match="made for 2 heads, and q has 4"):
            attend(*[torch.cat([q, q], 1)] * 3, encoding, tokens=TokenInfo(x=x))
        with pytest.raises(ConfigError, match="not defined for keys after the query"):
            attend(q, q, q, encoding, tokens=TokenInfo(x=x), causal=False)
    with pytest.raises(ConfigError, match=r"PaTH: key_heads must divide the number of heads, .*got 3 and 4"):
        encodings.PaTH(num_heads=4, head_dim=8, d_model=4, key_heads=3)
