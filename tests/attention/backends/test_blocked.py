"""The blocked backend: dtypes, numbers that are not finite, memory, and what else test_agreement.py does not ask."""

import math
import subprocess
import sys
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lengthwise import attend, encodings
from lengthwise.attention import BACKENDS, Mask, TokenInfo, plan
from lengthwise.attention.backends.blocked.blocks import BLOCK_LOGITS, BLOCK_QUERIES
from lengthwise.forms import (
    AttentionModifiers,
    DenseBias,
    LogitTransform,
    RelativeValues,
    ToeplitzBias,
)
from lengthwise.span import Span
from tests.attention.agreement import Draw, Kernel, Sizes, build, results

blocked, fused, reference = (BACKENDS[name] for name in ("blocked", "fused", "reference"))

B, H, G, D = 2, 4, 2, 6


BLOCKS = {"one block": (64, 1 << 19), "blocks of 3 queries of one row of the batch": (3, 1)}


@pytest.fixture(params=BLOCKS)
def blocks(request, monkeypatch):
    small(monkeypatch, *BLOCKS[request.param])


def small(monkeypatch, rows, logits=1):
    monkeypatch.setitem(BLOCK_QUERIES, "cpu", rows)
    monkeypatch.setitem(BLOCK_LOGITS, "cpu", logits)


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


CASES = [
    "none", "five", "far", "behind", "entry", "jumps", "vectors", "longest", "content", "values-behind",
    "shared-sums five sums", "five short vectors long key values", "rotation-of-heads gain five key vectors-both-ways",
    "five forty jumps shared-jumps vectors long key key content wide-content dense dense-keys dense-shared "
    "values-behind values",
    "rotation-with-gains dense short content jumps sums values transform gain-of-rows",
    "rotation-with-gains dense-shared short content values transform gain-of-rows",
]  # fmt: skip
MANY, TRANSFORM, ROTATED = CASES[-3], CASES[-2], CASES[-4]
BLOCKED, REFERENCE = Kernel("blocked"), Kernel("reference")


def forms(words, span):
    """The modifiers and what in them has gradients."""
    draw = Draw(Sizes(span.q.shape[1], span.k.shape[1]), span)
    return build(words, draw), draw.leaves


def output_and_gradients(backend, modifiers, learned, span, mask, q, k, v, weight):
    out = backend.prepare(modifiers, span, mask)(q, k, v, scale=0.4)
    grads = torch.autograd.grad((out * weight).sum(), [q, k, v, *learned], allow_unused=True, retain_graph=True)
    return [out, *grads]


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_blocks_as_they_are_in_float32(name):
    """More queries than one block has; at most three times as far from float64 as the reference in float32.

    Over several draws: a gradient of few numbers may be very close to float64 by chance, in one draw and on one
    processor.
    """
    tokens = 130
    sizes = Sizes(tokens, tokens)
    span, mask = Span.of(tokens), Mask(tokens, tokens, documents=torch.arange(tokens)[None] // 100, window=90)
    narrow = {"dtype": torch.float32, "form_dtype": torch.float32}
    draws = range(4)
    exact = [results(REFERENCE, name, sizes, span, mask, seed=seed) for seed in draws]
    errors = []
    for seed in draws:
        found = (results(kernel, name, sizes, span, mask, seed=seed, **narrow) for kernel in (BLOCKED, REFERENCE))
        each = zip(*found, exact[seed], strict=True)
        wanted = [(a, b, value) for a, b, value in each if value is not None]
        assert all(a.dtype == torch.float32 for a, _, _ in wanted)
        errors.append([[(x.double() - value).square().mean().item() for x in (a, b)] for a, b, value in wanted])
    for error, allowed in torch.tensor(errors).mean(0).sqrt().tolist():
        assert error <= 3 * allowed + 1e-8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype, monkeypatch):
    torch.manual_seed(0)
    small(monkeypatch, 16)
    span, mask = Span.of(40), Mask(40, 40)
    for name in (MANY, ROTATED, TRANSFORM):
        modifiers, _ = forms(name, span)
        q, k, v = (
            torch.randn(B, H, 40, D).to(dtype),
            torch.randn(B, G, 40, D).to(dtype),
            torch.randn(B, G, 40, D).to(dtype),
        )
        out = blocked.prepare(modifiers, span, mask)(q, k, v, scale=0.4)
        exact = reference.prepare(modifiers, span, mask)(q.double(), k.double(), v.double(), scale=0.4)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "consecutive"),
    [
        ("five", True), ("five", False), ("jumps", True), (TRANSFORM, True),
        pytest.param(MANY, False, marks=pytest.mark.medium),
        *(pytest.param(*slow, marks=pytest.mark.slow) for slow in (("jumps", False), (MANY, True), (TRANSFORM, False))),
    ],
)  # fmt: skip
def test_gradcheck(name, consecutive, monkeypatch):
    torch.manual_seed(0)
    small(monkeypatch, 2)
    span = Span.of(4, 3) if consecutive else Span(torch.tensor([[3, 1, 5]] * B), torch.tensor([[0, 3, 1, 5]] * B), 6)
    modifiers, learned = forms(name, span)
    q, k, v = leaf(B, H, 3, D), leaf(B, G, 4, D), leaf(B, G, 4, D)
    run = blocked.prepare(modifiers, span, Mask(3, 4))
    assert torch.autograd.gradcheck(lambda q, k, v, *_: run(q, k, v, scale=0.4), (q, k, v, *learned), fast_mode=True)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("number", [-0.0, -math.inf, math.nan, math.inf])
