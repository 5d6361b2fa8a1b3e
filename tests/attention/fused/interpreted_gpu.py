"""The GPU's kernels in Triton's interpreter, on a CPU. test_gpu.py runs this file in processes of its own, for Triton
decides when it is imported whether it compiles or interprets; by hand:

    TRITON_INTERPRET=1 python -m pytest tests/attention/fused/interpreted_gpu.py
"""

import functools
import importlib.util
import math
import os
import sys
from pathlib import Path

import pytest
import torch

from lengthwise.attention import BACKENDS, Mask
from lengthwise.attention.fused import gpu, operator
from lengthwise.attention.fused.arguments import Arguments
from lengthwise.attention.fused.gpu import Blocks, tiles
from lengthwise.encodings import FIRE
from lengthwise.span import Span
from tests.pairwise import pairwise

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
interpreted, gpu_errors = (importlib.import_module(name) for name in ("interpreted", "gpu_errors"))

_spec = importlib.util.spec_from_file_location("gpu_cases", Path(__file__).parent / "gpu_cases.py")
assert _spec and _spec.loader
cases = sys.modules["gpu_cases"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)
Case, require_equal, WIDE = cases.Case, cases.require_equal, cases.WIDE

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for log2(0) and the like

interpreted.ready_once()
interpreted.as_on_a_gpu()

SMALL = (Blocks(16, 8, 4, 1), Blocks(8, 16, 4, 1), Blocks(16, 8, 4, 1), Blocks(8, 8, 4, 1))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """So that short sequences have tiles of every kind."""
    monkeypatch.setattr(gpu, "blocks", lambda dtype, wide, pieces: SMALL)


@pytest.fixture(autouse=True)
def _overflow_checks(request):
    interpreted.check_overflow(request.node.get_closest_marker("slow") is not None)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


KINDS = ["none", "sink", "table sink", "table", "one", "pieces short", "many", "crooked pieces", "wide rows shared"]


# The others are quick with every mask.
@pytest.mark.parametrize("kind", [*KINDS, slow("short"), slow("pieces"), slow("rows")])
def test_form(kind):
    require_equal(Case(kind, heads=(2, 1)))


