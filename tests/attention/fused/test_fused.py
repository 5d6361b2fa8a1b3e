"""The fused CPU kernel against the reference, on every target of this processor: beyond test_agreement.py."""

import contextlib
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from lengthwise import native
from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.fused import backend as fused_backend
from lengthwise.attention.fused import cpu, operator
from lengthwise.attention.fused.arguments import SEGMENTS, TENSORS, Arguments
from lengthwise.encodings import FIRE, T5, ALiBi, KerpleLog, RoPE
from lengthwise.forms import (
    AttentionModifiers,
    DenseBias,
    KeyBias,
    LogitTransform,
    PiecewiseLinearBias,
    QueryGain,
    RelativeKeyBias,
    RelativeValues,
    Rotation,
    ToeplitzBias,
)
from lengthwise.span import Span
from tests.attention import agreement
from tests.attention.agreement import Draw, Kernel, Sizes, build, require_agreement, results
from tests.pairwise import pairwise

fused, reference, sdpa = (BACKENDS[name] for name in ("fused", "reference", "sdpa"))

pytestmark = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no kernel here: {native.unsupported_reason()}"
)

TARGETS = range(native.TARGETS.index(native.best_target()) + 1) if not native.unsupported_reason() else ()
WIDE = torch.float64


@pytest.fixture(autouse=True)
def _the_best_target():
    yield
    cpu.forced_target = -1


def forms(words, heads, span, batch=1, dim=16):
    """The modifiers and the leaves of their numbers."""
    draw = Draw(Sizes(span.q.shape[1], span.k.shape[1], batch, heads, heads, dim), span)
    return build(words, draw), draw.leaves


def inputs(b, h, g, i, j, d, dtype=WIDE):
    *qkv, weight = agreement.inputs(Sizes(i, j, b, h, g, d), dtype)
    return qkv, weight


def answers(words, shape, span, mask, dtype):
    """The output and the gradients of q, k, v and of every number of the forms."""
    b, h, g, i, j, d = shape
    return results(Kernel("fused", dtype), words, Sizes(i, j, b, h, g, d), span, mask)


def require_equal(words, shape, span, mask, *, dtype=torch.float32, target=-1):
    b, h, g, i, j, d = shape
    require_agreement(Kernel("fused", dtype, target=target), words, Sizes(i, j, b, h, g, d), span, mask)


def off_by(make, length, seed, dtype=torch.float32):
    """Of the output and the gradient of q, k, v and every parameter: squared distance from that of the reference in
    float64, ours and torch's, which has the bias as a mask."""
    span, mask = Span.of(length), Mask(length, length)
    torch.manual_seed(seed)
    given = [torch.randn(1, 4, length, 64).to(dtype) for _ in range(4)]
    torch.manual_seed(100 + seed)
    encoding = make()
    parameters = {f"encoding.{name}": x for name, x in encoding.named_parameters()}
    found = []
    for who in ("reference", "ours", "torch"):
        q, k, v, weight = (x.to(WIDE if who == "reference" else dtype) for x in given)
        leaves = [x.requires_grad_() for x in (q, k, v)]
        modifiers = encoding.modifiers(span)
        if who == "torch":
            bias = modifiers.terms[0].dense(q, k, span, 1.0).masked_fill(~mask.visible(q.device)[:, None], -math.inf)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(1, 4, -1, -1).to(dtype), scale=0.125)
        else:
            backend = reference if who == "reference" else fused
            out = backend.prepare(modifiers, span, mask)(q, k, v, scale=0.125)
        found.append([out.detach(), *torch.autograd.grad(out, [*leaves, *parameters.values()], weight)])
    return {
        n: [(x - exact).square().sum().item() for x in (own, its)]
        for n, exact, own, its in zip(["out", "q", "k", "v", *parameters], *found, strict=True)
    }


def require_as_exact_as_torch(make, length, seed, draws, dtype=torch.float32):
    sums = {}
    for n in range(draws):
        for name, both in off_by(make, length, seed + n, dtype).items():
            sums[name] = [a + b for a, b in zip(sums.get(name, (0, 0)), both, strict=True)]
    for name, (own, its) in sums.items():
        assert math.sqrt(own / its) <= 2, f"{name}: {math.sqrt(own / its):.2f}"


LEARNED = [lambda: T5(num_heads=4), lambda: FIRE(num_heads=4), lambda: FIRE(num_heads=4, hidden_layers=1)]


