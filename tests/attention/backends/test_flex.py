"""FlexAttention against the reference. What the mods say is asked pair by pair without FlexAttention, gradients
included: each kind of mod costs it half a second of tracing. A few whole calls follow."""

import functools
import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from lengthwise import attend, encodings
from lengthwise.attention import BACKENDS, Mask, TokenInfo, plan
from lengthwise.attention.backends import flex, reference
from lengthwise.config import ConfigError
from lengthwise.forms import (
    AttentionModifiers,
    KeyBias,
    LogitTransform,
    RelativeValues,
    ToeplitzBias,
)
from lengthwise.span import Span
from tests.attention.agreement import Draw, Sizes, build

B, H, G, D = 2, 4, 2, 6
WIDE = torch.float64

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


CASES = [
    "none", "five", "short forty", "piece", "two-pieces", "pieces", "thirty-pieces", "dense", "dense-keys",
    "dense-shared", "head-sums shared-sums", "shaw", "vectors-both-ways", "long", "content", "wide-content", "key",
    "gain-of-rows five", "rotation-of-heads vectors-both-ways key", "five pieces shaw key dense gain-of-rows",
]  # fmt: skip
SUM = CASES[-1]


def forms(words: str, span: Span, dim: int = D) -> tuple[AttentionModifiers, list[torch.Tensor]]:
    """The modifiers, and the leaves that gradients are asked of."""
    draw = Draw(Sizes(span.q.shape[1], span.k.shape[1], B, H, G, dim), span)
    return build(words, draw), draw.leaves


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=WIDE, requires_grad=True)


def spans(keys: int, queries: int) -> dict[str, Span]:
    gaps = torch.randint(0, keys + 4, (B, keys)).sort(1).values
    no_order = torch.randint(0, 90, (1, keys))
    return {
        "consecutive": Span.of(keys, queries),
        "gaps": Span(gaps[:, keys - queries :], gaps, keys + 4),
        "no order": Span(no_order[:, keys - queries :], no_order, 90),
    }


LENGTHS = [(1, 1), (7, 7), (11, 1), (11, 4), (100, 100), (131, 60)]


def indices(keys: int, queries: int) -> tuple[torch.Tensor, ...]:
    """b, h, i, j, each along an axis of its own."""
    return torch.meshgrid(*(torch.arange(n) for n in (B, H, queries, keys)), indexing="ij")


def as_logits(
    modifiers: AttentionModifiers, span: Span, q: torch.Tensor, k: torch.Tensor, scale: float
) -> torch.Tensor:
    """What FlexAttention makes of a score_mod, in plain torch."""
    turned = (modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)) if modifiers.rotation else (q, k)
    score = turned[0] @ turned[1].repeat_interleave(H // G, 1).mT * scale
    return flex.score_mod(modifiers, span, q, k, scale=scale)(score, *indices(k.shape[2], q.shape[2]))


def test_the_scale_of_a_score_mod_is_by_default_that_of_attention():
    torch.manual_seed(0)
    modifiers, _ = forms("vectors-both-ways", Span.of(7))
    q, k, score = (
        torch.randn(B, H, 7, D, dtype=WIDE),
        torch.randn(B, G, 7, D, dtype=WIDE),
        torch.zeros(B, H, 7, 7).double(),
    )
    by_default, given = (
        flex.score_mod(modifiers, Span.of(7), q, k, **scale)(score, *indices(7, 7))
        for scale in ({}, {"scale": D**-0.5})
    )
    assert by_default.any()
    torch.testing.assert_close(by_default, given, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("keys", "queries"), LENGTHS)
def test_a_score_mod_says_what_the_forms_mean(name, keys, queries):
    for span in spans(keys, queries).values():
        torch.manual_seed(keys + queries)
        modifiers, leaves = forms(name, span)
        q, k, weight = leaf(B, H, queries, D), leaf(B, G, keys, D), torch.randn(B, H, queries, keys, dtype=WIDE)
        visible = torch.ones(1, 1, queries, keys, dtype=torch.bool)
        got = as_logits(modifiers, span, q, k, 0.3)
        wanted = reference.logits(modifiers, q, k.repeat_interleave(H // G, 1), span, visible, 0.3)
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-11)
        for a, b in zip(
            *(torch.autograd.grad((x * weight).sum(), [q, k, *leaves], retain_graph=True) for x in (got, wanted)),
            strict=True,
        ):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 5])