@pytest.mark.parametrize(
    "case", [
        Case("prefix", batch=2, heads=(4, 2)), Case("prefix shared", batch=2, heads=(2, 1), queries=16, keys=20),
        Case("prefix table pieces sink"), slow(Case("prefix short sink", heads=(2, 1))), slow(Case("prefix rows")),
        Case("prefix", window=12), slow(Case("prefix", causal=False)), slow(Case("prefix", causal=False, window=13)),
        Case("prefix short", batch=2, documents=[[0] * 17 + [1] * 18, [-1] * 9 + [0] * 26]),
        Case("prefix", documents=[[n % 2 for n in range(35)]]), Case("prefix", queries=3, keys=70),
        slow(Case("prefix short sink", queries=1, keys=70, window=40)), slow(Case("prefix", dtype=torch.bfloat16)),
    ], ids=lambda case: case.kind,
)  # fmt: skip
def test_prefix_sums(case):
    require_equal(case, 3e-2 if case.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize(
    "case", [
        Case("line", heads=(2, 1)), Case("bent", heads=(2, 1)), Case("line shared", batch=2, heads=(2, 1), queries=20),
        Case("line", causal=False), slow(Case("line sink", causal=False, window=13)), Case("line prefix", window=12),
        slow(Case("line", documents=[[0] * 17 + [1] * 18])), slow(Case("line", queries=3, keys=70)),
        slow(Case("line", positions=torch.arange(35)[None] * 2)),
    ], ids=lambda case: case.kind,
)  # fmt: skip
def test_straight_tables(case):
    """A table that is a straight line is not read in most tiles; one entry beside the line is not overlooked."""
    require_equal(case)
    steps = tiles.steps(case.bias()["table"], case.bias()["table_first"], case.heads[0])
    straight = [[not case.causal, True]] * (case.heads[0] - 1) + [[not case.causal, "bent" not in case.kind]]
    assert steps.isfinite().tolist() == straight


@pytest.mark.parametrize(
    "case", [
        Case("short"), Case("short shared sink", heads=(2, 1)), Case("short", queries=8, keys=70, window=13),
        slow(Case("short sink", batch=2, causal=False)), Case("short", queries=8, keys=70, window=5),
        slow(Case("short", batch=2, documents=[[0] * 17 + [1] * 18, [-1] * 9 + [0] * 26])),
    ], ids=lambda case: f"{case.kind}, {case.window}",
)  # fmt: skip
def test_the_last_gradient_is_what_the_others_leave(case):
    """With the gradients of sinks, those of a table sum to 0. An entry without a pair has a gradient of exactly 0."""
    require_equal(case)
    gradients = dict(zip(case.names, case.ours(), strict=True))
    total = gradients["dtable"].double().sum() + gradients.get("dsink", torch.zeros(1)).double().sum()
    assert total.abs() < 1e-5 * gradients["dtable"].abs().max()
    assert (gradients["dtable"][:, -1] == 0).all() == (case.window == 5)


DOCUMENTS_OF_VALUES = {"batch": 2, "documents": [[0] * 17 + [1] * 18, [-1] * 9 + [0] * 26]}


@pytest.mark.parametrize(
    "case", [
        Case("rows values", heads=(2, 1)), slow(Case("wide rows values", batch=2, heads=(4, 2), queries=16, keys=20)),
        slow(Case("rows values shared", batch=2, heads=(4, 2), queries=16, keys=20)),
        slow(Case("short rows values sink")),
        slow(Case("later rows values", queries=20, keys=60)),
        slow(Case("prefix pieces rows values")), slow(Case("many rows values")),
        slow(Case("rows values", window=12)), slow(Case("rows values", window=1)),
        slow(Case("rows values", causal=False)), slow(Case("rows values", causal=False, window=13)),
        slow(Case("rows values", **DOCUMENTS_OF_VALUES)),
        slow(Case("rows values", documents=[[n % 2 for n in range(35)]])),
        slow(Case("short rows values", positions=torch.arange(35)[None] * 3 % 40)),
        Case("rows values", queries=3, keys=70),
        slow(Case("rows values", queries=1, keys=70, positions=torch.arange(70)[None] // 2)),
        slow(Case("short rows values sink", queries=1, keys=70, window=40)),
        slow(Case("rows values", queries=1, keys=1)), slow(Case("rows values", dtype=torch.bfloat16)),
        slow(Case("rows values", dtype=torch.float16, dim=5)), slow(Case("rows values", scale=1e-30)),
    ], ids=lambda case: case.kind,
)  # fmt: skip
def test_value_vectors(case):
    require_equal(case, {torch.bfloat16: 3e-2, torch.float16: 4e-3}.get(case.dtype, 1e-5))


@pytest.mark.parametrize("kind", ["prefix", slow("prefix sink"), slow("prefix table")])
def test_gradients_of_gates_are_exact(kind):
    """A gate's gradient adds up those of the sums from its token on, which mostly cancel. With values around 16,
    rounding errors of delta are large."""
    case = Case(kind, queries=96, keys=96, edit=lambda q, k, v, grad: v.add_(16))
    ours, expected = case.ours(), case.right()
    found, right = (x[case.names.index("dprefix_sum")].to(WIDE) for x in (ours, expected))
    # The very same number of each pair is added at its query and subtracted at its key.
    assert found.sum().abs() < 1e-10 * right.abs().max()
    found, right = (x.flip(-1).cumsum(-1) for x in (found, right))
    assert (found - right).norm() <= 4e-6 * right.norm()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_sums_of_hidden_keys_do_not_matter(bad):
    """Tokens 3 to 12, the end of the first document, have bad sums."""
    results = []
    for value in (bad, 0.5):
        case = Case("prefix", queries=30, keys=30, documents=[[0] * 13 + [1] * 17])
        bias = case.bias()
        bias["prefix_sum"][..., 3:13] = value
        case.bias = lambda bias=bias: bias
        results.append([x if x.dim() == 4 else x[..., None] for x in case.ours()])
    for name, spoiled, plain in zip(case.names, *results, strict=True):
        assert torch.equal(spoiled[:, :, 13:], plain[:, :, 13:]), name


def test_form_sums_with_one_head_for_all():
    require_equal(Case("many short rows shared", batch=2, heads=(4, 2), queries=16, keys=20))


@pytest.mark.parametrize(
    "case", [
        Case("fixed pieces"), slow(Case("fixed many", queries=16, keys=20)),
        Case("pieces sink", batch=2, heads=(4, 2), queries=20, keys=24), slow(Case("pieces shared", heads=(2, 1))),
        slow(Case("many shared sink", batch=2, heads=(2, 1), window=9)), slow(Case("pieces sink", window=9)),
        slow(Case("pieces", batch=2, heads=(2, 2), queries=64, keys=64, dim=64, dtype=torch.bfloat16)),
        slow(Case("many", batch=2, documents=[[0] * 17 + [1] * 18, [-1] * 9 + [0] * 26])),
        slow(Case("pieces sink", heads=(2, 1), positions=torch.arange(35)[None] * 3 % 40)),
    ], ids=lambda case: case.kind,
)  # fmt: skip
def test_sums_by_segment(case):
    """The gradients of segments, and of the parameter of the distance feature, if there is one."""
    require_equal(case, 3e-2 if case.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("kind", ["pieces", slow("many"), slow("pieces table")])
def test_sums_are_the_same_at_every_call(kind):
    case = Case(kind, batch=2, heads=(2, 1))
    for x, y in zip(case.ours(), case.ours(), strict=True):
        assert torch.equal(x, y)


@pytest.mark.filterwarnings("ignore")
def test_opcheck(monkeypatch):
    """In graphs too, there is a gradient of the parameter of the distance feature."""
    monkeypatch.setattr(operator, "on_gpu", lambda q: True)
    case = Case("pieces", queries=4, keys=5)
    q, k, v, _ = case.tensors()
    bias = case.bias()
    for name in set(cases.COMPUTED) & set(bias):
        bias[name].requires_grad_()
    torch.library.opcheck(torch.ops.lengthwise.attention.default, (q.requires_grad_(), k, v, *Arguments(**bias)))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        slow({"transform": "identity"}),
        slow({"threshold": False}),
        slow({"hidden_layers": 1, "final_activation": True}),
    ],
)
@pytest.mark.parametrize("positions", [slow("consecutive"), "gaps"])
def test_every_parameter_of_fire(settings, positions):
    torch.manual_seed(4)
    fire = FIRE(num_heads=2, L=20.0, **settings)
    span = Span.of(48)
    if positions == "gaps":
        p = torch.randint(1, 3, (1, 48)).cumsum(1)
        span = Span(p, p, int(p.max()) + 1)
    q, k, v, grad = (torch.randn(1, 2, 48, 64) for _ in range(4))
    results = []
    for backend, dtype in (("fused", torch.float32), ("reference", WIDE)):
        with interpreted.in_place_of_the_cpu():
            attend = BACKENDS[backend].prepare(fire.modifiers(span), span, Mask(48, 48))
            out = attend(*(x.to(dtype) for x in (q, k, v)), scale=0.125)
            results.append(torch.autograd.grad(out, list(fire.parameters()), grad.to(dtype)))
    largest = max(x.abs().max() for x in results[1])
    for (name, _), x, y in zip(fire.named_parameters(), *results, strict=True):
        assert (x - y).abs().max() <= 1e-5 * largest, name


@pytest.mark.parametrize("dim", [slow(1), 5, slow(64), 130])
def test_form_with_every_head_dim(dim):
    require_equal(Case("pieces table", queries=16, keys=19, dim=dim))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 50), slow(3, 17), slow(16, 16), (39, 39)])
