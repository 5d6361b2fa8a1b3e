"""FIRE's segments and tables, computed by Triton kernels on a GPU in a few launches instead of dozens.

piecewise.py and fire.py define what is computed; segments.py does the same on a CPU. All arithmetic is in float64.
"""

from collections.abc import Sequence
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from lengthwise.native.gpu import on_device_of_first_argument

MAX_SEGMENTS = 1024  # with more, PyTorch computes them
MAX_WIDTH = 64  # wider layers do not fit into registers
_CHUNK = 1024  # distances or queries that are processed together


@triton.jit
@no_type_check
def _load_layer(parameters, LAYER: tl.constexpr, WIDTHS: tl.constexpr, W: tl.constexpr):
    """Return the weight [out, in] and the bias [out] of a linear layer, with zeros past its widths."""
    row = tl.arange(0, W)
    at = parameters[2 * LAYER] + row[:, None] * WIDTHS[LAYER] + row[None, :]
    exists = row < WIDTHS[LAYER + 1]
    weight = tl.load(at, mask=exists[:, None] & (row < WIDTHS[LAYER])[None, :], other=0.0)
    bias = tl.load(parameters[2 * LAYER + 1] + row, mask=exists, other=0.0)
    return weight.to(tl.float64), bias.to(tl.float64)


@triton.jit
@no_type_check
def _apply_layer(slope, intercept, weight, bias):
    """Return slope and intercept [r, out] of every neuron in every segment after a linear layer."""
    slope = tl.sum(slope[:, None, :] * weight[None, :, :], 2)
    intercept = tl.sum(intercept[:, None, :] * weight[None, :, :], 2) + bias[None, :]
    return slope, intercept


@triton.jit
@no_type_check
def _first_layer(parameters, ROWS: tl.constexpr, WIDTHS: tl.constexpr, W: tl.constexpr):
    """Return slope and intercept after the first layer, which has one input: x itself."""
    one = (tl.arange(0, W)[None, :] == 0) & (tl.arange(0, ROWS)[:, None] >= 0)
    slope = tl.where(one, 1.0, 0.0).to(tl.float64)
    weight, bias = _load_layer(parameters, 0, WIDTHS, W)
    return _apply_layer(slope, slope * 0.0, weight, bias)


@triton.jit
@no_type_check
def _lines_of_layer(parameters, middle, LAYER: tl.constexpr, ROWS: tl.constexpr, WIDTHS: tl.constexpr, W: tl.constexpr):
    """Return slope and intercept [r, W] of a layer's neurons in the segments around `middle`."""
    slope, intercept = _first_layer(parameters, ROWS, WIDTHS, W)
    for n in tl.static_range(1, LAYER + 1):
        active = intercept + slope * middle[:, None] > 0.0
        weight, bias = _load_layer(parameters, n, WIDTHS, W)
        slope, intercept = _apply_layer(tl.where(active, slope, 0.0), tl.where(active, intercept, 0.0), weight, bias)
    return slope, intercept


@triton.jit
@no_type_check
def _edges_of(edges, number, exists, DEPTH: tl.constexpr):
    """Return the left and right edges of segments. Before the first layer (DEPTH 0), [0, 1] is the only one."""
    if DEPTH == 0:
        left = tl.zeros_like(number).to(tl.float64)
        right = left + 1.0
    else:
        left = tl.load(edges + number, mask=exists, other=0.0)
        right = tl.load(edges + number + 1, mask=exists, other=0.0)
    return left, right