@pytest.mark.parametrize("rows", [None, 1, B])
def test_a_mask_mod_says_what_the_mask_does(causal, window, rows):
    torch.manual_seed(0)
    for keys, queries in LENGTHS:
        documents = None if rows is None else torch.randint(-1, 3, (rows, keys))
        mask = Mask(queries, keys, causal, documents, window)
        seen = flex.mask_mod(mask)(*indices(keys, queries))
        assert seen.dtype == torch.bool
        assert torch.equal(seen, mask.visible(torch.device("cpu"))[:, None].expand_as(seen))


def inputs(keys: int, queries: int, dtype: torch.dtype = WIDE) -> list[torch.Tensor]:
    return [torch.randn(B, h, t, D).to(dtype) for h, t in ((H, queries), (G, keys), (G, keys))]


CALLS = {
    "plain": ("none", "consecutive", 131, 131, {}),
    "a single token": ("five", "consecutive", 1, 1, {}),
    "a single query": ("pieces", "consecutive", 100, 1, {}),
    "both ways": ("short forty", "consecutive", 7, 7, {"causal": False}),
    "both ways, a window": ("vectors-both-ways", "gaps", 100, 100, {"causal": False, "window": 9}),
    "everything": (SUM, "gaps", 131, 60, {"documents": B, "window": 40}),
    "one row of documents": ("rotation-of-heads vectors-both-ways key", "no order", 131, 100, {"documents": 1}),
}


@pytest.mark.medium
@pytest.mark.parametrize("call", CALLS)
@torch.no_grad()
def test_attention_agrees(call):
    torch.manual_seed(3)
    name, where, keys, queries, given = CALLS[call]
    span = spans(keys, queries)[where]
    ids = (torch.arange(keys) // 30 + torch.arange(given["documents"])[:, None]) if "documents" in given else None
    mask = Mask(queries, keys, given.get("causal", True), ids, given.get("window"))
    modifiers, _ = forms(name, span)
    for dtype, close in ((WIDE, 1e-12), (torch.float32, 2e-5)):
        q, k, v = inputs(keys, queries, dtype)
        got, wanted = (plan(modifiers, span, mask, q, backend=name)(q, k, v) for name in ("flex", "reference"))
        assert got.dtype == dtype
        torch.testing.assert_close(got, wanted, rtol=0, atol=close * wanted.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype):
    torch.manual_seed(0)
    span, mask = Span.of(50), Mask(50, 50)
    modifiers = AttentionModifiers(
        terms=(ToeplitzBias(-100 * torch.rand(H, 50, dtype=WIDE)),)
    )  # bfloat16 would lose whole nats
    q, k, v = inputs(50, 50, dtype)
    exact = plan(modifiers, span, mask, q, backend="reference")(q.double(), k.double(), v.double())
    with torch.autocast("cpu", torch.bfloat16):
        got = plan(modifiers, span, mask, q, backend="flex")(q, k, v)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=2 * torch.finfo(dtype).eps)
    score = flex.score_mod(modifiers, span)(torch.zeros(1, 1, 1, 1, dtype=dtype), *indices(50, 50))
    assert score.dtype == torch.float32


