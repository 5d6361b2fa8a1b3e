"""Triton functions that add biases to the logits of a tile; parts.py explains the kinds of tiles."""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.parts import (
    CLEAN,
    FAR,
    GENERAL,
    TWO_KNOTS,
    _along_keys,
    _along_queries,
    _clamp_index,
    _prefix_sums,
)
from lengthwise.attention.fused.gpu.rows import _far_row_entries, _row_entries


@triton.jit
@no_type_check
def _find_segment(x, args):
    """Return how many knots are <= x, by a linear search that starts at the cell of x."""
    low = tl.load(args.cell_origin)
    place = (x - low) * tl.load(args.cell_origin + 1)
    place = tl.minimum(tl.maximum(place, 0.0), (args.cells - 1) * 1.0)
    s = tl.load(args.cell + tl.minimum(tl.maximum(place.to(tl.int32), 0), args.cells - 1))
    for _ in range(tl.load(args.max_per_cell)):
        knot = tl.load(args.knots + tl.minimum(s, args.segments - 2))
        s += ((s < args.segments - 1) & (knot <= x)).to(tl.int32)
    return s


@triton.jit
@no_type_check
def _segment_line(x, head, info, inverse, args, KIND: tl.constexpr):
    """Return the slope at x, and slope · x + intercept, both divided by the scale. info: the entry of the tile."""
    slope = args.slope + head * args.slope_heads_step
    intercept = args.intercept + head * args.slope_heads_step
    if args.cell is not None:
        s = _find_segment(x, args)
        a = tl.load(slope + s) * inverse
        return a, a * x + tl.load(intercept + s) * inverse
    else:
        first = info & 0xFF
        a = tl.zeros_like(x) + tl.load(slope + first) * inverse
        bias = a * x + tl.load(intercept + first) * inverse
        if KIND <= TWO_KNOTS:
            for n in tl.static_range(KIND):
                a, bias = _next_segment(a, bias, x, slope, intercept, first + n, inverse, args)
        else:
            for k in range(first, first + (info >> 8)):
                a, bias = _next_segment(a, bias, x, slope, intercept, k, inverse, args)
        return a, bias


@triton.jit
@no_type_check
def _next_segment(a, bias, x, slope, intercept, k, inverse, args):
    """Replace slope and bias where x is past knot k."""
    past = x >= tl.load(args.knots + k)
    next_a = tl.load(slope + k + 1) * inverse
    next_bias = x * next_a + tl.load(intercept + k + 1) * inverse
    return tl.where(past, next_a, a), tl.where(past, next_bias, bias)


@triton.jit
@no_type_check
def _gather_window(at, distance, nearest, size, SPAN: tl.constexpr):
    """Return at[distance] for a tile whose distances are nearest ... nearest + SPAN - 1; each entry is read once."""
    window = tl.load(at + _clamp_index(nearest + tl.arange(0, SPAN), size))
    return tl.reshape(
        tl.gather(window, tl.reshape(distance - nearest, [distance.shape[0] * distance.shape[1]]), 0), distance.shape
    )


@triton.jit
@no_type_check
def _entry_of_pairs(at, distance, nearest, size, args, KIND: tl.constexpr, SPAN: tl.constexpr):
    """Return at[distance] for every pair of a tile; distances past an end take the nearest entry."""
    if KIND == GENERAL and args.position_q is not None:
        return tl.load(at + _clamp_index(distance, size))
    else:
        return _gather_window(at, distance, nearest, size, SPAN)


@triton.jit
@no_type_check
def _look_up(distance, nearest, head, args, KIND: tl.constexpr, SPAN: tl.constexpr):
    """Return the table entry and the distance feature of every pair of a tile; 0 if there is none, and in FAR tiles."""
    entry = 0.0
    feature = 0.0
    if args.table is not None and KIND != FAR:
        table = args.table + head * args.table_heads_step
        entry = _entry_of_pairs(
            table, distance - args.table_first, nearest - args.table_first, args.table_size, args, KIND, SPAN
        )
    if args.slope is not None and KIND != FAR:
        feature = _entry_of_pairs(args.distance_feature, distance, nearest, args.feature_size, args, KIND, SPAN)
    return entry, feature