@pytest.mark.parametrize(("length", "seed"), [(128, 0), pytest.param(256, 30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", LEARNED)
def test_as_exact_as_torch(make, length, seed):
    """Root of the mean square over 24 draws: a single number, as the gradient of FIRE's c, may be close by chance."""
    require_as_exact_as_torch(make, length, seed, 24)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", LEARNED)
def test_half_precision_is_as_exact_as_torch(make, dtype):
    require_as_exact_as_torch(make, 128, 0, 4, dtype)


@pytest.mark.parametrize("more", [0, 100])  # so many that they are searched for
# The w that a table is made for: that of most queries, of one, or of one that float32 cannot tell from that of most.
@pytest.mark.parametrize("first", [1.0, 0.8, 1 - 2e-9])
def test_a_knot_is_where_it_is_exactly(first, more):
    """A coordinate right of a knot by less than float32 can tell: the other segment has another gradient."""
    span, mask, knot = Span.of(140), Mask(140, 140), math.log1p(0.3 * 20)
    torch.manual_seed(0)
    results = []
    for off in (-1e-12, 1e-12):
        gradients = []
        for backend, dtype in ((fused, torch.float32), (reference, WIDE)):
            (q, k, v), weight = inputs(1, 2, 2, 140, 140, 16, dtype)
            slope = torch.tensor([[1.0, -2.0] + [0.0] * more], dtype=WIDE).repeat(2, 1).requires_grad_()
            intercept = torch.tensor([[0.0, 3 * knot] + [0.0] * more], dtype=WIDE).repeat(2, 1).requires_grad_()
            u, w = torch.log1p(0.3 * torch.arange(140, dtype=WIDE)), torch.ones(1, 140, dtype=WIDE)
            w[0, 0], w[0, 100:] = first, 0.9
            knots = torch.cat([u[20:21] + off, 9 + torch.arange(more, dtype=WIDE)])
            term = PiecewiseLinearBias(slope, intercept, knots, u, w)
            out = backend.prepare(AttentionModifiers(terms=(term,)), span, mask)(q, k, v, scale=0.25)
            gradients.append(torch.cat(torch.autograd.grad(out, [slope, intercept], weight.to(dtype)), 1))
        assert (gradients[0] - gradients[1]).abs().max() <= 1e-5 * gradients[1].abs().max()
        results.append(gradients[1])
    assert (results[0] - results[1]).abs().max() > 1e-3 * results[0].abs().max()


@pairwise(
    places=["consecutive", "documents"],
    kind=["table pieces", "table many", "short crooked"],
    frozen=["table", "pieces"],
    target=TARGETS,
)
def test_one_term_learns_and_the_other_does_not(kind, frozen, places, target):
    cpu.forced_target = target
    length = 131
    positions = torch.arange(length)[None] if places == "consecutive" else (torch.arange(length) % 50)[None]
    span = Span.of(length) if places == "consecutive" else Span(positions, positions, length)
    found = []
    for backend, dtype in ((fused, torch.float32), (reference, WIDE)):
        (q, k, v), weight = inputs(1, 2, 2, length, length, 16, dtype)
        modifiers, leaves = forms(kind, 2, span)
        still, learned = leaves[:1], leaves[1:]  # of the table, and of the pieces
        if frozen == "pieces":
            still, learned = learned, still
        for leaf in still:
            leaf.requires_grad_(False)
        out = backend.prepare(modifiers, span, Mask(length, length))(q, k, v, scale=0.25)
        found.append([out, *torch.autograd.grad(out, [q, k, v, *learned], weight.to(dtype))])
    largest = max(x.abs().max().item() for x in found[1])
    for got, wanted in zip(*found, strict=True):
        assert (got.to(WIDE) - wanted).abs().max().item() <= 1e-5 * largest


KINDS = ["none", "table", "short", "table short", "pieces", "pieces table", "many", "crooked short"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dim", [1, 16, 64, 80, 256])
def test_every_head_dim(dim, target):
    require_equal("pieces table", (1, 2, 1, 70, 140, dim), Span.of(140, 70), Mask(70, 140), target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("heads", "queries"), [((2, 2), 1), ((4, 1), 1), ((2, 1), 2), ((2, 1), 3), ((1, 1), 4)])
def test_decoding(heads, queries, target):
    """A few queries have a way of their own to their logits."""
    for keys, dim in ((4, 8), (77, 33), (300, 64)):
        ids = (torch.arange(keys) // 40)[None]
        shape = (2, *heads, queries, keys, dim)
        require_equal("table pieces", shape, Span.of(keys, queries), Mask(queries, keys), target=target)
        require_equal("none", shape, Span.of(keys, queries), Mask(queries, keys, True, ids), target=target)


@pairwise(
    queries=[1, 2, 70],
    heads=[(2, 2), (4, 1)],
    target=TARGETS,
    dtype=[torch.float32, WIDE],
    how=["causal", "a window", "documents"],
)
def test_many_keys_and_few_queries(queries, heads, target, dtype, how):
    """Keys are shared out between units of work, and their parts joined."""
    ids = (torch.arange(1200) // 500)[None] if how == "documents" else None
    mask = Mask(queries, 1200, True, ids, 900 if how == "a window" else None)
    shape = (2, *heads, queries, 1200, 20)
    require_equal("table pieces", shape, Span.of(1200, queries), mask, dtype=dtype, target=target)


@pytest.mark.parametrize(
    ("queries", "target"),
    [
        pytest.param(queries, target, marks=pytest.mark.slow if queries == 420 and target != TARGETS[-1] else ())
        for queries in (1, 8, 420)
        for target in TARGETS
    ],
)
def test_many_key_heads(queries, target):
    """With 16 of them no unit of work is cut into parts."""
    shape = (8, 4, 2, queries, 600, 12)
    require_equal("table pieces", shape, Span.of(600, queries), Mask(queries, 600), target=target)


@pytest.mark.parametrize("queries", [1, 3, 800])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_in_parts(dtype, queries):
    (q, k, v), weight = inputs(1, 4, 1, queries, 1200, 24, dtype)
    results = []
    for backend, wide in ((fused, [q, k, v]), (reference, [x.detach().to(WIDE).requires_grad_() for x in (q, k, v)])):
        out = backend.prepare(AttentionModifiers(), Span.of(1200, queries), Mask(queries, 1200))(*wide, scale=0.2)
        results.append([out, *torch.autograd.grad(out, wide, weight.to(dtype).to(out.dtype))])
    for a, b in zip(*results, strict=True):
        assert (a.to(WIDE) - b).abs().max() <= (2e-2 if dtype == torch.bfloat16 else 2e-3) * b.abs().max()


@pytest.mark.parametrize("kind", ["table", "pieces"])
def test_a_long_sequence(kind):
    require_equal(kind, (1, 1, 1, 1023, 1023, 16), Span.of(1023), Mask(1023, 1023))


WINDOWS = (1, 40, 200)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("kind", ["none", "table", "pieces", "many"])
def test_a_sliding_window_over_a_long_sequence(kind, window):
    span, mask = Span.of(450), Mask(450, 450, window=window)
    require_equal(kind, (1, 2, 1, 450, 450, 8), span, mask, dtype=WIDE)


@pytest.mark.parametrize("window", [30, 128])
def test_a_window_reads_nothing_that_it_hides(window):
    """Keys that no query sees may hold anything, and so may what they would give."""
    span, mask, seen = Span.of(700, 200), Mask(200, 700, window=window), 500 - window + 1
    results = []
    for hidden in (0.5, math.nan):
        (q, k, v), weight = inputs(1, 2, 1, 200, 700, 16, torch.float32)
        with torch.no_grad():
            k[:, :, :seen] = v[:, :, :seen] = hidden
        out = fused.prepare(forms("table", 2, span)[0], span, mask)(q, k, v, scale=0.3)
        results.append([out, *torch.autograd.grad(out, [q, k, v], weight.float())])
    for plain, spoiled in zip(*results, strict=True):
        assert torch.equal(plain, spoiled)
    assert not spoiled[:, :, :seen].any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["table short", "pieces", "many"])
@pytest.mark.parametrize("rows", [1, 2])
def test_positions_with_gaps(kind, rows, target):
    torch.manual_seed(2)
    p = torch.randint(0, 4, (rows, 140)).cumsum(1)
    p[:, 60:] += 100 - p[:, 60:61] + p[:, 59:60] + torch.arange(80) - (p[:, 60:] - p[:, 60:61])  # a run after a gap
    span = Span(p[:, 20:], p, int(p.max()) + 1)
    require_equal(kind, (2, 2, 1, 120, 140, 12), span, Mask(120, 140), target=target)


def test_large_distances_take_the_nearest_entry():
    p = torch.tensor([[0, 1, 2, 10**9, 10**9 + 1]])
    require_equal("short", (1, 1, 1, 5, 5, 8), Span(p, p, 9), Mask(5, 5))
    require_equal("pieces", (1, 1, 1, 5, 5, 8), Span(p, p, 9), Mask(5, 5))


@pytest.mark.parametrize("far", [2**35, -(2**35)])
def test_pieces_at_distances_that_no_small_number_holds(far):
    """Two runs of positions, far apart: none reaches knots past the last entry, all reach those before the first."""
    k = torch.cat([torch.arange(128), torch.arange(30) + far])[None] + 2**36
    span, mask = Span(k[:, 128:], k, int(k.max()) + 1), Mask(30, 158)
    torch.manual_seed(0)
    slope, intercept = torch.randn(2, 2, 9, dtype=WIDE)
    u, w = torch.linspace(0.05, 0.5, 12, dtype=WIDE), torch.linspace(0.5, 1, 30, dtype=WIDE)[None]
    knots = torch.tensor([0.01, 0.02, 0.1, 0.2, 0.3, 0.4, 0.7, 0.8], dtype=WIDE) + 1e-4
    modifiers = AttentionModifiers(terms=(PiecewiseLinearBias(slope, intercept, knots, u, w),))
    (q, key, v), _ = inputs(1, 2, 1, 30, 158, 8)
    got, wanted = (b.prepare(modifiers, span, mask)(q, key, v, scale=0.3) for b in (fused, reference))
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=25)
@given(
    st.integers(1, 3), st.sampled_from([(1, 1), (2, 1), (3, 3), (4, 2)]), st.integers(1, 150), st.integers(1, 150),
    st.integers(1, 40), st.sampled_from(KINDS), st.booleans(),
)  # fmt: skip
def test_any_shape(b, heads, i, more, d, kind, documents):
    j, dtype = i + more - 1, WIDE if d % 2 else torch.float32
    ids = (torch.arange(j) // (1 + d * 2))[None] if documents else None
    require_equal(kind, (b, *heads, i, j, d), Span.of(j, i), Mask(i, j, True, ids), dtype=dtype)


@pytest.mark.parametrize(("dtype", "close"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("target", TARGETS)
def test_half_precision(dtype, close, target):
    cpu.forced_target = target
    span, mask, shape = Span.of(131, 100), Mask(100, 131), (2, 4, 2, 100, 131, 24)
    got = answers("table pieces", shape, span, mask, dtype)
    qkv, weight = inputs(*shape, dtype)
    modifiers, leaves = forms("table pieces", 4, span)
    wide = [x.detach().to(WIDE).requires_grad_() for x in qkv]
    out = reference.prepare(modifiers, span, mask)(*wide, scale=shape[-1] ** -0.5)
    wanted = [out, *torch.autograd.grad(out, [*wide, *leaves], weight.to(dtype).to(WIDE))]
    assert [x.dtype for x in got[:4]] == [dtype] * 4
    for a, b in zip(got, wanted, strict=True):
        assert (a.to(WIDE) - b).abs().max() <= close * b.abs().max()


def test_half_precision_rounds_to_nearest_as_torch_does():
    """A query that sees one key alone gives back its value: every number passes through unchanged, or rounded once."""
    bits = torch.arange(-(2**15), 2**15).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        x = bits.view(dtype)
        v = x.view(256, 1, 1, 256).clone()
        zero = torch.zeros_like(v)
        out = cpu.forward(zero, zero, v, Arguments())[0]
        torch.testing.assert_close(out.flatten(), x, rtol=0, atol=0, equal_nan=True)
    torch.manual_seed(0)
    x = torch.randn(64, 1, 2, 64) * 10.0 ** torch.randint(-9, 5, (64, 1, 2, 64))
    for dtype in (torch.float16, torch.bfloat16):
        v = x.to(dtype)
        zero = torch.zeros_like(v)
        mean = cpu.forward(zero, zero, v, Arguments(causal=False))[0][:, :, :1]
        torch.testing.assert_close(mean, v.float().mean(2, keepdim=True).to(dtype), rtol=0, atol=0)


@pytest.mark.parametrize("how", ["columns", "every second", "heads last", "one for all"])
def test_any_strides(how):
    (q, k, v), weight = inputs(2, 4, 2, 30, 50, 16)
    span, mask = Span.of(50, 30), Mask(30, 50)

    def strided(x):
        if how == "columns":
            return x.mT.contiguous().mT
        if how == "heads last":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        if how == "one for all":
            return x[:1].expand(2, -1, -1, -1)
        return torch.stack([x, x + 9], -1).flatten(-2)[..., ::2]

    got, wanted = [], []
    for backend, answer in ((fused, got), (reference, wanted)):
        out = backend.prepare(AttentionModifiers(), span, mask)(*map(strided, (q, k, v)), scale=0.3)
        answer += [out, *torch.autograd.grad(out, (q, k, v), strided(weight))]
        answer += torch.autograd.grad(
            backend.prepare(AttentionModifiers(), span, mask)(q, k, v, scale=0.3).sum(), (q, k, v)
        )
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("which", range(4), ids=["q", "k", "v", "gradient"])
@pytest.mark.parametrize("how", ["causal", "documents", "window"])
def test_nan_and_infinity_stay_with_those_that_see_them(bad, which, how):
    """Token 70 of 140 is bad: tokens that do not see it, or that it does not see, are as without it."""
    ids = torch.tensor([[0] * 75 + [1] * 65]) if how == "documents" else None
    span, mask = Span.of(140), Mask(140, 140, True, ids, 20 if how == "window" else None)
    results = []
    for value in (bad, 0.5):
        (q, k, v), weight = inputs(1, 1, 1, 140, 140, 16, torch.float32)
        weight = weight.float()
        with torch.no_grad():
            (q, k, v, weight)[which][0, 0, 70, 3] = value
        modifiers, _ = forms("table", 1, span)
        out = fused.prepare(modifiers, span, mask)(q, k, v, scale=0.3)
        results.append([out, *torch.autograd.grad(out, [q, k, v], weight)])
    seen = mask.visible(torch.device("cpu"))[0]
    spoiled, plain = results
    rows = seen[:, 70] if which in (1, 2) else torch.arange(140) == 70  # queries whose logits or sums have it
    if which != 3:
        assert torch.equal(spoiled[0][0, 0, ~rows], plain[0][0, 0, ~rows])
        if math.isnan(bad):  # a logit of -inf is a weight of 0, no harm done
            assert not spoiled[0][0, 0, rows].isfinite().all(-1).any()
    clean_keys = ~seen[rows].any(0)
    for gradient, clean in ((1, ~rows), (2, clean_keys), (3, clean_keys)):
        assert torch.equal(spoiled[gradient][0, 0, clean], plain[gradient][0, 0, clean])


def test_weights_that_vanish_are_zero_and_not_denormal():
    """A key so far below the others that its weight is no normal number gets none, and no gradient."""
    span, mask = Span.of(3), Mask(3, 3)
    table = torch.tensor([[0.0, -88.0, -1000.0]])
    (q, k, v), _ = inputs(1, 1, 1, 3, 3, 4, torch.float32)
    q = torch.zeros_like(q)
    out = fused.prepare(AttentionModifiers(terms=(ToeplitzBias(table),)), span, mask)(q, k, v, scale=1.0)
    torch.testing.assert_close(out, v, rtol=0, atol=0)
    (dv,) = torch.autograd.grad(out.sum(), v)
    assert torch.equal(dv, torch.ones_like(dv))


def test_logits_far_from_zero():
    require_equal("table", (1, 1, 1, 40, 40, 8), Span.of(40), Mask(40, 40), dtype=WIDE)
    span, mask = Span.of(40), Mask(40, 40)
    (q, k, v), _ = inputs(1, 1, 1, 40, 40, 8, torch.float32)
    for shift in (1e4, -1e4):
        modifiers = AttentionModifiers(terms=(ToeplitzBias(torch.full((1, 40), shift)),))
        out = fused.prepare(modifiers, span, mask)(q, k, v, scale=0.01)
        assert (out - reference.prepare(AttentionModifiers(), span, mask)(q, k, v, scale=0.01)).abs().max() < 3e-3


@pytest.mark.parametrize("kind", ["none", "table", "pieces table", "many"])
def test_the_same_bits_for_any_number_of_threads(kind):
    span, mask, before = Span.of(300), Mask(300, 300), torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 1, 2, 5):
            torch.set_num_threads(threads)
            runs.append(answers(kind, (3, 4, 2, 300, 300, 24), span, mask, torch.float32))
            for queries in (1, 40, 600):
                few = Span.of(1200, queries), Mask(queries, 1200)
                runs[-1] += answers(kind, (1, 2, 1, queries, 1200, 24), *few, torch.float32)
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


def rotation(shape, layout, pairs, rows, sides, gains):
    """Of some of the dims, with angles and gains of numbers that follow from nothing."""
    b, _, _, i, j, _ = shape
    torch.manual_seed(2)
    rows = b if rows else 1
    angles = [torch.randn(rows, 1, t, pairs, dtype=WIDE) * 9 if s in sides else None for t, s in ((i, "q"), (j, "k"))]
    tensors = [torch.rand(rows, 1, t, n, dtype=WIDE) + 0.5 for t, n in ((i, pairs), (j, 1))]
    return Rotation(*angles, *{"tensors": tensors, "numbers": [1.3, 0.7], "none": [None, None]}[gains], layout=layout)


TURNED = {
    "one vector": ((2, 4, 2, 40, 60, 16), 8, False, "qk", "tensors"),
    "rows of their own": ((3, 2, 1, 100, 131, 64), 32, True, "qk", "tensors"),
    "some of the dims": ((2, 2, 2, 40, 40, 48), 9, False, "qk", "numbers"),
    "one pair": ((1, 1, 1, 5, 7, 3), 1, True, "qk", "none"),
    "odd dims, several blocks": ((1, 2, 2, 230, 300, 37), 18, False, "qk", "tensors"),
    "queries alone": ((2, 4, 2, 1, 300, 32), 16, False, "q", "none"),
    "keys alone": ((2, 4, 2, 100, 100, 32), 16, True, "k", "none"),
    "a step": ((1, 8, 8, 1, 700, 64), 32, False, "qk", "none"),
}  # fmt: skip


def turned(backend, name, layout, dtype, mask=None):
    """The output and the gradients of q, k, v and a table."""
    shape, *how = TURNED[name]
    _, _, _, i, j, d = shape
    qkv, weight = inputs(*shape, dtype)
    biased, leaves = forms("table", shape[1], Span.of(j, i))
    modifiers = AttentionModifiers(rotation(shape, layout, *how), biased.terms)
    out = backend.prepare(modifiers, Span.of(j, i), mask or Mask(i, j))(*qkv, scale=d**-0.5)
    return [out, *torch.autograd.grad(out, [*qkv, *leaves], weight.to(dtype))]


@pairwise(
    dtype=[torch.float32, WIDE],
    target=TARGETS,
    name=TURNED,
    layout=["interleaved", "half"],
    how=["causal", "documents", "window", "both ways"],
)
def test_the_kernel_rotates(dtype, target, name, layout, how, monkeypatch):
    """Also through windows and documents, where blocks of keys are passed over."""
    cpu.forced_target = target
    i, j = TURNED[name][0][3:5]
    ids = (torch.arange(j) // 29)[None] if how == "documents" else None
    mask = Mask(i, j, how != "both ways", ids, 17 if how == "window" else None)
    wanted = turned(reference, name, layout, WIDE, mask)
    with monkeypatch.context() as patch:
        patch.delattr(Rotation, "rotate_query")  # nothing else does
        patch.delattr(Rotation, "rotate_key")
        got = turned(fused, name, layout, dtype, mask)
    for a, b in zip(got, wanted, strict=True):
        tolerance = (1e-12 if dtype == WIDE else 1e-5) * max(1.0, b.abs().max().item())
        assert (a.to(WIDE) - b).abs().max().item() <= tolerance


@pytest.mark.parametrize("name", TURNED)
def test_rotations_give_the_same_bits_for_any_number_of_threads(name):
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 1, 2, 5):
            torch.set_num_threads(threads)
            runs.append(turned(fused, name, "interleaved", torch.float32))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_halves_are_rotated_in_float32(dtype, layout):
    """What is rounded is the result alone."""
    shape, *how = TURNED["rows of their own"]
    span, mask = Span.of(131, 100), Mask(100, 131)
    modifiers = AttentionModifiers(rotation=rotation(shape, layout, *how))
    qkv, weight = inputs(*shape, dtype)
    wide = [x.detach().to(WIDE).requires_grad_() for x in qkv]
    results = []
    for backend, leaves in ((fused, qkv), (reference, wide)):
        out = backend.prepare(modifiers, span, mask)(*leaves, scale=0.125)
        results.append([out, *torch.autograd.grad(out, leaves, weight.to(dtype).to(out.dtype))])
    assert [x.dtype for x in results[0]] == [dtype] * 4
    for a, b in zip(*results, strict=True):
        assert (a.to(WIDE) - b).abs().max() <= torch.finfo(dtype).eps * b.abs().max()


def test_angles_that_are_learned_have_gradients():
    angles = [torch.randn(1, h, t, 4, dtype=WIDE).requires_grad_() for h, t in ((2, 9), (1, 12))]
    results = []
    for backend in (fused, reference):
        qkv, weight = inputs(2, 2, 1, 9, 12, 8)
        out = backend.prepare(AttentionModifiers(rotation=Rotation(*angles)), Span.of(12, 9), Mask(9, 12))(
            *qkv, scale=0.3
        )
        results.append([out, *torch.autograd.grad(out, [*qkv, *angles], weight)])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("backend", [fused, reference])
def test_learned_angles_have_gradients_after_a_call_without(backend):
    angle = torch.randn(1, 1, 9, 4, dtype=WIDE).requires_grad_()
    (q, k, v), _ = inputs(1, 1, 1, 9, 9, 8)
    attend = backend.prepare(AttentionModifiers(rotation=Rotation(angle, angle)), Span.of(9), Mask(9, 9))
    with torch.no_grad():
        attend(q, k, v, scale=0.3)
    (first,) = torch.autograd.grad(attend(q, k, v, scale=0.3).square().sum(), angle)
    again = backend.prepare(AttentionModifiers(rotation=Rotation(angle, angle)), Span.of(9), Mask(9, 9))
    (second,) = torch.autograd.grad(again(q, k, v, scale=0.3).square().sum(), angle)
    assert torch.equal(first, second) and first.abs().max() > 1e-6


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 1, 20, 2), (1, 1, 20, 4)),
        ((1, 1, 20, 4), (1, 1, 20, 2)),
        ((6, 1, 20, 4), (1, 1, 20, 4)),
        ((1, 4, 20, 4), (6, 2, 20, 4)),
        ((6, 4, 20, 4), (1, 1, 20, 4)),
    ],
)
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotations_that_differ_by_side_or_head(layout, shapes):
    torch.manual_seed(2)
    modifiers = AttentionModifiers(rotation=Rotation(*(torch.randn(shape) for shape in shapes), layout=layout))
    (q, k, v), _ = inputs(6, 4, 2, 20, 20, 8)
    got, wanted = (b.prepare(modifiers, Span.of(20), Mask(20, 20))(q, k, v, scale=0.3) for b in (fused, reference))
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("what", [math.inf, math.nan, 3e38])
@pytest.mark.parametrize("target", TARGETS)
def test_what_no_longer_fits_once_it_is_rotated_stays_where_it_is(target, what):
    """The last key, which the last query alone sees, and the first query, which has its own row of gradients."""
    cpu.forced_target = target
    i = 130
    modifiers = AttentionModifiers(
        rotation=Rotation(torch.ones(1, 1, i, 8), torch.ones(1, 1, i, 8), 1.0, torch.full((1, 1, i, 1), 2.0))
    )
    plain, weight = inputs(1, 2, 1, i, i, 16, torch.float32)
    results = []
    for changed in (False, True):
        q, k, v = (x.detach().clone() for x in plain)
        if changed:
            k[:, :, -1] = what
        leaves = [x.requires_grad_() for x in (q, k, v)]
        out = fused.prepare(modifiers, Span.of(i), Mask(i, i))(*leaves, scale=0.3)
        grads = torch.autograd.grad(out, leaves, weight.float())
        assert not changed or not out[:, :, -1].isfinite().all()
        results.append([out[:, :, :-1], grads[0][:, :, :-1]])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_gains_beside_rotations():
    rope, t5, span, mask = RoPE(head_dim=16), T5(num_heads=4), Span.of(40), Mask(40, 40)
    (q, k, v), _ = inputs(2, 4, 2, 40, 40, 16)
    gain = QueryGain(1 + torch.rand(2, 1, 40))
    modifiers = AttentionModifiers(rope.modifiers(span).rotation, t5.modifiers(span).terms, gain=gain)
    got, wanted = (b.prepare(modifiers, span, mask)(q, k, v, scale=0.25) for b in (fused, reference))
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_half_precision_is_not_rounded_between_rotation_and_product():
    p = torch.arange(10**6, 10**6 + 30)[None]
    rope, span, mask = RoPE(head_dim=16), Span(p, p, 10**6 + 30), Mask(30, 30)
    (q, k, v), _ = inputs(1, 2, 1, 30, 30, 16, torch.bfloat16)
    got, wanted = (b.prepare(rope.modifiers(span), span, mask)(q, k, v, scale=0.25) for b in (fused, reference))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got, wanted, rtol=2**-8, atol=1e-6)  # the result alone is rounded


@pytest.mark.parametrize("make", [ALiBi, KerpleLog, T5, FIRE])
def test_encodings_as_torch_serves_them(make):
    """In float32 the parameters' gradients are as near to the truth as with torch's own attention."""
    torch.manual_seed(0)
    span, mask, (qkv, weight) = Span.of(200), Mask(200, 200), inputs(2, 4, 4, 200, 200, 32)
    results = {}
    for backend in (reference, sdpa, fused):
        torch.manual_seed(1)
        encoding, dtype = make(num_heads=4), WIDE if backend is reference else torch.float32
        given = [x.detach().to(dtype).requires_grad_() for x in qkv]
        out = backend.prepare(encoding.modifiers(span), span, mask)(*given, scale=0.2)
        parameters = list(encoding.parameters())
        results[backend] = torch.autograd.grad(out, [*given, *parameters], weight.to(dtype))
    for true, torchs, ours in zip(*(results[b] for b in (reference, sdpa, fused)), strict=True):
        off, ours_off = ((x.to(WIDE) - true).abs().max().item() for x in (torchs, ours))
        assert ours_off <= 4 * off + 1e-6 * max(1.0, true.abs().max().item())


@pytest.mark.parametrize("target", TARGETS)
def test_autocast_changes_nothing(target):
    cpu.forced_target = target
    (q, k, v), _ = inputs(1, 2, 1, 30, 30, 16, torch.float32)
    rope, span = RoPE(head_dim=16), Span.of(30)
    attend = fused.prepare(rope.modifiers(span), span, Mask(30, 30))
    with torch.autocast("cpu", torch.bfloat16):
        inside = attend(q, k, v, scale=0.25)
    assert torch.equal(inside, attend(q, k, v, scale=0.25))


def unsupported_reason(modifiers, dtype=torch.float32):
    return fused.unsupported_reason(modifiers, Span.of(3), Mask(3, 3), torch.zeros(1, 1, 3, 4, dtype=dtype))


def test_what_it_refuses():
    table, vector = torch.zeros(1, 3, 4), torch.zeros(1, 4)
    pieces = PiecewiseLinearBias(*(torch.zeros(1, 1),) * 2, torch.zeros(0), torch.zeros(3), torch.zeros(1, 3))
    assert "DenseBias" in str(unsupported_reason(AttentionModifiers(terms=(DenseBias(torch.zeros(1, 1, 3, 3)),))))
    turned = Rotation(torch.zeros(1, 1, 3, 1), torch.zeros(1, 1, 3, 1))
    assert "KeyBias together with a Rotation" in str(
        unsupported_reason(AttentionModifiers(terms=(KeyBias(vector),), rotation=turned))
    )
    assert "LogitTransform" in str(
        unsupported_reason(AttentionModifiers(logit_transform=LogitTransform(lambda x, *_: x)))
    )
    assert unsupported_reason(AttentionModifiers(values=(RelativeValues(table),))) is None
    assert "one PiecewiseLinearBias" in str(unsupported_reason(AttentionModifiers(terms=(pieces, pieces))))
    assert "float8" in str(unsupported_reason(AttentionModifiers(), torch.float8_e4m3fn))
    assert (
        unsupported_reason(
            AttentionModifiers(terms=(pieces, ToeplitzBias(table[0]), RelativeKeyBias(table), KeyBias(vector)))
        )
        is None
    )


def test_there_is_no_second_derivative_and_it_says_so():
    (q, k, v), _ = inputs(1, 1, 1, 3, 3, 4)
    out = fused.prepare(AttentionModifiers(), Span.of(3), Mask(3, 3))(q, k, v, scale=1.0)
    (slope,) = torch.autograd.grad(out.sin().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="backend 'fused' has no second derivative"):
        slope.square().sum().backward()


# ---- as an operator of torch


def _arguments(dtype=torch.float32):
    (q, k, v), _ = inputs(2, 4, 2, 9, 11, 8, dtype)
    span = Span.of(11, 9)
    arguments = fused_backend.arguments_of(forms("table pieces", 4, span)[0], span, Mask(9, 11), q)
    leaves = {name: x.detach() for name, x in arguments._asdict().items() if isinstance(x, torch.Tensor)}
    for name, x in leaves.items():
        x.requires_grad_(TENSORS[name].learned)
    return [q, k, v, *arguments._replace(**leaves, scale=0.3)]


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_opcheck():
    torch.library.opcheck(torch.ops.lengthwise.attention.default, tuple(_arguments(WIDE)))
    positions, documents = torch.arange(11)[None] * 2, torch.zeros(1, 11, dtype=torch.long)
    q, k, v, *_ = _arguments()
    plain = Arguments(position_q=positions[:, 2:].contiguous(), position_k=positions, documents=documents, scale=0.3)
    torch.library.opcheck(torch.ops.lengthwise.attention.default, (q, k, v, *plain))
    rotary = fused_backend.rotary_arguments(
        rotation((2, 4, 2, 9, 11, 8), "half", 3, True, "qk", "tensors"), torch.float32
    )
    torch.library.opcheck(torch.ops.lengthwise.attention.default, (q, k, v, *plain._replace(**rotary)))


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_under_compile():
    """The graph is one piece, and its numbers are those without compilation. (The operator alone: checks of shapes,
    which functions of the package have while testing, break under compilation.)"""

    def model(q, k, v, table):
        return torch.ops.lengthwise.attention(2 * q, k, v, *Arguments(table=table * 2, scale=0.3))[0] * 3

    results = []
    for run in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        (q, k, v), weight = inputs(2, 4, 2, 20, 20, 8, torch.float32)
        table = torch.linspace(0, 1, 80).view(4, 20).requires_grad_()
        out = run(q, k, v, table)
        results.append([out, *torch.autograd.grad(out, [q, k, v, table], weight.float())])
    torch.testing.assert_close(*results)


def test_the_short_way_to_the_kernel_and_the_operator_are_one():
    """Who wants to see operators sees this one; the numbers are the same."""
    arguments = _arguments()
    learned = [x for x in arguments if isinstance(x, torch.Tensor) and x.requires_grad]
    results, seen = [], []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    for watch in (contextlib.nullcontext(), Watch()):
        with watch:
            out = operator.attend(*arguments[:3], Arguments(*arguments[3:]))[0]
            results.append([out, *torch.autograd.grad(out.sum(), learned)])
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert {"lengthwise.attention.default", "lengthwise.attention_backward.default"} <= set(seen)


def test_gradients_that_lie_in_one_piece_may_be_seen_as_complex_numbers():
    """As a rotation of interleaved pairs does, whatever the number of dims."""
    (q, k, v), weight = inputs(1, 1, 1, 1, 1, 3, torch.float32)
    out = operator.attend(q, k, v, Arguments(scale=0.3))[0]
    for x in torch.autograd.grad(out, [q, k, v], weight.float()):
        assert x.storage_offset() % 2 == 0


def test_pieces_behind_knots_at_infinity_change_nothing():
    """A compiled graph has room for more pieces than there are; the kernel is given those that there are."""
    (q, k, v), weight = inputs(2, 4, 2, 40, 40, 8, torch.float32)
    span = Span.of(40)
    arguments = fused_backend.arguments_of(forms("pieces", 4, span)[0], span, Mask(40, 40), q)
    numbers = [getattr(arguments, name).detach() for name in SEGMENTS]
    results = []
    for more in (0, 90):
        slope, intercept, knots, u, w = numbers
        slope, intercept = (F.pad(x, (0, more)) for x in (slope, intercept))
        learned = [x.requires_grad_() for x in (slope, intercept, u, w)]
        knots = F.pad(knots, (0, more), value=math.inf)
        pieces = dict(zip(SEGMENTS, (slope, intercept, knots, u, w), strict=True))
        out, _ = torch.ops.lengthwise.attention(q, k, v, *Arguments(**pieces, scale=0.3))
        results.append([out, *torch.autograd.grad(out, [q, k, v, *learned], weight.float())])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b[tuple(map(slice, a.shape))])
        assert b.numel() == a.numel() or not b[:, a.shape[1] :].any()
