"""Statistics of attention against the whole matrix of weights: every form, every mask, over the borders of blocks."""

import inspect
import itertools
import math
import subprocess
import sys

import pytest
import torch

from lengthwise import attention, encodings, native
from lengthwise.attention import BACKENDS, Bins, Mask, TokenInfo, measure, statistics
from lengthwise.attention.backends import reference
from lengthwise.attention.fused import cpu
from lengthwise.attention.statistics import doubling, visible_keys
from lengthwise.config import ConfigError
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
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
from tests.pairwise import pairwise
from tests.unchecked import with_fields

B, H, G, D = 2, 4, 2, 6
EDGES = (-9, -1, 0, 1, 2, 5, 11, 40)


def new(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def pieces(span, heads=H):
    """Continuous, as FIRE is, or else float32 would be far off at a knot."""
    knots = torch.tensor([0.2, 0.4], dtype=torch.float64)
    slope = new(heads, 3)
    steps = (slope[:, :-1] - slope[:, 1:]) * knots
    u = torch.log1p(torch.arange(max(span.distance_bound, 1), dtype=torch.float64))
    w = 0.2 / (1 + torch.rand(*span.q.shape, dtype=torch.float64).cumsum(1))
    return PiecewiseLinearBias(slope, torch.cat([new(heads, 1), steps], 1).cumsum(1), knots, u, w)


def rewritten(span):
    def function(logits, q, visible, scale, some):
        shares = logits.masked_fill(~visible, -math.inf).softmax(-1)
        near = (-0.1 * some.distance().abs().to(q.dtype)).exp()[:, None]
        return logits + shares.cumsum(-1) + near * q.square().mean(-1, keepdim=True) * scale

    gain = QueryGain(new(1, H, span.q.shape[1]), bidirectional=True)
    return AttentionModifiers(
        terms=(ToeplitzBias(new(H, 6), -2),), logit_transform=LogitTransform(function, bidirectional=True), gain=gain
    )


def turned(span):
    (rows, i), j = span.q.shape, span.k.shape[1]
    turn = Rotation(new(rows, H, i, 2), new(rows, 1, j, 2), 1.3, torch.rand(rows, 1, j, 1).double() + 0.5)
    gain = QueryGain(new(B, 1, span.q.shape[1]), bidirectional=True)
    return AttentionModifiers(
        rotation=turn, gain=gain, terms=(ToeplitzBias(new(1, 9), -4),), values=(RelativeValues(new(1, 5, D)),)
    )


def of_term(make):
    return lambda span: AttentionModifiers(terms=(make(span),))


CASES = {
    "nothing": lambda span: AttentionModifiers(),
    "toeplitz": of_term(lambda span: ToeplitzBias(3 * new(H, 5), -2)),
    "pieces": of_term(pieces),
    "pieces and tables": lambda span: AttentionModifiers(
        terms=(pieces(span, 1), ToeplitzBias(new(H, 8)), ToeplitzBias(new(1, 60), -9))
    ),
    "dense": of_term(lambda span: DenseBias(new(B, H, span.q.shape[1], span.k.shape[1]), bidirectional=True)),
    "dense of keys": of_term(lambda span: DenseBias(new(1, H, 1, span.k.shape[1]), bidirectional=True)),
    "cumulative": of_term(lambda span: CumulativeBias(new(B, H, span.k.shape[1]))),
    "query relative": of_term(lambda span: RelativeKeyBias(new(1, 7, D), -3, new(H, D))),
    "content relative": of_term(lambda span: ContentBias(new(B, H, span.q.shape[1], 3), new(H, 7, 3), -3)),
    "key global": of_term(lambda span: KeyBias(new(H, D))),
    "turned": turned,
    "rewritten": rewritten,
    "several": lambda span: AttentionModifiers(
        terms=(
            RelativeKeyBias(new(H, 90, D), -9),
            KeyBias(new(H, D)),
            DenseBias(new(B, 1, span.q.shape[1], 1)),
            pieces(span),
            pieces(span, 1),
        )
    ),
}  # fmt: skip


def scenes(keys, queries):
    """Spans and masks: consecutive, scattered and restarting positions; documents that lie together or not."""
    own = keys - queries
    scattered = torch.randint(0, keys + 4, (B, keys))
    mixed = torch.stack([torch.arange(keys) // 4, torch.randint(0, 2, (keys,))])
    restart = (torch.arange(keys) % 4)[None]
    plain, some = Span.of(keys, queries), Span(scattered[:, own:], scattered, keys + 4)
    for causal, window in itertools.product((True, False), (None, 1, 3, 100)):
        yield plain, Mask(queries, keys, causal, window=window)
        yield some, Mask(queries, keys, causal, mixed, window)
    yield Span(restart[:, own:], restart, 4), Mask(queries, keys, True, mixed[:1])
    yield plain, Mask(queries, keys, True, mixed)


def from_the_matrix(modifiers, span, mask, q, k, scale, edges, first, last, queries=None):
    """Histogram, entropy, most entropy, first and last, the definitions as they are written."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    visible = mask.visible(q.device)[:, None].expand(len(q), 1, -1, -1)
    weights = reference.logits(modifiers, q, k, span, visible, scale).masked_fill(~visible, -math.inf).softmax(-1)
    distance = span.distance().expand(len(q), -1, -1)[:, None]
    ends = [-math.inf, *edges, math.inf]
    mass = [(weights * ((low <= distance) & (distance < high))).sum(-1) for low, high in itertools.pairwise(ends)]
    documents = torch.zeros(1, mask.keys) if mask.documents is None else mask.documents
    near, far = torch.zeros(2, len(q), 1, mask.queries, mask.keys)
    for b, i in itertools.product(range(len(q)), range(mask.queries)):
        own, ids = mask.keys - mask.queries + i, documents[b % len(documents)].tolist()
        same = [j for j in range(mask.keys) if ids[j] == ids[own]]
        far[b, 0, i, same[:first]] = 1
        near[b, 0, i, [j for j in same if j <= own][-last:]] = 1
    each = [
        torch.stack(mass, -1),
        -(weights * weights.clamp(min=1e-300).log()).sum(-1),
        visible.sum(-1).double().log(),
        (weights * far).sum(-1),
        (weights * near).sum(-1),
    ]
    asked = torch.ones(len(q), mask.queries).double() if queries is None else queries.expand(len(q), -1).double()
    shares = asked / asked.sum(-1, keepdim=True)
    return [(x * shares[:, None, :, None]).sum(2) if x.ndim == 4 else (x * shares[:, None]).sum(-1) for x in each]


def require_equal(got, wanted, tolerance=1e-12):
    found = (got.histogram, got.entropy, got.most_entropy.expand(len(got.entropy), 1), got.first, got.last)
    for name, a, b in zip(("histogram", "entropy", "most_entropy", "first", "last"), found, wanted, strict=True):
        assert a.shape == b.shape, name
        assert a.dtype == torch.float64
        assert (a - b).abs().max().item() <= tolerance, name
    assert (got.histogram.sum(-1) - 1).abs().max() <= tolerance
    torch.testing.assert_close(got.query_entropy.mean(-1).double(), got.entropy, atol=tolerance, rtol=tolerance)


TARGETS = range(native.TARGETS.index(native.best_target()) + 1) if not native.unsupported_reason() else ()
with_kernel = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no kernel here: {native.unsupported_reason()}"
)


BLOCKS = {"one block": 1 << 18, "blocks of some queries": 600, "blocks of one query": 1}
SIZES = [(1, 1), (21, 21), (23, 6), (9, 1)]
SCENES = 18


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(BACKENDS["reference"], "statistics", None)
    yield
    cpu.forced_target = -1


@pairwise(name=CASES, scene=range(SCENES), size=SIZES, block=BLOCKS)
def test_every_form_and_mask(name, scene, size, block, monkeypatch):
    monkeypatch.setitem(reference.BLOCK_LOGITS, "cpu", BLOCKS[block])
    monkeypatch.setattr(
        BACKENDS["fused"], "statistics_unsupported_reason", lambda *_: "the tests ask for the other way"
    )
    keys, queries = size
    torch.manual_seed(keys)
    span, mask = list(scenes(keys, queries))[scene]
    modifiers, q, k = CASES[name](span), new(B, H, queries, D), new(B, G, keys, D)
    got = measure(modifiers, span, mask, q, k, scale=0.4, bins=Bins(edges=EDGES, first=2, last=3))
    require_equal(got, from_the_matrix(modifiers, span, mask, q, k, 0.4, EDGES, 2, 3))
    seen = mask.visible(q.device).sum(-1)
    assert torch.equal(got.query_keys, seen)
    assert torch.equal(visible_keys(mask, q.device), seen)
    assert (got.entropy <= got.most_entropy + 1e-12).all()


def test_all_scenes_are_asked():
    assert len(list(scenes(7, 7))) == SCENES


@with_kernel
@pytest.mark.usefixtures("kernel")
@pairwise(
    name=["nothing", "toeplitz", "pieces", "pieces and tables", "turned", "key global"],
    scene=range(SCENES),
    size=[(1, 1), (21, 21), (140, 50), (150, 1)],
)
def test_the_kernel_on_every_target(name, scene, size):
    keys, queries = size
    torch.manual_seed(keys)
    span, mask = list(scenes(keys, queries))[scene]
    modifiers, q, k = CASES[name](span), new(B, H, queries, D), new(B, G, keys, D)
    wanted = from_the_matrix(modifiers, span, mask, q, k, 0.4, EDGES, 2, 3)
    asked = {"scale": 0.4, "bins": Bins(EDGES, 2, 3)}
    require_equal(measure(modifiers, span, mask, q, k, **asked), wanted)
    for cpu.forced_target in TARGETS:
        require_equal(measure(modifiers, span, mask, q.float(), k.float(), **asked), wanted, 3e-6)


@with_kernel
@pytest.mark.usefixtures("kernel")
def test_the_kernel_over_many_blocks_and_peaks_that_rise():
    """Later keys outweigh all before them by far, and again."""
    torch.manual_seed(0)
    table = -0.2 * torch.arange(900, dtype=torch.float64).expand(H, -1) + new(H, 900)
    for span, mask in [
        (Span.of(900, 700), Mask(700, 900)),
        (Span.of(900, 700), Mask(700, 900, documents=torch.arange(900)[None] // 250)),
        (Span(torch.arange(700)[None] * 2 + 400, torch.arange(900)[None] * 2, 1800), Mask(700, 900, True, None, 300)),
    ]:
        modifiers, q, k = AttentionModifiers(terms=(ToeplitzBias(table),)), 3 * new(1, H, 700, 8), new(1, G, 900, 8)
        wanted = from_the_matrix(modifiers, span, mask, q, k, 1.0, doubling(900, True), 4, 16)
        asked = {"scale": 1.0, "bins": Bins(doubling(900, True))}
        require_equal(measure(modifiers, span, mask, q, k, **asked), wanted)
        require_equal(measure(modifiers, span, mask, q.float(), k.float(), **asked), wanted, 5e-6)


@with_kernel
@pytest.mark.usefixtures("kernel")
def test_the_kernel_finds_the_same_whatever_the_number_of_threads():
    torch.manual_seed(0)
    q, k, fire = torch.randn(1, 2, 1200, 16), torch.randn(1, 1, 1200, 16), encodings.FIRE(num_heads=2)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(statistics(q, k, fire))
    finally:
        torch.set_num_threads(threads)
    for name in ("histogram", "entropy", "first", "last", "query_entropy"):
        assert torch.equal(*(getattr(x, name) for x in found)), name


@pytest.mark.parametrize("served", [pytest.param(True, marks=with_kernel), False])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_stays_with_the_queries_that_meet_it(served, wrong, monkeypatch):
    if not served:
        monkeypatch.setattr(
            BACKENDS["fused"], "statistics_unsupported_reason", lambda *_: "the tests ask for the other way"
        )
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 150, 8), torch.randn(1, 2, 150, 8)
    clean = statistics(q, k).query_entropy
    k[:, :, 140] = wrong
    found = statistics(q, k).query_entropy
    assert torch.equal(found[..., :140], clean[..., :140])
    assert found[..., 140:].isnan().any()


def test_even_weights_have_the_entropy_of_as_many_keys():
    for n in (1, 2, 100):
        q, k = torch.zeros(1, 1, 1, 4), torch.randn(1, 1, n, 4)
        got = statistics(q, k, bins=Bins(first=1, last=1))
        torch.testing.assert_close(got.entropy, torch.full((1, 1), math.log(n), dtype=torch.float64))
        assert torch.equal(got.query_keys, torch.tensor([[n]]))
        torch.testing.assert_close(got.entropy, got.most_entropy)
        torch.testing.assert_close(got.first, torch.full((1, 1), 1 / n, dtype=torch.float64))
        torch.testing.assert_close(got.last, got.first)
    both = statistics(torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4), causal=False)
    assert both.edges == (-1, 0, 1, 2)
    expected = torch.tensor([[[3, 3, 4, 3, 3]]], dtype=torch.float64) / 16  # -3 and -2, -1, 0, 1, 2 and 3
    torch.testing.assert_close(both.histogram, expected)


def test_one_key_with_all_the_weight():
    """Where each head looks 3 back: no entropy, and all mass in one bin."""
    table = torch.full((2, 8), -1e4, dtype=torch.float64)
    table[:, 3] = 0
    q = torch.zeros(1, 2, 5, 4)
    got = measure(
        AttentionModifiers(terms=(ToeplitzBias(table),)),
        Span.of(9, 5),
        Mask(5, 9),
        q,
        torch.zeros(1, 2, 9, 4),
        scale=1.0,
    )
    assert got.bins == [(None, 0), (1, 1), (2, 3), (4, 7), (8, None)]
    assert got.histogram[0].allclose(torch.tensor([0, 0, 1, 0, 0]).double())
    assert got.entropy.tolist() == [[0, 0]]
    assert got.first.allclose(torch.tensor(3 / 5).double())  # 4 ... 8 look at 1 ... 5; 1, 2, 3 are among the first 4
    assert got.last.allclose(torch.tensor(1).double())


@pytest.mark.parametrize("window", [None, 4])
def test_a_call_means_what_attend_means(window):
    """Means over one head's values that are 1 for some keys are masses."""
    torch.manual_seed(0)
    q, k = new(B, H, 9, 8), new(B, G, 12, 8)
    documents, fire = (torch.arange(12) // 5)[None], encodings.FIRE(num_heads=H).double()
    v = torch.zeros_like(k)
    v[:, :, ::5, 0] = 1  # the first of each document
    given = {"tokens": TokenInfo(documents=documents), "window": window, "scale": 0.7}
    out = attention.attend(q, k, v, fire, backend="reference", **given)
    got = statistics(q, k, fire, bins=Bins(first=1), **given)
    torch.testing.assert_close(got.first, out[..., 0].mean(-1), atol=1e-12, rtol=0)


def test_encodings_that_depend_on_content_and_positions():
    torch.manual_seed(0)
    x, q, k = new(B, 7, 5), new(B, H, 7, 8), new(B, H, 7, 8)
    fox = encodings.FoX(num_heads=H, d_model=5).double()
    fox.w.data.normal_()
    near, even = statistics(q * 0, k, fox, tokens=TokenInfo(x=x), bins=Bins(last=7)), statistics(q * 0, k)
    assert near.last.allclose(torch.ones_like(near.last))
    assert (near.entropy < even.entropy).all()
    sparse = torch.arange(7)[None] * 10
    assert statistics(q, k, tokens=TokenInfo(positions=sparse)).edges == (1, 2, 4, 8, 16, 32)
    assert statistics(q, k, tokens=TokenInfo(positions=sparse)).histogram[..., 1:4].sum() == 0


def test_means_over_some_queries():
    torch.manual_seed(0)
    span, mask = Span.of(11, 8), Mask(8, 11, documents=torch.tensor([[-1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0], [0] * 11]))
    q, k, modifiers = new(B, H, 8, D), new(B, G, 11, D), AttentionModifiers(terms=(ToeplitzBias(new(H, 5)),))
    padding_out = mask.documents[:, 3:] >= 0
    for queries in (padding_out, padding_out[:1]):
        got = measure(modifiers, span, mask, q, k, scale=0.4, bins=Bins(edges=EDGES, first=2, last=3), queries=queries)
        wanted = from_the_matrix(modifiers, span, mask, q, k, 0.4, EDGES, 2, 3, queries)
        for a, b in zip((got.histogram, got.entropy, got.first), (wanted[0], wanted[1], wanted[3]), strict=True):
            torch.testing.assert_close(a, b, atol=1e-12, rtol=0)
        torch.testing.assert_close(got.most_entropy.expand(B, 1), wanted[2], atol=1e-12, rtol=0)
        assert got.query_entropy.shape == (B, H, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_is_computed_in_float32_at_least(dtype):
    torch.manual_seed(0)
    q, k = torch.randn(B, H, 200, 16).to(dtype), torch.randn(B, G, 200, 16).to(dtype)
    rope = encodings.RoPE(head_dim=16)
    wanted = statistics(q.double(), k.double(), rope)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = statistics(q, k, rope)
    for name in ("histogram", "entropy", "most_entropy", "first", "last"):
        torch.testing.assert_close(getattr(got, name), getattr(wanted, name), atol=1e-6, rtol=0)


def test_edges_that_double():
    assert [doubling(reach, True) for reach in (1, 2, 3, 5, 9)] == [(), (1,), (1, 2), (1, 2, 4), (1, 2, 4, 8)]
    assert [doubling(reach, False) for reach in (1, 2, 5)] == [(), (0, 1), (-3, -1, 0, 1, 2, 4)]
    # Every bin of a causal call without gaps has something.
    got = statistics(torch.zeros(1, 1, 33, 4), torch.zeros(1, 1, 33, 4))
    assert (got.histogram > 0).all()
    assert len(got.bins) == got.histogram.shape[-1] == 7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bins": with_fields(Bins(), edges=(1, 4, 4))}, r"strictly ascending order, got \(1, 4, 4\)"),
        ({"bins": with_fields(Bins(), edges=[8, 1])}, r"strictly ascending order, got \(8, 1\)"),
        ({"bins": with_fields(Bins(), edges=(1, 2.5))}, "whole numbers"),
        ({"bins": with_fields(Bins(), edges=(True,))}, "whole numbers"),
        ({"bins": with_fields(Bins(), edges=(1 << 63,))}, "whole numbers"),
        ({"bins": with_fields(Bins(), first=0)}, "first must be a whole number of at least 1, got 0"),
        ({"bins": with_fields(Bins(), last=-1)}, "last must be .* got -1"),
        ({"bins": with_fields(Bins(), last=1.5)}, "last must be .* got 1.5"),
        ({"queries": torch.ones(1, 9)}, r"a bool tensor \[2 or 1, 9\] on cpu, .* got torch.float32 \(1, 9\) on cpu"),
        ({"queries": torch.ones(9, dtype=torch.bool)}, r"a bool tensor \[2 or 1, 9\]"),
        ({"queries": torch.ones(1, 8, dtype=torch.bool)}, r"a bool tensor \[2 or 1, 9\]"),
        ({"queries": torch.ones(3, 9, dtype=torch.bool)}, r"a bool tensor \[2 or 1, 9\]"),
        ({"queries": torch.arange(2)[:, None].expand(2, 9) > 0}, "none in row 0"),
        ({"queries": torch.ones(1, 9, dtype=torch.bool, device="meta")}, "on cpu, .* on meta"),
        (
            {"bins": (1, 4)},
            r"^bins must be a lengthwise.attention.Bins\(edges=..., first=..., last=...\) or None, got a tuple$",
        ),
    ],
)
def test_what_cannot_be_asked(change, words):
    span, mask, q, k = Span.of(9), Mask(9, 9), torch.zeros(2, 4, 9, 8), torch.zeros(2, 2, 9, 8)
    with pytest.raises(ConfigError, match=words) as error:
        inspect.unwrap(measure)(
            AttentionModifiers(), span, mask, q, k, scale=1.0, **change
        )  # past the check of types that tests have
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": encodings.ALiBi(num_heads=4), "causal": False}, "causal"),
        ({"encoding": encodings.ALiBi(num_heads=3)}, "heads"),
        ({"k": torch.zeros(2, 3, 9, 8)}, r"got 4 and 3; .* got q \(2, 4, 9, 8\), k \(2, 3, 9, 8\)"),
        ({"window": 0}, "window"),
        ({"encoding": encodings.FoX(num_heads=4, d_model=8)}, "x is missing"),
        ({"encoding": encodings.Sinusoidal(d_model=8)}, "embed"),
    ],
)
def test_what_cannot_be(change, words):
    """As `attend` has it."""
    given = {"q": torch.zeros(2, 4, 9, 8), "k": torch.zeros(2, 2, 9, 8), "encoding": None, **change}
    with pytest.raises(ConfigError, match=words) as error:
        inspect.unwrap(statistics)(**given)
    assert "\n" not in str(error.value)


def test_nothing_has_a_gradient():
    q, k = (torch.randn(1, 2, 5, 4, requires_grad=True) for _ in range(2))
    got = statistics(q, k, encodings.KerpleLog(num_heads=2))
    assert not any(x.requires_grad for x in vars(got).values() if isinstance(x, torch.Tensor))


LONG = """
import resource, sys, torch
from lengthwise import encodings
from lengthwise.attention import statistics
torch.manual_seed(0)
q, k = torch.randn(2, 1, 1, 16384, 16)
encoding = {}
statistics(q[:, :, :256], k[:, :, :256], encoding)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
got = statistics(q, k, encoding)
used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
assert (got.histogram.sum(-1) - 1).abs().max() < 1e-6 and len(got.bins) == 15
assert used < 16384 * 16384 // 4, used  # a quarter of a byte for each pair
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no resource module on Windows")
@pytest.mark.parametrize("encoding", ["encodings.KerpleLog(num_heads=1)", "encodings.Shaw(head_dim=16)"])
def test_length_16384_in_far_less_memory_than_its_matrix(encoding):
    """The second has a form that the CPU kernel does not serve."""
    ran = subprocess.run([sys.executable, "-c", LONG.format(encoding)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