def test_form_with_any_lengths(queries, keys):
    require_equal(Case("short", queries=queries, keys=keys))
    require_equal(Case("none", queries=queries, keys=keys))


# Documents that are whole blocks, and that are not; padding on the left; ids that come again.
DOCUMENTS = {
    "packed": [[0] * 17 + [1] * 15 + [2] * 3, [5] * 6 + [4] * 29],
    "padded": [[-1] * 9 + [0] * 26],
    "in turns": [[n % 2 for n in range(35)]],
}


def _restarting(documents):
    rows = []
    for row in documents:
        seen = {}
        rows.append([seen.setdefault(d, []).append(0) or len(seen[d]) - 1 for d in row])
    return rows


MASKS = {
    "causal": (True, None), "a window": (True, 12), "both ways": (False, None), "a window both ways": (False, 13),
}  # fmt: skip


@pairwise(
    kind=["none", "table", "short", "pieces", "rows"],
    mask=MASKS,
    where=["in order", "gaps", "packed, in order", *DOCUMENTS],
)
def test_every_mask(kind, mask, where):
    """Over positions that restart in each document, or not."""
    causal, window = MASKS[mask]
    causal = causal or kind == "pieces"  # pieces have no other masks
    documents = DOCUMENTS.get(where.partition(",")[0])
    positions = None
    if where == "gaps":
        torch.manual_seed(3)
        positions = torch.randint(0, 4, (2, 35)).cumsum(1)
    elif where in DOCUMENTS:
        positions = _restarting(documents)
    if not causal and kind == "table":  # says nothing about keys after the query
        kind = "short"
    batch = len(documents) if documents else 1 if positions is None else 2
    require_equal(Case(kind, batch=batch, causal=causal, window=window, documents=documents, positions=positions))