@triton.jit
@no_type_check
def split_segments(
    parameters, edges, new_edges, counts, room, LAYER: tl.constexpr, WIDTHS: tl.constexpr, W: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Split the segments of [0, 1] where a neuron of one layer changes its sign, as `segments_in_torch` does.

    edges [room + 2]: those of the layers before it; counts[LAYER]: how many segments they bound. The next entry of
    counts becomes a number above `room` if there is not enough memory.
    """
    column = tl.arange(0, W)
    needed = 1
    if LAYER > 0:
        needed = tl.load(counts + LAYER)
    segments = tl.minimum(needed, room)
    total = 0
    for start in range(0, segments, ROWS):
        number = start + tl.arange(0, ROWS)
        exists = number < segments
        left, right = _edges_of(edges, number, exists, LAYER)
        slope, intercept = _lines_of_layer(parameters, (left + right) / 2, LAYER, ROWS, WIDTHS, W)
        zero = -intercept / slope
        inside = exists[:, None] & (column < WIDTHS[LAYER + 1])[None, :]
        inside = inside & (zero > left[:, None]) & (zero < right[:, None])
        zero = tl.sort(tl.where(inside, zero, float("inf")), 1)
        zeros = tl.sum(inside.to(tl.int32), 1)
        edges_of_row = tl.where(exists, zeros + 1, 0)
        place = total + tl.cumsum(edges_of_row, 0) - edges_of_row
        tl.store(new_edges + place, left, mask=exists & (place < room))
        place = place[:, None] + 1 + column[None, :]
        tl.store(new_edges + place, zero, mask=(column[None, :] < zeros[:, None]) & (place < room))
        total += tl.sum(edges_of_row, 0)
    tl.store(new_edges + tl.minimum(total, room), 1.0)
    tl.store(counts + LAYER + 1, tl.maximum(needed, total))


@triton.jit
@no_type_check
def write_segments(
    parameters, edges, slope_at, intercept_at, knots, gates, segments, LAYERS: tl.constexpr, FINAL: tl.constexpr,
    WIDTHS: tl.constexpr, GATES: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write slope, intercept [heads, segments], knots [segments - 1] and gates of ROWS segments.

    gates [segments, GATES]: 1 where a neuron is active, else 0.
    """
    column = tl.arange(0, W)
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = number < segments
    left, right = _edges_of(edges, number, exists, LAYERS - 1 + FINAL)
    middle = (left + right) / 2
    slope, intercept = _first_layer(parameters, ROWS, WIDTHS, W)
    before = 0
    for layer in tl.static_range(1, LAYERS + FINAL):
        active = intercept + slope * middle[:, None] > 0.0
        at = gates + number[:, None] * GATES + (before + column)[None, :]
        tl.store(at, active.to(tl.uint8), mask=exists[:, None] & (column < WIDTHS[layer])[None, :])
        before += WIDTHS[layer]
        slope = tl.where(active, slope, 0.0)
        intercept = tl.where(active, intercept, 0.0)
        if layer < LAYERS:
            weight, bias = _load_layer(parameters, layer, WIDTHS, W)
            slope, intercept = _apply_layer(slope, intercept, weight, bias)
    at = column[None, :] * segments + number[:, None]
    written = exists[:, None] & (column < WIDTHS[LAYERS])[None, :]
    tl.store(slope_at + at, slope, mask=written)
    tl.store(intercept_at + at, intercept, mask=written)
    tl.store(knots + number, right, mask=number < segments - 1)


@triton.jit
@no_type_check
def _load_gates(gates, number, segments, before, width, GATES: tl.constexpr, W: tl.constexpr):
    column = tl.arange(0, W)
    at = gates + number[:, None] * GATES + (before + column)[None, :]
    return tl.load(at, mask=(number < segments)[:, None] & (column < width)[None, :], other=0).to(tl.float64)


@triton.jit
@no_type_check
def segments_backward(
    parameters, gradients, gates, grad_slope, grad_intercept, segments, LAYERS: tl.constexpr, FINAL: tl.constexpr,
    WIDTHS: tl.constexpr, GATES: tl.constexpr, W: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the weight and the bias of one layer, as `gradients_in_torch` does."""
    chosen = tl.program_id(0)
    column = tl.arange(0, W)
    row = tl.arange(0, ROWS)
    grad_weight = tl.zeros([W, W], tl.float64)
    grad_bias = tl.zeros([W], tl.float64)
    for start in range(0, segments, ROWS):
        number = start + row
        # Forward, up to the inputs of the chosen layer.
        input_slope = tl.where((column == 0)[None, :] & (row >= 0)[:, None], 1.0, 0.0).to(tl.float64)
        input_intercept = tl.zeros([ROWS, W], tl.float64)
        slope, intercept = _first_layer(parameters, ROWS, WIDTHS, W)
        before = 0
        for layer in tl.static_range(1, LAYERS):
            active = _load_gates(gates, number, segments, before, WIDTHS[layer], GATES, W)
            before += WIDTHS[layer]
            slope = slope * active
            intercept = intercept * active
            input_slope = tl.where(chosen == layer, slope, input_slope)
            input_intercept = tl.where(chosen == layer, intercept, input_intercept)
            weight, bias = _load_layer(parameters, layer, WIDTHS, W)
            slope, intercept = _apply_layer(slope, intercept, weight, bias)
        # Backward, down to the outputs of the chosen layer.
        at = column[None, :] * segments + number[:, None]
        exists = (number < segments)[:, None] & (column < WIDTHS[LAYERS])[None, :]
        ds = tl.load(grad_slope + at, mask=exists, other=0.0).to(tl.float64)
        dc = tl.load(grad_intercept + at, mask=exists, other=0.0).to(tl.float64)
        if FINAL:
            active = _load_gates(gates, number, segments, before, WIDTHS[LAYERS], GATES, W)
            ds = ds * active
            dc = dc * active
        output_slope = ds
        output_intercept = dc
        for layer in tl.static_range(LAYERS - 1, 0, -1):
            weight, bias = _load_layer(parameters, layer, WIDTHS, W)
            before -= WIDTHS[layer]
            active = _load_gates(gates, number, segments, before, WIDTHS[layer], GATES, W)
            ds = tl.sum(ds[:, :, None] * weight[None, :, :], 1) * active
            dc = tl.sum(dc[:, :, None] * weight[None, :, :], 1) * active
            output_slope = tl.where(chosen < layer, ds, output_slope)
            output_intercept = tl.where(chosen < layer, dc, output_intercept)
        grad_weight += tl.sum(output_slope[:, :, None] * input_slope[:, None, :], 0)
        grad_weight += tl.sum(output_intercept[:, :, None] * input_intercept[:, None, :], 0)
        grad_bias += tl.sum(output_intercept, 0)
    for layer in tl.static_range(LAYERS):
        if chosen == layer:
            exists = column < WIDTHS[layer + 1]
            at = gradients[2 * layer] + column[:, None] * WIDTHS[layer] + column[None, :]
            tl.store(at, grad_weight, mask=exists[:, None] & (column < WIDTHS[layer])[None, :])
            tl.store(gradients[2 * layer + 1] + column, grad_bias, mask=exists)


@triton.jit
@no_type_check
def _log1p(x):
    """Return ln(1 + x) for x >= 0, without losing the digits of a small x."""
    y = 1.0 + x
    return tl.where(y == 1.0, x, tl.log(y) * (x / (y - 1.0)))


@triton.jit
@no_type_check
def _sizes(c, multiplier, L: tl.constexpr):
    """Return |c|, the threshold |multiplier| L, and ψ(L), or 1 if that is 0."""
    size = tl.abs(tl.load(c).to(tl.float64))
    threshold = tl.abs(tl.load(multiplier).to(tl.float64) * L)
    unit = _log1p(size * L)
    return size, threshold, tl.where(unit > 0.0, unit, 1.0)


@triton.jit
@no_type_check
def _denominator(position, size, threshold, EPS: tl.constexpr):
    """Return max(threshold, position), and ψ of it plus EPS."""
    reached = tl.where(threshold < position, position, threshold)
    return reached, _log1p(size * reached) + EPS


@triton.jit
@no_type_check
def _sign(x):
    return tl.where(x > 0.0, 1.0, tl.where(x < 0.0, -1.0, 0.0)).to(tl.float64)


@triton.jit
@no_type_check
def tables_forward(
    c, multiplier, distance, query, feature, derivative, scale, distances, queries, L: tl.constexpr, EPS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Write distance_feature and its derivative, or query_scale, of a chunk of distances or queries, as `_Tables` in
    fire.py does.
    """
    size, threshold, unit = _sizes(c, multiplier, L)
    program = tl.program_id(0)
    chunks = tl.cdiv(distances, CHUNK)
    if program < chunks:
        n = program * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(distance + n, mask=n < distances, other=0).to(tl.float64)
        value = _log1p(size * x) / unit
        tl.store(feature + n, value, mask=n < distances)
        unit_by_size = tl.where(size * L > 0.0, L / (1.0 + size * L), 0.0)
        by_size = (x / (1.0 + size * x) - value * unit_by_size) / unit
        tl.store(derivative + n, by_size * _sign(tl.load(c).to(tl.float64)), mask=n < distances)
    else:
        n = (program - chunks) * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(query + n, mask=n < queries, other=0).to(tl.float64)
        _, value = _denominator(x, size, threshold, EPS)
        tl.store(scale + n, unit / tl.where(value > 0.0, value, 1.0), mask=n < queries)


@triton.jit
@no_type_check
def tables_backward(
    c, multiplier, distance, query, grad_feature, grad_scale, grad_c, grad_multiplier, distances, queries,
    L: tl.constexpr, EPS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of c and of the multiplier, as `_Tables` in fire.py does."""
    size, threshold, unit = _sizes(c, multiplier, L)
    by_size = tl.zeros([CHUNK], tl.float64)
    by_unit = tl.zeros([CHUNK], tl.float64)
    for start in range(0, distances, CHUNK):
        n = start + tl.arange(0, CHUNK)
        x = tl.load(distance + n, mask=n < distances, other=0).to(tl.float64)
        grad = tl.load(grad_feature + n, mask=n < distances, other=0.0)
        by_size += grad * (x / (1.0 + size * x)) / unit
        by_unit -= grad * _log1p(size * x) / (unit * unit)
    by_threshold = tl.zeros([CHUNK], tl.float64)
    for start in range(0, queries, CHUNK):
        n = start + tl.arange(0, CHUNK)
        x = tl.load(query + n, mask=n < queries, other=0).to(tl.float64)
        grad = tl.load(grad_scale + n, mask=n < queries, other=0.0)
        reached, value = _denominator(x, size, threshold, EPS)
        counts = value > 0.0
        over = 1.0 / tl.where(counts, value, 1.0)
        by_unit += grad * over
        inner = tl.where(counts, grad * over * over, 0.0) * unit / (-1.0 - size * reached)
        by_size += inner * reached
        by_threshold += inner * ((_sign(threshold - x) + 1.0) / 2.0)  # 1/2 at ties
    grad_unit = tl.where(size * L > 0.0, tl.sum(by_unit, 0), 0.0)
    grad_size = tl.sum(by_size, 0) + grad_unit * (L / (1.0 + size * L))
    tl.store(grad_c, grad_size * _sign(tl.load(c).to(tl.float64)))
    tl.store(grad_multiplier, tl.sum(by_threshold, 0) * size * L * _sign(tl.load(multiplier).to(tl.float64)))


def supports(parameters: Sequence[Tensor]) -> bool:
    """Whether the kernels support the weights and biases of an MLP: contiguous, and of narrow layers."""
    return max(x.shape[0] for x in parameters) <= MAX_WIDTH and all(x.is_contiguous() for x in parameters)


def _network(parameters: Sequence[Tensor], final: bool) -> dict[str, Any]:
    """Return the constants of the kernels of a network."""
    widths = (1, *(len(bias) for bias in parameters[1::2]))
    padded = max(8, triton.next_power_of_2(max(widths)))
    layers = len(widths) - 1
    gates = sum(widths[1:] if final else widths[1:-1])
    constants = {"LAYERS": layers, "FINAL": int(final), "WIDTHS": widths, "GATES": gates, "W": padded}
    return constants | {"ROWS": min(16, max(2, 4096 // padded**2)), "num_warps": 8}


@on_device_of_first_argument
def _edges(like: Tensor, parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor]:
    """Return the edges of the segments, and how many there are after each layer; `like` is on the device of all."""
    network, room = _network(parameters, final), MAX_SEGMENTS
    constants = {name: network[name] for name in ("WIDTHS", "W", "ROWS", "num_warps")}
    layers = network["LAYERS"] - 1 + network["FINAL"]
    edges = like.new_empty(2, room + 2, dtype=torch.float64)
    counts = like.new_empty(layers + 1, dtype=torch.int32)
    # One launch for each layer, because all edges of a layer must be written before the next one reads them.
    for layer in range(layers):
        source, target = edges[layer % 2], edges[(layer + 1) % 2]
        split_segments[(1,)](tuple(parameters), source, target, counts, room, LAYER=layer, **constants)
    return edges[layers % 2], counts


@on_device_of_first_argument
def _lines(edges: Tensor, count: int, parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, ...]:
    """Return slope, intercept, knots and gates of `count` segments."""
    constants = _network(parameters, final)
    slope, intercept = (edges.new_empty(constants["WIDTHS"][-1], count) for _ in range(2))
    knots = edges.new_empty(count - 1)
    gates = edges.new_empty(count, constants["GATES"], dtype=torch.uint8)
    write_segments[(-(-count // constants["ROWS"]),)](
        tuple(parameters), edges, slope, intercept, knots, gates, count, **constants
    )  # fmt: skip
    return slope, intercept, knots, gates


def relu_segments(parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, ...] | None:
    """Return slope, intercept, knots, and for each segment which neurons are active, as bytes [segments, neurons].

    None if there are more than `MAX_SEGMENTS`.
    """
    edges, counts = _edges(parameters[0], parameters, final)
    count = int(counts[-1]) if len(counts) > 1 else 1  # waits for the device
    return None if count > MAX_SEGMENTS else _lines(edges, count, parameters, final)


@on_device_of_first_argument
def relu_segments_backward(
    grad_slope: Tensor, grad_intercept: Tensor, parameters: Sequence[Tensor], gates: Tensor, final: bool
) -> list[Tensor]:
    """Return the gradient of every parameter."""
    gradients = [torch.empty_like(x) for x in parameters]
    constants = _network(parameters, final)
    segments_backward[(constants["LAYERS"],)](
        tuple(parameters), tuple(gradients), gates, grad_slope.contiguous(), grad_intercept.contiguous(), len(gates),
        **constants,
    )  # fmt: skip
    return gradients


@on_device_of_first_argument
def fire_tables(
    c: Tensor, multiplier: Tensor, distance: Tensor, query: Tensor, L: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return FIRE's distance feature, query scale, and derivative of the distance feature by c, in float64."""
    distance, query = distance.contiguous(), query.contiguous()
    feature, scale, derivative = (
        torch.empty(x.shape, dtype=torch.float64, device=x.device) for x in (distance, query, distance)
    )
    programs = sum(-(-x.numel() // _CHUNK) for x in (distance, query))
    tables_forward[(programs,)](
        c, multiplier, distance, query, feature, derivative, scale, distance.numel(), query.numel(), L=L, EPS=eps,
        CHUNK=_CHUNK,
    )  # fmt: skip
    return feature, scale, derivative


@on_device_of_first_argument
def fire_tables_backward(
    c: Tensor,
    multiplier: Tensor,
    distance: Tensor,
    query: Tensor,
    grad_feature: Tensor,
    grad_scale: Tensor,
    L: float,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of c and of the multiplier."""
    grad_c, grad_multiplier = torch.empty_like(c), torch.empty_like(multiplier)
    tables_backward[(1,)](
        c, multiplier, distance.contiguous(), query.contiguous(), grad_feature.contiguous(), grad_scale.contiguous(),
        grad_c, grad_multiplier, distance.numel(), query.numel(), L=L, EPS=eps, CHUNK=_CHUNK, num_warps=8,
    )  # fmt: skip
    return grad_c, grad_multiplier