@pytest.mark.medium
@torch.no_grad()
def test_calls_of_your_own():
    """The example in the module, with heads in groups, fewer queries than keys, and a rotation."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, h, t, 16) for h, t in ((4, 9), (2, 40), (2, 40)))
    span, mask = Span.of(40, 9), Mask(9, 40, window=20)
    for encoding in (
        encodings.T5(num_heads=4),
        encodings.RoPE(head_dim=16),
        encodings.TransformerXL(num_heads=4, head_dim=16, d_model=64),
    ):
        modifiers = encoding.modifiers(span)
        score, blocks = (
            flex.score_mod(modifiers, span, q, k),
            create_block_mask(flex.mask_mod(mask), None, None, 9, 40, "cpu"),
        )
        turned = (
            (modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)) if modifiers.rotation else (q, k)
        )
        got = flex_attention(*turned, v, score_mod=score, block_mask=blocks, enable_gqa=True)
        torch.testing.assert_close(got, attend(q, k, v, encoding, window=20, backend="reference"))


def test_an_empty_batch_with_documents():
    encoding = encodings.TransformerXL(num_heads=2, head_dim=4, d_model=8).half()
    q, k, v = (torch.zeros(0, 2, n, 4, dtype=torch.float16) for n in (1, 65, 65))
    with torch.no_grad():
        out = attend(
            q,
            k[:, :1],
            v[:, :1],
            encoding,
            tokens=TokenInfo(documents=torch.zeros(0, 65, dtype=torch.long)),
            backend="flex",
        )
    assert out.shape == q.shape


@pytest.mark.medium
@torch.no_grad()
def test_odd_memory_and_an_empty_batch():
    torch.manual_seed(0)
    q, k, v = inputs(9, 7)
    attention = plan(forms("pieces", Span.of(9, 7))[0], Span.of(9, 7), Mask(7, 9), q, backend="flex")
    scatter_columns = [torch.stack([x, x + 9], -1).flatten(-2)[..., ::2].mT.contiguous().mT for x in (q, k, v)]
    torch.testing.assert_close(attention(*scatter_columns), attention(q, k, v), rtol=1e-12, atol=1e-12)
    assert attention(q[:0], k[:0], v[:0]).shape == (0, H, 7, D)


def test_blocks_and_tables_are_made_once_for_a_plan(monkeypatch):
    made = []
    monkeypatch.setattr(
        "torch.nn.attention.flex_attention.create_block_mask",
        lambda *given, **named: made.append(given) or create_block_mask(*given, **named),
    )
    span, (q, k, v) = Span.of(20), inputs(20, 20)
    attention = plan(forms("five", span)[0], span, Mask(20, 20), q, backend="flex")
    with torch.no_grad():
        first, again = attention(q, k, v), attention(q, k, v)
    assert torch.equal(first, again)
    assert len(made) == 1


# ---- what it does not serve --------------------------------------------------------------------------------------


def test_gradients_are_refused_on_a_cpu_in_one_line():
    alibi, t5 = encodings.ALiBi(num_heads=H), encodings.T5(num_heads=H)
    q, k, v = inputs(5, 5, torch.float32)
    for which, encoding in itertools.product(range(4), (alibi, t5)):
        given = [x.clone().requires_grad_(n == which) for n, x in enumerate((q, k, v))]
        if which == 3 and encoding is alibi:  # nothing asks for a gradient
            assert attend(*given, alibi, backend="flex").shape == q.shape
            continue
        with pytest.raises(ConfigError, match="no backward pass on a CPU; use backend='auto'") as said:
            attend(*given, encoding, backend="flex")
        assert "\n" not in str(said.value)
        with torch.no_grad():
            assert attend(*given, encoding, backend="flex").shape == q.shape


def forms_without_a_mod() -> list[Any]:
    return [
        (AttentionModifiers(logit_transform=LogitTransform(lambda logits, *_: logits)), "whole rows"),
        (AttentionModifiers(values=(RelativeValues(torch.zeros(1, 2, D)),)), "the weights"),
    ]


@pytest.mark.parametrize(("modifiers", "words"), forms_without_a_mod())
def test_forms_that_no_mod_can_say_are_refused(modifiers, words):
    with pytest.raises(ConfigError, match=words):
        plan(modifiers, Span.of(3), Mask(3, 3), torch.zeros(1, 1, 3, D), backend="flex")
    with pytest.raises(ConfigError, match=words):
        flex.score_mod(modifiers, Span.of(3))


def test_what_multiplies_q_and_k_asks_for_them():
    span, q = Span.of(3), torch.zeros(1, H, 3, D)
    for name in ("vectors-both-ways", "key"):
        modifiers, _ = forms(name, span)
        for given in ((), (q,)):
            with pytest.raises(ConfigError, match=r"multiplies q and k; pass them"):
                flex.score_mod(modifiers, span, *given)
        flex.score_mod(modifiers, span, q, q)


class OnCuda:
    """q as far as a backend is asked about it."""

    device = torch.device("cuda")

    def __init__(self, dtype: torch.dtype, dim: int):
        self.dtype, self.shape = dtype, (1, 1, 3, dim)


def test_what_its_kernels_do_not_serve_is_refused():
    asked = AttentionModifiers(), Span.of(3), Mask(3, 3)
    reason = flex.Flex.unsupported_reason
    reason = getattr(reason, "__wrapped__", reason)  # the check of shapes knows no such q
    unsupported_reason = functools.partial(reason, BACKENDS["flex"])
    assert "float32" in unsupported_reason(*asked, OnCuda(WIDE, 64))
    assert "16 dims" in unsupported_reason(*asked, OnCuda(torch.bfloat16, 8))
    assert unsupported_reason(*asked, OnCuda(torch.bfloat16, 16)) is None
    assert "not meta" in BACKENDS["flex"].unsupported_reason(*asked, torch.zeros(1, 1, 3, 64, device="meta"))


def test_auto_never_takes_it():
    for modifiers, _ in (*forms_without_a_mod(), (AttentionModifiers(), ""), (forms(SUM, Span.of(3))[0], "")):
        q = torch.zeros(B, H, 3, D)
        assert plan(modifiers, Span.of(3), Mask(3, 3), q).backend != "flex"


# ---- compiled ----------------------------------------------------------------------------------------------------


COMPILED = """
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from lengthwise import encodings
from lengthwise.attention import Mask, plan
from lengthwise.attention.backends import flex
from lengthwise.span import Span