@pytest.mark.parametrize("kind", [slow("none"), "table", "pieces", slow("rows")])
def test_a_window_of_one(kind):
    require_equal(Case(kind, window=1))


def test_many_pieces_at_positions_with_gaps():
    torch.manual_seed(3)
    require_equal(Case("many", queries=16, keys=20, positions=torch.randint(0, 4, (1, 20)).cumsum(1)))


def test_positions_very_far_apart():
    case = Case("short", queries=5, keys=5, positions=[[0, 1, 2, 10**9, 10**9 + 1]])
    case.span = lambda: cases.Span(torch.tensor(case.positions), torch.tensor(case.positions), 9)
    require_equal(case)


@pytest.mark.parametrize(
    ("level", "c"), [(0.0, 1e-3), (10.0, 100.0), (500.0, 1e-3), slow(0.0, 100.0), slow(10.0, 1e-3), slow(500.0, 100.0)]
)
def test_pieces_of_fire(level, c):
    require_equal(Case("pieces", level=level, c=c))


def test_pieces_as_many_as_go_one_by_one():
    require_equal(Case("pieces", pieces=64))


def test_pieces_with_knots_where_tiles_and_pairs_meet():
    """A knot is the very coordinate of a pair: it belongs to the segment above."""
    case = Case("pieces", knots=lambda distance_feature, query_scale: distance_feature[[7, 8, 15, 16]].to(WIDE))
    bias = case.bias()
    case.bias = lambda: {
        **bias,
        "query_scale": torch.ones_like(bias["query_scale"]),
    }  # so that every coordinate is exact
    require_equal(case)


