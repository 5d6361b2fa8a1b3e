"""Vectors of distances in fused attention: their products with queries, and their sums over the weights."""

import pytest
import torch

from lengthwise import attend, native
from lengthwise.attention import BACKENDS, Mask, TokenInfo
from lengthwise.attention.fused import cpu, tables
from lengthwise.attention.fused.arguments import SEGMENTS, Arguments
from lengthwise.attention.fused.gpu import query_parts
from lengthwise.encodings import BandedBias, FoX, Shaw, TransformerXL
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    RelativeValues,
)
from lengthwise.positions import consecutive
from lengthwise.span import Span
from tests.attention.agreement import Draw, Sizes, build
from tests.pairwise import pairwise

fused, reference = (BACKENDS[name] for name in ("fused", "reference"))

pytestmark = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no kernel here: {native.unsupported_reason()}"
)

TARGETS = range(native.TARGETS.index(native.best_target()) + 1) if not native.unsupported_reason() else ()
WIDE = torch.float64
KINDS = [(dtype, target) for dtype in (WIDE, torch.float32) for target in (TARGETS if dtype != WIDE else [0])]


@pytest.fixture(autouse=True)
def _the_best_target():
    yield
    cpu.forced_target = -1


def leaf(*shape: int, dtype=WIDE):
    return torch.randn(*shape, dtype=WIDE).to(dtype).requires_grad_()


def require_near(got, wanted, dtype):
    size = max(1.0, *(x.abs().max().item() for x in wanted))
    for n, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert a.shape == b.shape
        off = (a.to(WIDE) - b).abs().max().item()
        assert off <= (1e-12 if dtype == WIDE else 1e-5) * size, f"answer {n} is {off:.1e} off"


# ---- the operator

MASKS = {"causal": (True, 0), "both ways": (False, 0), "a window": (True, 40), "a window both ways": (False, 40)}
PLACES = ["in order", "gaps", "no order", "packed", "in turns"]


