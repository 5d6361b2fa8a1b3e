"""The Triton kernels that replace many small operations, interpreted: lists of tiles, FIRE's segments and tables.

test_gpu.py runs this file in a process of its own, as interpreted_gpu.py.
"""

import os
import sys
from pathlib import Path
from typing import no_type_check

import pytest
import torch
import triton
import triton.language as tl

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import interpreted  # noqa: E402, before anything that imports Triton

from lengthwise.attention.fused.arguments import SEGMENTS, Arguments  # noqa: E402
from lengthwise.attention.fused.gpu import parts, tiles, visits  # noqa: E402
from lengthwise.attention.fused.gpu.call import kernel_arguments  # noqa: E402
from lengthwise.conformance import gpu_networks  # noqa: E402
from lengthwise.encodings import FIRE, piecewise  # noqa: E402
from lengthwise.encodings.fire import _Tables, feature_derivative  # noqa: E402
from lengthwise.native import gpu_segments  # noqa: E402
from tests.attention.fused import tiles_in_torch  # noqa: E402
from tests.pairwise import pairwise  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for 0 / 0

interpreted.ready_once()


def positions_in_documents(documents):
    """Return for each token how many tokens of its document come before it."""
    same = documents[:, None] == documents[None]
    return same.tril(-1).sum(1)


TILE_BIASES = {
    "none": {}, "table": {"table": torch.zeros(2, 40), "table_first": -3},
    "rows": {"rows": torch.zeros(1, 2, 100, 40), "rows_first": 5},
    "both": {"table": torch.zeros(1, 40), "table_first": 5, "rows": torch.zeros(1, 2, 100, 30), "rows_first": -3},
    "pieces": 7, "many": 200,
}  # fmt: skip
TILE_MASKS = {"causal": {}, "window": {"window": 50}, "both ways": {"causal": False}}
TILE_PLACES = ["in order", "documents", "restarting", "gaps", "shifted"]


@pairwise(bias=TILE_BIASES, mask=TILE_MASKS, where=TILE_PLACES, queries=[100, 205])
def test_lists_of_tiles(bias, mask, where, queries):
    """The kernel sorts tiles as PyTorch does."""
    keys, tensors = 205, TILE_BIASES[bias]
    if bias in ("pieces", "many"):
        mask = "causal" if mask == "both ways" else mask
        feature = torch.log1p(0.3 * torch.arange(700.0))
        query_scale = 1 / torch.log1p(0.3 * torch.arange(keys - queries, keys).float().clamp(min=60))[None]
        lines, knots = torch.zeros(2, tensors), torch.linspace(0.01, 0.9, tensors - 1)
        tensors = dict(zip(SEGMENTS, (lines, lines, knots, feature, query_scale), strict=True))
    documents = torch.tensor([[0] * 100 + [1] * 64 + [2] * 41, [5] * 32 + [1] * 173])
    positions = {
        "restarting": torch.stack([positions_in_documents(row) for row in documents]),
        "gaps": torch.randint(0, 3, (2, keys), generator=torch.Generator().manual_seed(0)).cumsum(1),
        "shifted": torch.arange(keys)[None] + 7,
    }.get(where)  # fmt: skip
    if positions is not None:
        tensors = tensors | {"position_q": positions[:, keys - queries :].contiguous(), "position_k": positions}
    if where in ("documents", "restarting"):
        tensors = tensors | {"documents": documents}
    case = tiles.Case(Arguments(**tensors, **TILE_MASKS[mask]), queries, keys, torch.device("cpu"))
    for name, sizes in (("by_queries", (32, 16)), ("by_keys", (32, 16)), ("by_distance", (16,))):
        order, ends = getattr(tiles, name)(case, *sizes)
        order_right, ends_right = getattr(tiles_in_torch, name)(case, *sizes)
        assert torch.equal(ends, ends_right.expand_as(ends))
        for found, right, count in zip(
            order.flatten(0, 1), order_right.expand_as(order).flatten(0, 1), ends[..., -1].flatten(), strict=True
        ):
            assert torch.equal(found[:count], right[:count])