def test_tiles_of_every_kind_are_asked():
    """Blocks at one distance lie in one segment, in another, and have knots between, in turn."""
    case = Case(
        "pieces", queries=56, keys=56, knots=lambda distance_feature, query_scale: torch.tensor([1.5], dtype=WIDE)
    )
    bias, query_scale = case.bias(), 1.0 + (torch.arange(56)[None] >= 28)
    # A coordinate is the query scale: 1 up to query 28, then 2.
    case.bias = lambda: {**bias, "distance_feature": torch.ones(56), "query_scale": query_scale.clone()}
    size = SMALL[3].queries
    order, ends = tiles.by_distance(_tiling(case), size)
    clean = [{int(e) >> 16 for e in line[: int(n[0])]} for line, n in zip(order[0], ends[0], strict=True)]
    assert max(map(len, clean)) > 1, "CLEAN tiles of several segments in a line"
    assert (ends[0, :, 1] > ends[0, :, 0]).any() and (ends[0, :, -1] > ends[0, :, -2]).any(), "ONE_KNOT, GENERAL"
    require_equal(case)


def _tiling(case):
    span = case.span()
    positions = {} if case.positions is None else {"position_q": span.q, "position_k": span.k}
    arguments = Arguments(**case.bias(), **positions, documents=case.mask().documents, causal=case.causal)
    return tiles.Case(arguments, case.queries, case.keys, torch.device("cpu"))


def _knots_of_every_number(distance_feature, query_scale):
    """Return knots at one distance, at two that are close, and at three."""
    distance = torch.tensor([12.5, 26.3, 27.6, 41.2, 42.4, 43.7], dtype=WIDE)
    return torch.log1p(0.3 * distance) * query_scale.double().max()


PACKED = [[0] * 80 + [1] * 24]


@pytest.mark.parametrize(
    "case", [
        Case("pieces", keys=84), Case("pieces", keys=84, causal=False),
        slow(Case("pieces table", keys=84, heads=(2, 1))), slow(Case("pieces", keys=88)),
        slow(Case("pieces", keys=104, documents=PACKED)),
        slow(Case("pieces", keys=104, documents=PACKED, positions=_restarting(PACKED))),
        slow(Case("pieces", keys=84, positions=torch.arange(84)[None] + 5)),
        slow(Case("pieces", keys=84, dtype=torch.bfloat16)),
    ], ids=lambda case: case.kind,
)  # fmt: skip
def test_tiles_with_any_number_of_knots(case):
    """Tiles with no knot, one, two and more have loops of their own, in each kernel."""
    case.level, case.knots = 200.0, _knots_of_every_number  # all queries have the same scale
    case.queries = 80 if case.keys == 88 else case.keys
    output, keys, queries, distances = SMALL
    for name, *sizes in (
        ("by_queries", output.queries, output.keys), ("by_keys", keys.queries, keys.keys),
        ("by_queries", queries.queries, queries.keys), ("by_distance", distances.queries),
    ):  # fmt: skip
        _, ends = getattr(tiles, name)(_tiling(case), *sizes)
        counts = ends.diff(dim=-1, prepend=torch.zeros_like(ends[..., :1])).sum((0, 1))
        assert (counts > 0).tolist() == [True, True, True, True, False, True]
    require_equal(case, 3e-2 if case.dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("kind", ["pieces table", slow("many table")])
def test_a_table_next_to_frozen_segments(kind):
    """The gradient of a table does not depend on whether there are gradients of the segments."""
    case = Case(kind)
    results = case.ours()
    right = dict(zip(case.names, results, strict=True))["dtable"]
    q, k, v, grad = case.tensors()
    arguments = Arguments(**case.bias(), scale=case.dim**-0.5)
    out, lse = gpu.forward(q, k, v, arguments)
    found = gpu.backward(grad, q, k, v, out, lse, arguments, frozenset({"table"}))["table"]
    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [0.0, -0.5, slow(1e-30), slow(3.0)])