def places(how: str, keys: int, queries: int):
    """Positions of queries and keys, and documents, as the operator takes them."""
    torch.manual_seed(3)
    k = documents = None
    if how == "gaps":
        k = torch.randint(0, 4, (2, keys)).cumsum(1)
    elif how == "no order":
        k = torch.randint(0, keys, (1, keys))
    elif how == "packed":
        documents = torch.tensor([[0] * 70 + [1] * (keys - 70)])
        k = consecutive(documents)
    elif how == "in turns":
        documents = (torch.arange(keys) // 5 % 2).expand(2, -1).contiguous()
    return (None if k is None else k[:, keys - queries :].contiguous()), k, documents


@pairwise(how=PLACES, mask=MASKS, kind=KINDS, table=[(1, 0), (5, -2), (33, -16), (100, 60), (300, -149)], heads=[1, 4])
def test_rows(how, mask, kind, table, heads):
    """Against a gather of every pair."""
    (dtype, cpu.forced_target), (causal, window), (queries, keys) = kind, MASKS[mask], (130, 150)
    position_q, position_k, documents = places(how, keys, queries)
    at = torch.arange(keys)[None] if position_k is None else position_k
    distance = at[:, keys - queries :, None] - at[:, None]
    visible = Mask(queries, keys, causal, documents, window or None).visible(torch.device("cpu"))[:, None]
    size, first = table
    given = [leaf(2, *s, dtype=dtype) for s in ((4, queries, 7), (2, keys, 7), (2, keys, 7), (4, queries, 5))]
    given += [leaf(heads, size, dim, dtype=dtype) for dim in (5, 7)]
    weight = torch.randn(2, 4, queries, 7, dtype=WIDE)
    call = Arguments(
        content=given[3], key_vectors=given[4], key_vectors_first=first, value_vectors=given[5],
        value_vectors_first=first + 1, position_q=position_q, position_k=position_k, documents=documents, causal=causal,
        window=window, scale=0.3,
    )  # fmt: skip
    out, _ = torch.ops.lengthwise.attention(*given[:3], *call)
    got = [out, *torch.autograd.grad(out, given, weight.to(dtype))]
    wide = [x.detach().to(WIDE).requires_grad_() for x in given]
    q, k, v = wide[0], *(x.repeat_interleave(2, 1) for x in wide[1:3])
    column, value_column = ((distance - n).clamp(0, size - 1)[:, None].expand(2, 4, -1, -1) for n in (first, first + 1))
    logits = q @ k.mT * 0.3 + (wide[3] @ wide[4].mT).gather(-1, column)
    weights = logits.masked_fill(~visible, -torch.inf).softmax(-1)
    out = weights @ v + torch.zeros(2, 4, queries, size, dtype=WIDE).scatter_add(-1, value_column, weights) @ wide[5]
    require_near(got, [out, *torch.autograd.grad(out, wide, weight)], dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("queries", [1, 2, 3, 50])
def test_rows_where_keys_are_shared_out(queries, target):
    cpu.forced_target, keys = target, 1200
    q, k, v = (leaf(1, h, t, 8, dtype=torch.float32) for h, t in ((2, queries), (1, keys), (1, keys)))
    content, vectors, values = (leaf(*s, dtype=torch.float32) for s in ((1, 2, queries, 3), (2, 700, 3), (1, 700, 8)))
    call = Arguments(
        content=content, key_vectors=vectors, key_vectors_first=100, value_vectors=values, value_vectors_first=100,
        scale=0.3,
    )  # fmt: skip
    out, _ = torch.ops.lengthwise.attention(q, k, v, *call)
    column = (torch.arange(keys)[keys - queries :, None] - torch.arange(keys) - 100).clamp(0, 699)
    products = content.to(WIDE) @ vectors.to(WIDE).mT
    logits = q.to(WIDE) @ k.to(WIDE).mT * 0.3 + products.gather(-1, column.expand(1, 2, -1, -1))
    visible = Mask(queries, keys).visible(torch.device("cpu"))
    weights = logits.masked_fill(~visible, -torch.inf).softmax(-1)
    wanted = weights @ v.to(WIDE) + torch.einsum("bhij,ijd->bhid", weights, values.to(WIDE)[0][column])
    require_near([out], [wanted], torch.float32)


def test_the_number_of_threads_changes_no_bit():
    given = [leaf(2, *shape, dtype=torch.float32) for shape in ((4, 400, 16), (2, 400, 16), (2, 400, 16))]
    vectors, values = leaf(1, 400, 16, dtype=torch.float32), leaf(1, 50, 16, dtype=torch.float32)
    call = Arguments(content=given[0], key_vectors=vectors, value_vectors=values, value_vectors_first=-9, scale=0.3)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out, _ = torch.ops.lengthwise.attention(*given, *call)
            results.append([out, *torch.autograd.grad(out.sin().sum(), [*given, vectors, values])])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


# ---- forms


def forms(words, dim, span, batch=1):
    """The modifiers and what in them has gradients, for two heads."""
    draw = Draw(Sizes(span.q.shape[1], span.k.shape[1], batch, 2, 2, dim), span)
    return build(words, draw), draw.leaves


def test_the_parts_are_several_and_of_what_a_query_may_see():
    q = torch.zeros(1, 2, 300, 4)

    def chunks(causal, window=0, position_k=None):
        call = Arguments(
            content=q, key_vectors=torch.zeros(1, 400, 4), key_vectors_first=-50, position_q=position_k,
            position_k=position_k, causal=causal, window=window,
        )  # fmt: skip
        return [(c.queries, c.keys.stop, c.columns, c.first) for c in query_parts.query_chunks(q, 300, call)]

    queries = [slice(0, 96), slice(96, 192), slice(192, 288), slice(288, 300)]
    ends = [96, 192, 288, 300]
    assert chunks(True) == [(q, e, slice(50, 50 + e), 0) for q, e in zip(queries, ends, strict=True)]
    assert [c[2] for c in chunks(True, 20)] == [slice(50, 70)] * 4
    lows = [0, 0, 0, 39]  # the farthest keys ahead of the last queries are 11 away
    assert [c[1:] for c in chunks(False)] == [(300, slice(n, 50 + e), n - 50) for n, e in zip(lows, ends, strict=True)]
    assert [c[1:] for c in chunks(True, 20, torch.zeros(1, 300).long())] == [(e, slice(0, 400), -50) for e in ends]


class OnGPU(torch.Tensor):
    """A tensor that says so."""

    is_cuda = True


def test_a_window_to_both_sides_of_many_queries_is_refused_on_a_gpu():
    span, mask, q = Span.of(300), Mask(300, 300, False, window=9), torch.zeros(1, 1, 300, 8)
    long, short = RelativeKeyBias(torch.zeros(1, 600, 8), -300), RelativeKeyBias(torch.zeros(1, 9, 8), -4)
    assert fused.unsupported_reason(AttentionModifiers(terms=(long,)), span, mask, q) is None
    on_gpu = q.as_subclass(OnGPU)
    assert "600 distances" in str(fused.unsupported_reason(AttentionModifiers(terms=(long,)), span, mask, on_gpu))
    assert "600 distances" not in str(
        fused.unsupported_reason(AttentionModifiers(terms=(long,)), span, Mask(300, 300, window=9), on_gpu)
    )
    assert "distances" not in str(fused.unsupported_reason(AttentionModifiers(terms=(short,)), span, mask, on_gpu))
    values = RelativeValues(long.table, -300)
    for terms in ((), (short,)):
        modifiers = AttentionModifiers(terms=terms, values=(values,))
        assert fused.unsupported_reason(modifiers, span, mask, q) is None
        assert "600 distances" in str(fused.unsupported_reason(modifiers, span, mask, on_gpu))


def test_gradients_of_distance_features_without_a_derivative_are_refused_on_a_gpu():
    span, mask, q = Span.of(9), Mask(9, 9), torch.zeros(1, 1, 9, 8)
    lines, knots, scale = torch.zeros(1, 2, dtype=WIDE), torch.zeros(1, dtype=WIDE), torch.ones(1, 9, dtype=WIDE)
    for feature in (leaf(9), torch.zeros(9, dtype=WIDE)):
        for derivative in (None, torch.zeros(9, dtype=WIDE)):
            parameter = None if derivative is None else leaf(1)
            term = PiecewiseLinearBias(
                lines, lines, knots, feature, scale, feature_parameter=parameter, feature_derivative=derivative
            )
            modifiers = AttentionModifiers(terms=(term,))
            refused = "needs feature_derivative" in str(
                fused.unsupported_reason(modifiers, span, mask, q.as_subclass(OnGPU))
            )
            assert refused == (feature.requires_grad and derivative is None)
            assert fused.unsupported_reason(modifiers, span, mask, q) is None


def test_vectors_of_keys_and_values_far_apart_are_refused_on_a_gpu():
    """There they have the same distances."""
    terms, values = (RelativeKeyBias(torch.zeros(1, 9, 8), -4),), (RelativeValues(torch.zeros(1, 9, 8), 3000),)
    modifiers, q = AttentionModifiers(terms=terms, values=values), torch.zeros(1, 1, 30, 8)
    assert fused.unsupported_reason(modifiers, Span.of(30), Mask(30, 30), q) is None
    reason = fused.unsupported_reason(modifiers, Span.of(30), Mask(30, 30), q.as_subclass(OnGPU))
    assert reason == "tables of 18 distances lie so far apart that one over all of them would have 3,013"


def test_vectors_of_keys_and_values_are_extended_to_the_same_distances():
    keys, values = torch.randn(1, 3, 2), torch.randn(2, 4, 5)
    (found, first), (found_values, values_first) = tables.vectors_over_same_distances((keys, -1), (values, 0))
    assert first == values_first == -1
    assert torch.equal(found, keys[:, [0, 1, 2, 2, 2]])
    assert torch.equal(found_values, values[:, [0, 0, 1, 2, 3]])
    (found, first), (found_values, values_first) = tables.vectors_over_same_distances((None, 0), (values, -2))
    assert found.shape == (1, 4, 0)
    assert torch.equal(found_values, values)
    assert first == values_first == -2


def test_nothing_as_large_as_all_pairs_is_kept():
    """Rows of all queries would be 600 numbers each; q has 4."""
    span, mask = Span.of(600), Mask(600, 600)
    modifiers, leaves = forms("all key", 4, span)
    q = leaf(1, 2, 600, 4)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        out = fused.prepare(modifiers, span, mask)(q, q, q, scale=0.5)
    torch.autograd.grad(out.sum(), leaves)
    assert max(kept) <= 600 * 2 * 4


@pytest.mark.parametrize(("dtype", "close"), [(torch.bfloat16, 1e-2), (torch.float16, 2e-3)])
def test_half_precision(dtype, close):
    span, mask = Span.of(200), Mask(200, 200)
    modifiers, leaves = forms("shaw key", 8, span)
    q, k, v = (leaf(1, 2, 200, 8, dtype=dtype) for _ in range(3))
    out = fused.prepare(modifiers, span, mask)(q, k, v, scale=0.3)
    wide = [x.detach().to(WIDE).requires_grad_() for x in (q, k, v)]
    wanted = reference.prepare(modifiers, span, mask)(*wide, scale=0.3)
    assert out.dtype == dtype
    got = [out, *torch.autograd.grad(out, [q, k, v, *leaves], torch.ones_like(out), retain_graph=True)]
    for a, b in zip(got, [wanted, *torch.autograd.grad(wanted.sum(), [*wide, *leaves])], strict=True):
        assert (a.to(WIDE) - b).abs().max() <= close * max(b.abs().max().item(), 1)


def test_what_is_not_finite_stays_with_its_query():
    span, mask = Span.of(140), Mask(140, 140)
    answers = []
    for value in (0.5, torch.nan, torch.inf):
        torch.manual_seed(4)
        q, k, v, content = (leaf(1, 1, 140, 8) for _ in range(4))
        with torch.no_grad():
            content[:, :, 70] = value
        modifiers = AttentionModifiers(terms=(ContentBias(content, leaf(1, 20, 8).detach(), -3),))
        out = fused.prepare(modifiers, span, mask)(q, k, v, scale=0.3)
        dq, dcontent = torch.autograd.grad(out.sin().sum(), (q, content))
        answers.append(torch.stack([out.detach(), dq, dcontent]))
    for other in answers[1:]:
        assert torch.equal(other[..., :70, :], answers[0][..., :70, :])
        assert torch.equal(other[..., 71:, :], answers[0][..., 71:, :])
        assert other[0, 0, 0, 70].isnan().all()


def test_autocast_changes_nothing():
    span, mask = Span.of(30), Mask(30, 30)
    modifiers, leaves = forms("shaw content key", 8, span)
    q = leaf(1, 2, 30, 8, dtype=torch.float32)
    results = []
    for on in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            out = fused.prepare(modifiers, span, mask)(q, q, q, scale=0.3)
        results.append([out, *torch.autograd.grad(out.sum(), [q, *leaves])])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    "make", [
        lambda: Shaw(head_dim=8, clip=4), lambda: FoX(num_heads=4, d_model=32),
        lambda: Shaw(head_dim=8, clip=4, values=False), lambda: TransformerXL(num_heads=4, head_dim=8, d_model=32),
        lambda: TransformerXL(num_heads=4, head_dim=8, d_model=32, bidirectional=True),
        lambda: BandedBias(num_heads=4, d_model=32), lambda: BandedBias(num_heads=4, d_model=32, band=20),
    ], ids=["Shaw", "FoX", "Shaw without values", "Transformer-XL", "both ways", "banded", "a narrow band"],
)  # fmt: skip
@pytest.mark.parametrize("queries", [150, 1, 40])
def test_encodings(make, queries):
    """`auto` takes fused, and its answers are the reference's."""
    torch.manual_seed(5)
    encoding = make().double()
    q, k, v, x = leaf(2, 4, queries, 8), leaf(2, 2, 150, 8), leaf(2, 2, 150, 8), leaf(2, 150, 32)
    given = [x] if encoding.reads_content() else []
    leaves = [q, k, v, *given, *encoding.parameters()]
    answers = []
    for backend in ("fused", "reference", "auto"):
        out = attend(q, k, v, encoding, tokens=TokenInfo(x=x), backend=backend)
        answers.append([out, *torch.autograd.grad(out.sin().sum(), leaves)])
    require_near(*answers[:2], WIDE)
    assert all(torch.equal(a, b) for a, b in zip(answers[0], answers[2], strict=True))


# ---- as an operator of torch


def _arguments(**others):
    torch.manual_seed(6)
    q, k, v = leaf(2, 4, 9, 8), leaf(2, 2, 11, 8), leaf(2, 2, 11, 8)
    vectors = {"content": leaf(2, 4, 9, 3), "key_vectors": leaf(1, 7, 3), "key_vectors_first": -2}
    return (q, k, v, *Arguments(**vectors, **others, scale=0.3))


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_opcheck():
    knots, feature = torch.tensor([0.2, 0.4], dtype=WIDE), torch.linspace(0, 1, 11, dtype=WIDE)
    segments = dict(zip(SEGMENTS, (leaf(4, 3), leaf(4, 3), knots, feature, leaf(1, 9)), strict=True))
    torch.library.opcheck(torch.ops.lengthwise.attention.default, _arguments(table=leaf(4, 11), **segments))
    torch.library.opcheck(torch.ops.lengthwise.attention.default, _arguments(window=5))


@pytest.mark.filterwarnings("ignore")
def test_lengths_share_one_graph():
    """In several parts, and of any length."""
    graphs = []

    def count(graph, _inputs):
        graphs.append(graph)
        return graph

    def model(q, vectors):
        call = Arguments(content=q * 2, key_vectors=vectors, scale=0.3)
        return torch.ops.lengthwise.attention(q, q, q, *call)[0] * 3

    compiled = torch.compile(model, backend=count, fullgraph=True, dynamic=True)
    for length in (150, 97, 400):
        q, vectors = torch.randn(1, 2, length, 4), torch.randn(2, length, 4)
        torch.testing.assert_close(compiled(q, vectors), model(q, vectors))
    assert len(graphs) == 1