def test_numbers_in_a_bias_do_what_they_do_in_the_reference(number):
    torch.manual_seed(0)
    bias = torch.randn(1, H, 7, 7, dtype=torch.float64)
    bias[:, 1, 4, 2] = number
    bias[:, 2, 5, :] = number  # a whole row
    bias[:, 3, 2, 5] = number  # where nothing is seen
    bias.requires_grad_()
    span, mask, modifiers = Span.of(7), Mask(7, 7), AttentionModifiers(terms=(DenseBias(bias),))
    q, k, v = leaf(B, H, 7, D), leaf(B, G, 7, D), leaf(B, G, 7, D)
    asked = modifiers, [bias], span, mask, q, k, v, torch.randn_like(q)
    for n, (got, wanted) in enumerate(
        zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True)
    ):
        if n == 3:  # of v: there the reference has NaN for keys that the query with NaN does not see, too
            wanted = torch.where(wanted.isnan() & ~got.isnan(), got, wanted)
            assert got[:, :, 0].isnan().any() == wanted[:, :, 0].isnan().any()
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12, equal_nan=True)


def test_large_logits_lose_no_digits():
    """The weights of the backward pass are those of the forward pass, and not exp(logits - lse) with a rounded lse."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 80, D, requires_grad=True) for _ in range(3))
    table = torch.full((1, 80), 3e4, requires_grad=True)
    asked = (
        AttentionModifiers(terms=(ToeplitzBias(table),)),
        [table],
        Span.of(80),
        Mask(80, 80),
        q,
        k,
        v,
        torch.randn_like(q),
    )
    for got, wanted in zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=2e-5)


class Largest(TorchDispatchMode):
    """The most numbers that a tensor had, and the most that were alive at a time, of tensors made meanwhile."""

    def __init__(self):
        super().__init__()
        self.largest, self.alive, self.most, self.known = 0, 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                storage = x.untyped_storage()
                if storage._cdata not in self.known:
                    self._count(storage, storage.nbytes() // x.element_size())
        return out

    def _count(self, storage, numbers):
        self.known.add(storage._cdata)
        self.largest, self.alive = max(self.largest, numbers), self.alive + numbers
        self.most = max(self.most, self.alive)
        weakref.finalize(storage, self._gone, storage._cdata, numbers)

    def _gone(self, key, numbers):
        self.known.discard(key)
        self.alive -= numbers


LENGTH = 1024
LONG = {
    "ALiBi": encodings.ALiBi(num_heads=2),
    "T5": encodings.T5(num_heads=2),
    "FIRE": encodings.FIRE(num_heads=2),
    "Shaw": encodings.Shaw(head_dim=4),
    "TransformerXL": encodings.TransformerXL(num_heads=2, head_dim=4, d_model=8),
    "CoPE": encodings.CoPE(head_dim=4),
    "DAPE": encodings.DAPE(num_heads=2, train_length=64, width=4),
}


@pytest.mark.medium
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", LONG)
def test_no_tensor_is_as_large_as_queries_times_keys(name, restart):
    """Not for one head of one row of the batch, forward or backward."""
    encoding = LONG[name]
    q, k, v = (torch.randn(1, 2, LENGTH, 4, requires_grad=True) for _ in range(3))
    documents = (torch.arange(LENGTH) // 600)[None] if restart else None
    wide = 8 if name == "DAPE" else 1  # numbers of a pair, inside its MLP
    with Largest() as made:
        attend(q, k, v, encoding, tokens=TokenInfo(documents=documents), backend="blocked").square().sum().backward()
    assert all(p.grad is not None for p in (q, k, v, *encoding.parameters()))
    assert LENGTH * 64 <= made.largest <= wide * 2.2 * 2 * LENGTH * 64 < wide * LENGTH**2
    for p in encoding.parameters():
        p.grad = None


@pytest.mark.medium
@pytest.mark.parametrize("name", LONG)
def test_memory_grows_as_the_length_does(name):
    """Twice the length: twice the numbers alive at a time, forward or backward, and not four times."""
    most, encoding = [], LONG[name]
    for length in (LENGTH // 2, LENGTH):
        q, k, v = (torch.randn(1, 2, length, 4, requires_grad=True) for _ in range(3))
        with Largest() as made:
            attend(q, k, v, encoding, backend="blocked").square().sum().backward()
        most.append(made.most)
    assert most[1] < 2.1 * most[0]
    for p in encoding.parameters():
        p.grad = None


@pytest.mark.parametrize("encoding", [None, encodings.RoPE(head_dim=4)], ids=["none", "RoPE"])
@pytest.mark.parametrize("given", ["documents", "fewer queries"])
def test_without_a_compiler_no_mask_is_as_large_as_queries_times_keys(given, encoding, monkeypatch):
    monkeypatch.setattr(fused, "unsupported_reason", lambda *asked: "there is no compiler")
    q, k, v = (torch.randn(1, 2, LENGTH + 64, 4, requires_grad=True) for _ in range(3))
    documents = (torch.arange(LENGTH + 64) // 600)[None] if given == "documents" else None
    with Largest() as made:
        attend(
            q if documents is not None else q[:, :, 64:], k, v, encoding, tokens=TokenInfo(documents=documents)
        ).sum().backward()
    assert made.largest <= 2.2 * 2 * (LENGTH + 64) * 64 < LENGTH**2


def test_the_count_of_numbers_sees_the_reference():
    q, k, v = (torch.randn(1, 2, LENGTH, 4) for _ in range(3))
    with Largest() as made:
        attend(q, k, v, LONG["ALiBi"], backend="reference")
    assert made.most > made.largest >= 2 * LENGTH**2


@pytest.mark.medium
def test_two_runs_give_the_same_bits():
    torch.manual_seed(0)
    span, mask = Span.of(150), Mask(150, 150)
    for name in CASES:
        modifiers, learned = forms(name, span)
        asked = modifiers, learned, span, mask, leaf(B, H, 150, D), leaf(B, G, 150, D), leaf(B, G, 150, D), 1.0
        one, other = (output_and_gradients(blocked, *asked) for _ in range(2))
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_autocast_leaves_precision_to_attention_backwards_too():
    q, k, v = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3))
    found = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = attend(q, k, v, LONG["T5"], backend="blocked")
            found.append([out, *torch.autograd.grad(out.sum(), [q, k, v, LONG["T5"].weight])])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.medium
@pytest.mark.parametrize("name", ["T5", "Shaw", "CoPE"])
def test_a_compiled_caller_goes_around_it(name):
    torch.manual_seed(0)
    span, mask, modifiers = Span.of(70), Mask(70, 70), LONG[name].modifiers(Span.of(70))
    run = blocked.prepare(modifiers, span, mask)
    q, k, v = (torch.randn(1, 2, 70, 4, requires_grad=True) for _ in range(3))
    found = []
    for caller in (lambda q, k, v: run(q.sin(), k, v, scale=0.5).cos(), None):
        caller = caller or torch.compile(lambda q, k, v: run(q.sin(), k, v, scale=0.5).cos(), backend="eager")
        out = caller(q, k, v)
        found.append([out, *torch.autograd.grad(out.sum(), [q, k, v], retain_graph=True)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.medium
def test_it_does_not_load_the_compiler():
    """torch._dynamo takes seconds to import."""
    program = """