def test_any_scale(scale):
    case = Case("short", queries=16, keys=20)
    case.scale = scale or 1e-300  # a scale of 0, which `or` would replace
    require_equal(case)


@pytest.mark.parametrize(
    "case",
    [
        Case("short", queries=2, keys=70),
        Case("none", queries=3, keys=70, documents=[[0] * 60 + [1] * 10]),
        slow(Case("many", queries=1, keys=70, window=40)),
    ],
    ids=lambda case: case.kind,
)
def test_a_long_cache_is_shared_out(case):
    """Few queries: several programs for one head, each with a part of the keys, some of which see nothing."""
    require_equal(case)


@pytest.mark.parametrize(("dtype", "close"), [slow(torch.float16, 4e-3), (torch.bfloat16, 3e-2)], ids=str)
def test_half_precision(dtype, close):
    """Products of halves, everything else in float32."""
    require_equal(Case("pieces short", dtype=dtype), close)


@pytest.mark.parametrize("how", [slow("columns"), slow("every second"), "heads last", "one for all"])
def test_any_strides(how):
    def strided(x):
        if how == "columns":
            return x.mT.contiguous().mT
        if how == "heads last":
            return x.transpose(1, 2).contiguous().transpose(1, 2)
        if how == "one for all":
            return x[:1].expand(2, -1, -1, -1)
        return torch.stack([x, x + 9], -1).flatten(-2)[..., ::2]

    case = Case("none", batch=2, queries=16, keys=20)
    given = [strided(x) for x in case.tensors()]
    case.tensors = lambda: given
    require_equal(case)