@triton.jit
@no_type_check
def _far_line(head, inverse, args):
    """Return what FAR tiles need of the table, divided by the scale, or zeros without a table: two pairs of a bias and
    its change per distance, for distances before the first entry and past the last.

    With `args.steps` the pairs are for distances below and above 0, and the biases are that at distance 0.
    """
    if args.table is None:
        return 0.0, 0.0, 0.0, 0.0
    elif args.steps is None:
        table = args.table + head * args.table_heads_step
        return tl.load(table) * inverse, 0.0, tl.load(table + args.table_size - 1) * inverse, 0.0
    else:
        zero = tl.load(args.table + head * args.table_heads_step - args.table_first) * inverse
        steps = args.steps + 2 * head
        return zero, tl.load(steps) * inverse, zero, tl.load(steps + 1) * inverse


@triton.jit
@no_type_check
def _add_cumulative_bias(
    s, queries, keys, batch, head, inverse, args, sizes, KIND: tl.constexpr, TRANSPOSED: tl.constexpr
):
    """Return s + (the running sum of each query's own key - that of each key) / scale, without `shift`, and `shift`.

    The sums may be large where their difference is small, so they are subtracted in float64 and rounded afterwards. Of
    tiles that are not GENERAL, a difference is the sum of two: from the key to the block's first query, and from there
    to the query, which is `shift`. With a causal mask the two have the same sign if the sums are monotonic, so nothing
    cancels. In GENERAL tiles that query may be hidden from the key, and its sum may be NaN, so each pair is subtracted.
    """
    sums = _prefix_sums(batch, head, args)
    if KIND == GENERAL:
        key_sum = tl.load(sums + keys[1], mask=keys[1] < sizes.keys, other=0.0)
        gain = _along_queries(queries[8], TRANSPOSED) - _along_keys(key_sum, TRANSPOSED)
        return s + gain.to(tl.float32) * inverse, 0.0
    else:
        first = tl.load(sums + queries[0])
        since_key = (first - tl.load(sums + keys[1])).to(tl.float32) * inverse
        return s + _along_keys(since_key, TRANSPOSED), (queries[8] - first).to(tl.float32) * inverse


@triton.jit
@no_type_check
def _add_bias(
    s, distance, entry, feature, queries, keys, batch, head, info, far_line, inverse, args, sizes, KIND: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Return s + bias / scale without `shift`; `shift`, a number or one for each query; and slope ·
    distance_feature of every pair as two factors, a tile and a number.

    entry, feature: the results of `_look_up`. info: the entry of this tile in the list of tiles. far_line: the result
    of `_far_line`, or None if no tiles are FAR.
    """
    shift = 0.0
    slope_feature = 0.0
    slope_factor = 1.0
    if args.prefix_sum is not None:
        s, shift = _add_cumulative_bias(s, queries, keys, batch, head, inverse, args, sizes, KIND, TRANSPOSED)
    if args.table is not None:
        if KIND == FAR:
            past = (info & 1) == 1
            bias = tl.where(past, far_line[2], far_line[0])
            if args.steps is not None:
                step = tl.where(past, far_line[3], far_line[1])
                # What changes from tile to tile is added along the rows of the tile, of which a thread has two.
                if TRANSPOSED:
                    s += _along_keys(bias + step * (queries[0] - keys[1]).to(tl.float32), True)
                    bias = step * (queries[2] - queries[0]).to(tl.float32)
                else:
                    s += _along_keys(step * (keys[0] - keys[1]).to(tl.float32), False)
                    bias += step * (queries[2] - keys[0]).to(tl.float32)
            shift += bias
        else:
            s += entry * inverse
    if args.rows is not None:
        if KIND == FAR:
            shift += _far_row_entries(args.rows, queries, info, args) * inverse
        else:
            s += _row_entries(args.rows, distance, queries, info, args, KIND, TRANSPOSED) * inverse
    if args.slope is not None and KIND != FAR:
        query_scale = _along_queries(queries[5], TRANSPOSED)
        if KIND == CLEAN:
            at = head * args.slope_heads_step + (info & 0xFF)
            a = tl.load(args.slope + at)
            shift += tl.load(args.intercept + at) * inverse
            s += feature * (query_scale * (a * inverse))
            slope_feature = feature
            slope_factor = a
        else:
            a, bias = _segment_line(feature * query_scale, head, info, inverse, args, KIND)
            s += bias
            slope_feature = a * feature
            slope_factor = 1.0 / inverse
    return s, shift, slope_feature, slope_factor


@triton.jit
@no_type_check
def _subtract_shift(row_lse, shift, factor, args, KIND: tl.constexpr):
    """Return row_lse - shift · factor; tiles without a shift skip it, because even 0 · factor takes a register."""
    if (KIND == FAR) or (KIND == CLEAN and args.slope is not None) or (KIND != GENERAL and args.prefix_sum is not None):
        return row_lse - shift * factor
    else:
        return row_lse