@triton.jit
@no_type_check
def _write_bounds(to, args, sizes, BY_KEYS: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    line = tl.program_id(0)
    if BY_KEYS:
        bounds = visits.query_blocks(line * BN, 0, sizes, args, CAUSAL, BM, BN)
    else:
        bounds = visits.key_blocks(sizes.keys - sizes.queries + line * BM, 0, 0, 1, sizes, args, CAUSAL, BM, BN)
    for n in tl.static_range(6):
        tl.store(to + 6 * line + n, bounds[n])


@pairwise(bias=["none", "table", "rows", "both"], mask=TILE_MASKS, queries=[96, 205], by_keys=[False, True])
def test_ranges_of_tiles(bias, mask, queries, by_keys):
    """Without lists, the kinds of tiles are the same as in lists."""
    keys, size_q, size_k = 205, 32, 16
    arguments = Arguments(**TILE_BIASES[bias], **TILE_MASKS[mask])
    case = tiles.Case(arguments, queries, keys, torch.device("cpu"))
    assert not case.needs_lists and not case.steps_matter
    args = kernel_arguments(arguments, window=arguments.window or None)
    lines, width = -(-queries // size_q), -(-keys // size_k)
    lines, width = (width, lines) if by_keys else (lines, width)
    bounds = torch.zeros(lines, 6, dtype=torch.int32)
    _write_bounds[(lines,)](bounds, args, parts.Sizes(1, 1, queries, keys), by_keys, arguments.causal, size_q, size_k)
    line, other = torch.arange(lines)[:, None], torch.arange(width)[None]
    place = (other, line) if by_keys else (line, other)
    kind, past = (x[0] for x in torch.broadcast_tensors(*tiles_in_torch.kinds(case, size_q, size_k)(*place)))
    for n, (low, high, clean_low, clean_high, near_low, near_high) in enumerate(bounds.tolist()):
        right = [
            "unseen" if x < low or x >= high
            else "general" if x < clean_low or x >= clean_high
            else "clean" if near_low <= x < near_high
            else "past" if (x < near_low) != by_keys
            else "before"
            for x in range(width)
        ]  # fmt: skip
        far = ["past" if x else "before" for x in past[n]]
        found = [("clean", "one", "two", "knots", far[x], "general", "unseen")[kind[n, x]] for x in range(width)]
        if not by_keys and (n + 1) * size_q > queries:
            continue  # a block of queries need not be full without lists
        if arguments.causal:  # there, distances before the first are rare
            found = ["clean" if x == "before" else x for x in found]
        assert found == right


LARGE = [pytest.param(2, 32, True, marks=pytest.mark.slow), pytest.param(3, 20, False, marks=pytest.mark.slow)]


@pytest.mark.parametrize(
    ("hidden_layers", "width", "final"),
    [(0, 8, False), (0, 8, True), (1, 32, False), (2, 32, False), *LARGE],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_segments_of_a_network(hidden_layers, width, final, dtype):
    """Segments and gradients are those of PyTorch."""
    torch.manual_seed(hidden_layers)
    fire = FIRE(num_heads=5, hidden_layers=hidden_layers, width=width, final_activation=final).to(dtype)
    parameters = [x.detach() * 2 for layer in fire.layers for x in (layer.weight, layer.bias)]
    slope, intercept, knots, gates = gpu_segments.relu_segments(parameters, final)
    lines, right_knots, right_gates = piecewise.segments_in_torch(parameters, final)
    assert hidden_layers == 0 or len(knots) >= 3
    for found, right in zip((slope, intercept, knots), (*lines.mT, right_knots), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-13, atol=1e-14)
    assert torch.equal(gates, torch.cat(right_gates, 1).byte() if right_gates else gates[:, :0])
    grads = torch.randn_like(slope), torch.randn_like(intercept)
    found = gpu_segments.relu_segments_backward(*grads, parameters, gates, final)
    for x, y in zip(found, piecewise.gradients_in_torch(parameters, right_gates, *grads), strict=True):
        assert x.dtype == dtype
        torch.testing.assert_close(
            x, y, rtol=0, atol=(1e-13 if dtype == torch.float64 else 1e-6) * y.abs().max().item()
        )


def test_segments_that_do_not_fit(monkeypatch):
    monkeypatch.setattr(gpu_segments, "MAX_SEGMENTS", 5)
    torch.manual_seed(2)
    layers = FIRE(num_heads=2).layers
    parameters = [x.detach() * 2 for layer in layers for x in (layer.weight, layer.bias)]
    assert gpu_segments.relu_segments(parameters, False) is None


@pytest.mark.parametrize("L", [512.0, 33.3])
@pytest.mark.parametrize("c", [-0.1, 1e-9, 0.0])
def test_tables_of_fire(c, L):
    """The threshold is where L = 512 and the multiplier 0.25 put it, at a query's position; or between positions."""
    c, multiplier = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (c, 0.25))
    distance, query = torch.arange(1500), torch.stack([torch.arange(700), torch.arange(700).flip(0) * 3])
    eps = 1e-6
    *right, _ = _Tables.apply(c, multiplier, distance, query, L, eps)
    *found, derivative = gpu_segments.fire_tables(c.detach(), multiplier.detach(), distance, query, L, eps)
    for x, y in zip(found, right, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-13, atol=0)
    cancelled = 1 / (c.abs().item() * L or 1)  # with a small c, most of the derivative cancels
    expected = feature_derivative(c, distance, L)
    torch.testing.assert_close(derivative, expected, rtol=1e-13, atol=1e-12 * max(1.0, cancelled))
    torch.manual_seed(0)
    grads = [torch.randn_like(x) for x in right]
    found = gpu_segments.fire_tables_backward(c.detach(), multiplier.detach(), distance, query, *grads, L, eps)
    for x, y in zip(found, torch.autograd.grad(right, (c, multiplier), grads), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


def test_check_compares_the_kernels_of_networks(monkeypatch):
    assert gpu_networks.difference("cpu") is None
    original = gpu_segments.fire_tables
    monkeypatch.setattr(gpu_segments, "fire_tables", lambda *given: [x * 1.001 for x in original(*given)])
    assert "tables of FIRE" in gpu_networks.difference("cpu")