@pytest.mark.parametrize(
    ("which", "bad"),
    [
        (0, math.nan), (1, math.nan), (2, math.inf), (3, math.inf),
        slow(0, math.inf), slow(1, math.inf), slow(2, math.nan), slow(3, math.nan),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("kind", "gaps"), [("short", False), slow("rows values", False), slow("short rows values", True)]
)
def test_nan_and_infinity_stay_with_those_that_see_them(kind, gaps, bad, which):
    """Token 21 of 40 is bad: tokens that do not see it, or that it does not see, are as without it."""
    positions = torch.arange(40)[None] * 3 // 2 if gaps else None
    documents = [[0] * 27 + [1] * 13]
    results = []
    for value in (bad, 0.5):

        def edit(*tensors, value=value):
            tensors[which][0, 0, 21, 3] = value

        case = Case(kind, queries=40, keys=40, documents=documents, positions=positions, edit=edit)
        results.append(case.ours())
    spoiled, plain = results
    seen = case.mask().visible(torch.device("cpu"))[0]
    rows = seen[:, 21] if which in (1, 2) else torch.arange(40) == 21  # queries whose logits or sums have it
    clean_keys = ~seen[rows].any(0)
    if which != 3:
        assert torch.equal(spoiled[0][0, 0, ~rows], plain[0][0, 0, ~rows])
        if math.isnan(bad):  # a logit of -inf is a weight of 0, no harm done
            assert not spoiled[0][0, 0, rows].isfinite().all(-1).any()
    for gradient, clean in ((2, ~rows), (3, clean_keys), (4, clean_keys)):
        assert torch.equal(spoiled[gradient][0, 0, clean], plain[gradient][0, 0, clean])


def test_logits_far_from_zero():
    for shift in (1e4, -1e4):
        case = Case("table", queries=30, keys=30)
        bias = case.bias()
        case.bias = lambda bias=bias, shift=shift: {**bias, "table": bias["table"] + shift}
        require_equal(case, close=3e-3)  # float32 has 1e-3 there


@pytest.mark.parametrize("kind", [slow("table"), slow("pieces"), "pieces table"])
def test_changes_of_a_row_sum_to_0_though_the_output_is_off(kind, monkeypatch):
    """<dO, O> makes delta; the rows' sums mend what is wrong in it for all that comes after."""
    right = Case(kind).ours()
    original = gpu.forward

    def off(*given):
        out, lse = original(*given)
        return out + 0.01, lse

    monkeypatch.setattr(gpu, "forward", off)
    case = Case(kind)
    found = case.ours()
    for name, x, y in zip(case.names, found, right, strict=True):
        if name not in ("out", "lse", "dq", "dv"):  # dq is made before; dv has no delta
            torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-5, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("kind", [slow("table"), slow("pieces"), "pieces table", slow("crooked pieces")])
def test_small_changes_remain_between_large_ones_that_cancel(kind):
    """Of three equal documents the last takes back what the first adds, which is a million times what the
    second does.
    """

    def edit(large, q, k, v, grad):
        for x in (q, k, v, grad):
            x[...] = x[:, :, :16].repeat(1, 1, 3, 1)
        grad[:, :, :16] *= large
        grad[:, :, 32:] *= -large

    documents = [[n // 16 for n in range(48)]]
    found, right = (
        Case(
            kind, queries=48, keys=48, documents=documents, positions=_restarting(documents), level=5.0,
            edit=functools.partial(edit, large),
        ).ours()
        for large in (2.0**20, 0.0)
    )  # fmt: skip
    for n, (x, y) in enumerate(zip(found[5:], right[5:], strict=True)):
        if x.shape != (1, 48):  # w, a number for each query, has nothing to cancel
            assert (x - y).abs().max() <= 1e-5 * y.abs().max(), f"gradient {n} of the bias: {x - y}"


def test_nothing_at_all():
    case = Case("short", batch=0, queries=4, keys=5)
    assert [len(x) for x in case.ours()[:5]] == [0] * 5


BLOCKS = gpu.blocks


QUICK_ERRORS = {("NoPE", torch.float16), ("T5", torch.bfloat16), ("BandedBias:band=64", torch.float16)}
ERRORS = [(name, dtype) for name in gpu_errors.FORMS for dtype in (torch.bfloat16, torch.float16)]


@pytest.mark.parametrize(
    ("name", "dtype"), [asked if asked in QUICK_ERRORS else slow(*asked) for asked in ERRORS], ids=str
)
def test_errors_of_halves_are_at_most_twice_those_of_torch(name, dtype, monkeypatch):
    """At 128 tokens, with the blocks that a GPU would be given."""
    monkeypatch.setattr(gpu, "blocks", BLOCKS)
    _require_close(name, dtype, 1)


# How many draws: one number, as FIRE's c, is by chance close in a few.
@pytest.mark.parametrize(
    ("name", "draws"), [("T5", 1), slow("FIRE", 6), slow("FIRE:hidden_layers=1", 6), ("TransformerXL", 1),
                        slow("FoX", 4)]
)  # fmt: skip
def test_errors_are_at_most_twice_those_of_torch(name, draws, monkeypatch):
    """The same of float32."""
    monkeypatch.setattr(gpu, "blocks", BLOCKS)
    _require_close(name, torch.float32, draws)


def _require_close(name, dtype, draws):
    with interpreted.in_place_of_the_cpu():
        ratios = gpu_errors.over_torchs(gpu_errors.drawn(name, 128, dtype, draws, heads=2, dim=64))
    assert ratios and all(ratio <= gpu_errors.MOST for ratio in ratios.values()), ratios


def test_bfloat16_is_rounded_to_the_nearest():
    x = torch.cat([torch.randn(1000), torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-40, 3.4e38])])
    x = torch.cat([x, 1 + torch.arange(16) / 1024])  # ties
    bits = interpreted.rounded_bits(x.numpy())
    assert torch.equal(torch.from_numpy(bits).view(torch.bfloat16).nan_to_num(7.0), x.bfloat16().nan_to_num(7.0))
    assert torch.equal(
        torch.from_numpy(interpreted.widened_bits(bits)).nan_to_num(7.0), x.bfloat16().float().nan_to_num(7.0)
    )