with torch.no_grad():
    q, k, v = (torch.randn(2, h, t, 32) for h, t in ((4, 131), (2, 200), (2, 200)))
    span, mask = Span.of(200, 131), Mask(131, 200, window=150)
    modifiers = encodings.FIRE(num_heads=4).modifiers(span)
    plans = {name: plan(modifiers, span, mask, q, backend=name) for name in ("flex", "reference")}
    wanted = plans["reference"](q, k, v)
    compiled = torch.compile(lambda q, k, v: 2 * plans["flex"](q, k, v))(q, k, v) / 2
    blocks = torch.compile(create_block_mask)(flex.mask_mod(mask), 1, None, 131, 200, "cpu")
    score = flex.score_mod(modifiers, span)
    alone = torch.compile(flex_attention)(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=True)
    for got in (compiled, alone):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)
"""


@pytest.mark.slow
def test_compiled():
    """In a process of its own: torch cannot compile through the check of shapes."""
    ran = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_more_kinds_than_torch_compiles_by_itself(monkeypatch):
    """What is compiled on CUDA, here without making kernels."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    flex.compiled_function.cache_clear()
    run, q = flex.compiled_function("flex_attention"), torch.randn(1, H, 5, D, dtype=WIDE)
    with torch.no_grad():
        for n in range(10):
            modifiers = AttentionModifiers(
                terms=(ToeplitzBias(torch.zeros(1, 2)),) * n + (KeyBias(torch.zeros(H, D)),) * (n % 2)
            )
            run(q, q, q, score_mod=flex.score_mod(modifiers, Span.of(5), q, q))
    flex.compiled_function.cache_clear()


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device here: FlexAttention's backward pass was not run"
)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("keys", "queries"), [(131, 131), (131, 60), (300, 1)])
def test_output_and_every_gradient_on_cuda(name, keys, queries):
    torch.manual_seed(0)
    with torch.device("cuda"):
        ids = (torch.arange(keys) // 50)[None]
        for span, mask in (
            (Span.of(keys, queries, "cuda"), Mask(queries, keys)),
            (Span.of(keys, queries, "cuda"), Mask(queries, keys, documents=ids, window=70)),
            (spans(keys, queries)["gaps"], Mask(queries, keys)),
        ):
            modifiers, leaves = forms(name, span, 32)
            given = [leaf(B, h, t, 32) for h, t in ((H, queries), (G, keys), (G, keys))]
            weight, found = torch.randn_like(given[0]), []
            for backend, dtype in (("flex", torch.float32), ("reference", WIDE)):
                q, k, v = (x.to(dtype) for x in given)
                out = plan(modifiers, span, mask, q, backend=backend)(q, k, v).to(WIDE)
                found.append([out, *torch.autograd.grad((out * weight).sum(), [*given, *leaves], retain_graph=True)])
            for got, wanted in zip(*found, strict=True):
                # FlexAttention multiplies float32 in pieces of tf32 where torch allows it; here it does not.
                torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4 * max(1.0, wanted.abs().max().item()))
