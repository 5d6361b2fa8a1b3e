"""Triton functions that sum the gradients of segments: slope, intercept and feature_parameter.

A program of `key_gradients` adds up the pairs of its keys and one head, with delta corrected, so that the gradients of
a query's logits sum to 0. Tiles of a line that have the same segments come one after the other (a run), so their
sums stay with the threads until the run ends. With so many segments that each pair searches for its own, each number
is added in memory, as a 64-bit fixed-point number: integer sums do not depend on the order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import _find_segment
from lengthwise.attention.fused.gpu.parts import CLEAN, TWO_KNOTS, _partial_row_sums, _to_fixed_point

CHUNK = tl.constexpr(128)  # tiles whose info is compared at once


@triton.jit
@no_type_check
def _end_of_run(tiles, line, begin, end):
    """Return where the first tiles of `begin` ... `end` that have the same info end, and that info."""
    at = tiles.order + line.to(tl.int64) * tiles.width
    info = tl.load(at + begin) >> 16
    found = end
    for start in range(begin, end, CHUNK):
        n = start + tl.arange(0, CHUNK)
        other = tl.load(at + n, mask=n < end, other=0) >> 16
        found = tl.minimum(found, tl.min(tl.where((n < end) & (other != info), n, end), 0))
    return found, info


@triton.jit
@no_type_check
def _add_pairs(sums, dS, weighted, x, dx, args):
    """Add pairs to partial sums [BN, 4] of dS, and of `weighted` times x and dx."""
    of_dS, of_x, of_dx = sums
    if args.feature_derivative is not None:
        of_dx += _partial_row_sums(weighted * dx)
    return of_dS + _partial_row_sums(dS), of_x + _partial_row_sums(weighted * x), of_dx


@triton.jit
@no_type_check
def _add_past(sums, dS, x, dx, knot, args):
    """Add the pairs that are past a knot."""
    past_dS = tl.where(x >= tl.load(knot), dS, 0.0)
    return _add_pairs(sums, past_dS, past_dS, x, dx, args)


@triton.jit
@no_type_check
def _add_to_run(run, tile, info, args, KIND: tl.constexpr):
    """Add a tile with KIND knots to the sums of a run: for each of up to three segments, of the pairs in it or past it.

    tile: the gradients of the logits [keys, queries], which pairs are visible, distance features and their derivatives,
    and the query scales as a row.
    """
    dS, _, feature, derivative, query_scale = tile
    run_0, run_1, run_2 = run
    if KIND == CLEAN:  # without x, one product less
        run_0 = _add_pairs(run_0, dS, dS * query_scale, feature, derivative, args)
    else:
        x = feature * query_scale
        dx = derivative * query_scale
        knots = args.knots + (info & 0xFF)
        run_0 = _add_pairs(run_0, dS, dS, x, dx, args)
        run_1 = _add_past(run_1, dS, x, dx, knots, args)
        if KIND == TWO_KNOTS:
            run_2 = _add_past(run_2, dS, x, dx, knots + 1, args)
    return run_0, run_1, run_2


@triton.jit
@no_type_check
def _add_to_segments(totals, pairs, slot, s, head, args, FIRST: tl.constexpr):
    """Add the sums of pairs to segment s, and, unless it is the FIRST of their tiles, take them from the one before.

    totals: of the intercept and the slope of each segment [SLOTS], and partial sums [BN, 4] for feature_parameter.
    """
    intercepts, slopes, of_parameter = totals
    of_dS, of_x, of_dx = pairs
    total = tl.sum(tl.sum(of_dS, 1), 0)
    total_x = tl.sum(tl.sum(of_x, 1), 0)
    slope = args.slope + head * args.slope_heads_step + s
    change = tl.load(slope)
    intercepts += tl.where(slot == s, total, 0.0)
    slopes += tl.where(slot == s, total_x, 0.0)
    if not FIRST:
        change -= tl.load(slope - 1)
        intercepts -= tl.where(slot == s - 1, total, 0.0)
        slopes -= tl.where(slot == s - 1, total_x, 0.0)
    return intercepts, slopes, of_parameter + of_dx * change


@triton.jit
@no_type_check
def _add_run_to_segments(totals, run, info, slot, head, args, KIND: tl.constexpr):
    """Add the sums of a run of tiles with KIND knots to `totals`; see `_add_to_segments`."""
    first = info & 0xFF
    totals = _add_to_segments(totals, run[0], slot, first, head, args, True)
    if KIND != CLEAN:
        totals = _add_to_segments(totals, run[1], slot, first + 1, head, args, False)
    if KIND == TWO_KNOTS:
        totals = _add_to_segments(totals, run[2], slot, first + 2, head, args, False)
    return totals


@triton.jit
@no_type_check
def _add_tile_to_segments(totals, zeros, tile, info, slot, head, to, fixed_point_scale, args, sizes):
    """Add a tile with any number of knots to `totals`; with many segments to the fixed-point numbers `to` [2, h, s].

    zeros [BN, 4]. tile: see `_add_to_run`.
    """
    dS, visible, feature, derivative, query_scale = tile
    x = feature * query_scale
    dx = derivative * query_scale
    none = (zeros, zeros, zeros)
    if args.cell is None:
        first = info & 0xFF
        totals = _add_to_segments(totals, _add_pairs(none, dS, dS, x, dx, args), slot, first, head, args, True)
        for s in range(first + 1, first + 1 + (info >> 8)):
            pairs = _add_past(none, dS, x, dx, args.knots + s - 1, args)
            totals = _add_to_segments(totals, pairs, slot, s, head, args, False)
        return totals
    else:
        intercepts, slopes, of_parameter = totals
        s = _find_segment(x, args)
        if args.feature_derivative is not None:
            a = tl.load(args.slope + head * args.slope_heads_step + s)
            of_parameter += _partial_row_sums(dS * (a * dx))
        heads = 1 if args.slope_heads_step == 0 else sizes.heads
        to += head * args.slope_heads_step + s
        tl.atomic_add(to, _to_fixed_point(dS, fixed_point_scale + 1), mask=visible, sem="relaxed")
        to += heads * args.segments
        tl.atomic_add(to, _to_fixed_point(dS * x, fixed_point_scale + 2), mask=visible, sem="relaxed")
        return intercepts, slopes, of_parameter