import sys, torch
from lengthwise import attend, encodings
q = torch.randn(1, 2, 70, 4, requires_grad=True)
attend(q, q, q, encodings.T5(num_heads=2), backend="blocked").sum().backward()
with torch.no_grad():
    attend(q, q, q, encodings.CoPE(head_dim=4), backend="blocked")
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False"]


def test_nothing_is_asked_of_what_does_not_learn():
    """A bias without gradient beside one with, and q alone."""
    span, mask, fixed, table = Span.of(5), Mask(5, 5), torch.randn(H, 5), leaf(H, 5)
    q, k, v = (torch.randn(B, H, 5, D) for _ in range(3))
    run = blocked.prepare(AttentionModifiers(terms=(ToeplitzBias(fixed), ToeplitzBias(table))), span, mask)
    assert not blocked.prepare(AttentionModifiers(terms=(ToeplitzBias(fixed),)), span, mask)(
        q, k, v, scale=1.0
    ).requires_grad
    (grad,) = torch.autograd.grad(run(q, k, v, scale=1.0).square().sum(), table)
    assert grad.any()


def test_it_has_no_second_derivative():
    q, k, v = (torch.randn(1, 1, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    modifiers = AttentionModifiers(terms=(ToeplitzBias(leaf(1, 3)),))
    out = blocked.prepare(modifiers, Span.of(3), Mask(3, 3))(q, k, v, scale=1.0)
    (slope,) = torch.autograd.grad(out.sin().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="backend 'blocked' has no second derivative"):
        slope.square().sum().backward()


def test_auto_leaves_what_adds_nothing_to_torch(monkeypatch):
    monkeypatch.setattr(fused, "unsupported_reason", lambda *asked: "there is no compiler")
    q, span, mask = torch.zeros(1, 1, 3, 4), Span.of(3), Mask(3, 3)
    rewrite = AttentionModifiers(logit_transform=LogitTransform(lambda logits, *_: logits))
    assert plan(AttentionModifiers(), span, mask, q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, mask, q, backend="blocked").backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(3, 3, window=2), q).backend == "blocked"
    documents = torch.zeros(1, LENGTH, dtype=torch.long)
    assert plan(AttentionModifiers(), span, Mask(3, 3, documents=documents[:, :3]), q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, LENGTH, documents=documents), q).backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(1, LENGTH, documents=documents), q).backend == "sdpa"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, 2 * LENGTH), q).backend == "blocked"
    assert plan(AttentionModifiers(), span, Mask(LENGTH, LENGTH), q).backend == "sdpa"
    assert plan(rewrite, span, mask, q).backend == "blocked"
    assert plan(AttentionModifiers(values=(RelativeValues(torch.zeros(1, 2, 4)),)), span, mask, q).backend == "blocked"
    assert plan(AttentionModifiers(terms=(ToeplitzBias(torch.zeros(1, 3)),)), span, mask, q).backend == "blocked"


@pytest.mark.parametrize("how", ["columns", "every second", "expanded"])
def test_tensors_with_any_strides(how):
    torch.manual_seed(0)
    plain = {"columns": lambda x: x.mT.contiguous().mT, "every second": lambda x: torch.stack([x, x + 9], -1)[..., 0],
             "expanded": lambda x: x[:, :1].expand_as(x)}[how]  # fmt: skip
    q, k, v, bias = (plain(torch.randn(B, H, 5, 5, dtype=torch.float64)).requires_grad_() for _ in range(4))
    asked = AttentionModifiers(terms=(DenseBias(bias),)), [bias], Span.of(5), Mask(5, 5), q, k, v, torch.randn_like(q)
    for got, wanted in zip(*(output_and_gradients(b, *asked) for b in (blocked, reference)), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_pieces_without_a_warning(recwarn):
    """torch warns of what lies badly for its search, once a process unless it is told to always."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        q, k, v = torch.randn(3, 2, 2, 300, 16)
        attend(q, k, v, encodings.FIRE(num_heads=2), backend="blocked")
    finally:
        torch.set_warn_always(before)
    assert not [str(w.message) for w in recwarn if "contiguous" in str(w.message)]
