"""The Triton kernels of gradients that are summed by distance: table, slope, intercept and distance_feature.

A program processes all tiles with the same distance between the block of queries and the block of keys. If distances
follow from indices, they are the same in all these tiles. So it adds whole tiles and sums along the diagonals once, at
the end. Otherwise (positions with gaps, thousands of segments) each number is added in memory, as a 64-bit fixed-point
number: integer sums do not depend on the order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import _find_segment, _look_up
from lengthwise.attention.fused.gpu.gradients import _load_lse_and_delta, _logit_gradients
from lengthwise.attention.fused.gpu.parts import (
    CLEAN,
    FAR,
    GENERAL,
    KINDS,
    KNOTS,
    TWO_KNOTS,
    _clamp_index,
    _distances,
    _load_keys,
    _load_queries,
    _load_tokens,
    _locate,
    _partial_row_sums,
    _to_fixed_point,
    _to_sum_dtype,
)
from lengthwise.attention.fused.gpu.visits import _blocks_at_distance, _loop_bounds, _occurs, _stages, _tile_entry

CHUNK = tl.constexpr(128)  # tiles whose info is compared at once


@triton.jit
@no_type_check
def _sum_diagonals(x, SIZE: tl.constexpr):
    """Return the sums over row - column = n - SIZE of x [SIZE, SIZE] as entries n of [2 SIZE], in float64."""
    padded = tl.join(x, tl.zeros_like(x))  # [row, column, 2]
    padded = tl.reshape(tl.permute(padded, (0, 2, 1)), (SIZE, 2 * SIZE))  # zeros right of each row
    row = tl.arange(0, SIZE)[:, None]
    n = tl.arange(0, 2 * SIZE)[None, :]
    column = (row - (n - SIZE)) & (2 * SIZE - 1)  # past either end: zeros
    return tl.sum(tl.gather(padded, column, 1).to(tl.float64), 0)


@triton.jit
@no_type_check
def _recompute_tile(
    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, looked_up, factor, inverse, args,
    sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Return the gradient of the logits of the tile at block ib of queries, which pairs are visible, query scales and
    distances.

    looked_up: distances, table entries and features of all tiles of the program, or None to read positions pair by
        pair.
    """
    full: tl.constexpr = KIND != GENERAL
    block = ib - diagonal
    queries = _load_queries(batch, head, ib, sizes, args, B, full)
    keys = _load_keys(batch, block, sizes, args, B)
    q = _load_tokens(q_view, batch, head, ib * B, sizes.queries, B, DIM, PADDED_DIM, full)
    grad = _load_tokens(grad_view, batch, head, ib * B, sizes.queries, B, DIM, PADDED_DIM, full)
    k = _load_tokens(k_view, batch, head // sizes.group, block * B, sizes.keys, B, DIM, PADDED_DIM, full)
    v = _load_tokens(v_view, batch, head // sizes.group, block * B, sizes.keys, B, DIM, PADDED_DIM, full)
    row_lse, row_delta = _load_lse_and_delta(lse, delta, batch, head, queries[1], sizes, full)
    if looked_up is None:
        distance = _distances(queries, keys, KIND, False)
        entry, feature = _look_up(distance, 0, head, args, KIND, B)
    else:
        distance, entry, feature = looked_up
    dS, _, visible, _, _ = _logit_gradients(q, grad, row_lse, row_delta, k, v, distance, entry, feature, queries, keys,
                                            batch, head, info, None, factor, inverse, args, sizes, KIND,
                                            CAUSAL)  # fmt: skip
    return dS, visible, queries[5], distance


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
def _add_to_segments(sums, slot, first, parts, KIND: tl.constexpr):
    """Add the sums of tiles with KIND knots to those of their segments, of which `first` is the first.

    parts: three [B, 4], sums of the pairs that are past at least 0, 1 and 2 of the knots.
    """
    past = tl.sum(tl.sum(parts[0], 1), 0)
    if KIND >= 1:
        past_1 = tl.sum(tl.sum(parts[1], 1), 0)
        sums += tl.where(slot == first, past - past_1, 0.0)
        if KIND >= 2:
            past_2 = tl.sum(tl.sum(parts[2], 1), 0)
            sums += tl.where(slot == first + 1, past_1 - past_2, 0.0) + tl.where(slot == first + 2, past_2, 0.0)
        else:
            sums += tl.where(slot == first + 1, past_1, 0.0)
    else:
        sums += tl.where(slot == first, past, 0.0)
    return sums


@triton.jit
@no_type_check
def _sum_run(run_tile, feature_tile, dS_sums, dSx_sums, dS, feature, query_scale, slope, knots, KIND: tl.constexpr):
    """Add the sums of one more tile of a run: see `_add_to_segments`, and `distance_gradients` for run_tile.

    slope, knots: pointers to those of the tile's first segment.
    """
    dS_0, dS_1, dS_2 = dS_sums
    dSx_0, dSx_1, dSx_2 = dSx_sums
    dS_0 += _partial_row_sums(dS)
    if KIND == CLEAN:
        run_tile += dS * query_scale[:, None]
    else:
        x = feature * query_scale[:, None]
        a = tl.load(slope)
        feature_tile += dS * (a * query_scale)[:, None]
        dSx_0 += _partial_row_sums(dS * x)
        past_dS = tl.where(x >= tl.load(knots), dS, 0.0)
        change = tl.load(slope + 1) - a
        feature_tile += past_dS * (change * query_scale)[:, None]
        dS_1 += _partial_row_sums(past_dS)
        dSx_1 += _partial_row_sums(past_dS * x)
        if KIND == TWO_KNOTS:
            past_dS = tl.where(x >= tl.load(knots + 1), dS, 0.0)
            change = tl.load(slope + 2) - tl.load(slope + 1)
            feature_tile += past_dS * (change * query_scale)[:, None]
            dS_2 += _partial_row_sums(past_dS)
            dSx_2 += _partial_row_sums(past_dS * x)
    return run_tile, feature_tile, (dS_0, dS_1, dS_2), (dSx_0, dSx_1, dSx_2)


@triton.jit
@no_type_check
def _scatter_segments(to, s, x, dS, visible, head, fixed_point_scale, args, sizes):
    heads = 1 if args.slope_heads_step == 0 else sizes.heads
    to = to + head * args.slope_heads_step + s
    tl.atomic_add(to, _to_fixed_point(dS, fixed_point_scale + 2), mask=visible, sem="relaxed")
    tl.atomic_add(
        to + heads * args.segments, _to_fixed_point(dS * x, fixed_point_scale + 3), mask=visible, sem="relaxed"
    )


@triton.jit
@no_type_check
def _sum_segments(
    feature_tile, intercept_sums, slope_sums, slot, dS, visible, feature, query_scale, info, head, to,
    fixed_point_scale, args, sizes,
):  # fmt: skip
    """Add the sums of a tile with any number of knots."""
    x = feature * query_scale[:, None]
    slope = args.slope + head * args.slope_heads_step
    if args.cell is None:
        # All pairs are added to the first segment, and moved to the next where they are past its knot.
        first = info & 0xFF
        a = tl.load(slope + first)
        feature_tile += dS * (a * query_scale)[:, None]
        intercept_sums += tl.where(slot == first, tl.sum(tl.sum(dS, 1), 0), 0.0)
        slope_sums += tl.where(slot == first, tl.sum(tl.sum(dS * x, 1), 0), 0.0)
        for k in range(first, first + (info >> 8)):
            past_dS = tl.where(x >= tl.load(args.knots + k), dS, 0.0)
            next_a = tl.load(slope + k + 1)
            feature_tile += past_dS * ((next_a - a) * query_scale)[:, None]
            a = next_a
            total = tl.sum(tl.sum(past_dS, 1), 0)
            total_x = tl.sum(tl.sum(past_dS * x, 1), 0)
            intercept_sums += tl.where(slot == k + 1, total, 0.0) - tl.where(slot == k, total, 0.0)
            slope_sums += tl.where(slot == k + 1, total_x, 0.0) - tl.where(slot == k, total_x, 0.0)
    else:
        s = _find_segment(x, args)
        a = tl.load(slope + s)
        feature_tile += dS * (a * query_scale[:, None])
        _scatter_segments(to, s, x, dS, visible, head, fixed_point_scale, args, sizes)
    return feature_tile, intercept_sums, slope_sums


@triton.jit
@no_type_check
def distance_gradients(
    q_view, k_view, v_view, grad_view, lse, delta, grad_table, grad_feature, grad_segments, fixed_point_scale, regular,
    args, tiles, sizes, factor, inverse, lines, below, TABLE_GRAD: tl.constexpr, SEGMENT_GRADS: tl.constexpr,
    SLOTS: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Sum gradients by distance, for distances that follow from indices; do nothing if `regular` is 0.

    Tiles past the table's last entry are left out, because the sums of all entries of a row of logits are 0: the
    gradient of the last entry is what the others leave (distances.py).
    grad_table, grad_feature [b h, lines, 2 B]: entry n belongs to the distance offset + diagonal B + n - B.
    grad_segments [b h, lines, 2, SLOTS]: intercept and slope of every segment; with many segments, fixed-point numbers
    [2, h, s] in units of `fixed_point_scale`.
    """
    enabled = True
    if regular is not None:
        enabled = tl.load(regular) == 1
    if enabled:
        program = tl.program_id(0)
        number, _pair, batch, head = _locate(program, lines, sizes.heads)
        diagonal = number - below
        line = batch * tiles.step + number
        bounds = _blocks_at_distance(diagonal, sizes, args, CAUSAL, B)
        starts, ends = _loop_bounds(tiles, line, bounds, False, False)
        row = tl.arange(0, B)
        distance = sizes.keys - sizes.queries + diagonal * B + row[:, None] - row[None, :]
        nearest = sizes.keys - sizes.queries + diagonal * B - (B - 1)
        entry, feature = _look_up(distance, nearest, head, args, GENERAL, 2 * B)
        looked_up = (distance, entry, feature)
        dtype: tl.constexpr = q_view.at.dtype.element_ty
        table_tile = _to_sum_dtype(tl.zeros([B, B], tl.float32), dtype)
        feature_tile = _to_sum_dtype(tl.zeros([B, B], tl.float32), dtype)
        slot = tl.arange(0, SLOTS)
        intercept_sums = _to_sum_dtype(tl.zeros([SLOTS], tl.float32), dtype)
        slope_sums = _to_sum_dtype(tl.zeros([SLOTS], tl.float32), dtype)
        for KIND in tl.static_range(KINDS):
            if SEGMENT_GRADS and KIND <= TWO_KNOTS and args.cell is None:
                # The tiles of a run have the same segments.
                begin = tl.cast(starts[KIND], tl.int32)
                last = tl.cast(ends[KIND], tl.int32)
                while begin < last:
                    end, info = _end_of_run(tiles, line, begin, last)
                    first = info & 0xFF
                    slope = args.slope + head * args.slope_heads_step + first
                    knots = args.knots + first
                    run_tile = _to_sum_dtype(tl.zeros([B, B], tl.float32), dtype)  # dS · query_scale, if CLEAN
                    zeros = _to_sum_dtype(tl.zeros([B, 4], tl.float32), dtype)
                    dS_sums = (zeros, zeros, zeros)
                    dSx_sums = (zeros, zeros, zeros)
                    for n in tl.range(begin, end, num_stages=_stages(KIND)):
                        ib, _ = _tile_entry(tiles, line, n, bounds, KIND, False, False)
                        dS, _, query_scale, _ = _recompute_tile(ib, info, diagonal, batch, head, q_view, k_view, v_view,
                                                                grad_view, lse, delta, looked_up, factor, inverse, args,
                                                                sizes, KIND, CAUSAL, B, DIM, PADDED_DIM)  # fmt: skip
                        dS = _to_sum_dtype(dS, dtype)
                        if TABLE_GRAD:
                            table_tile += dS
                        run_tile, feature_tile, dS_sums, dSx_sums = _sum_run(
                            run_tile, feature_tile, dS_sums, dSx_sums, dS, feature, query_scale, slope, knots, KIND
                        )
                    if KIND == CLEAN:
                        feature_tile += run_tile * tl.load(slope)
                        dSx_sums = (_partial_row_sums(run_tile * feature), zeros, zeros)
                    intercept_sums = _add_to_segments(intercept_sums, slot, first, dS_sums, KIND)
                    slope_sums = _add_to_segments(slope_sums, slot, first, dSx_sums, KIND)
                    begin = end
            elif KIND != FAR and _occurs(tiles, args, KIND):
                for n in range(starts[KIND], ends[KIND]):
                    ib, info = _tile_entry(tiles, line, n, bounds, KIND, False, False)
                    dS, visible, query_scale, _ = _recompute_tile(ib, info, diagonal, batch, head, q_view, k_view,
                                                                  v_view, grad_view, lse, delta, looked_up, factor,
                                                                  inverse, args, sizes, KIND, CAUSAL, B, DIM,
                                                                  PADDED_DIM)  # fmt: skip
                    dS = _to_sum_dtype(dS, dtype)
                    if TABLE_GRAD:
                        table_tile += dS
                    if SEGMENT_GRADS:
                        feature_tile, intercept_sums, slope_sums = _sum_segments(
                            feature_tile, intercept_sums, slope_sums, slot, dS, visible, feature, query_scale, info,
                            head, grad_segments, fixed_point_scale, args, sizes,
                        )  # fmt: skip
        to = program.to(tl.int64) * (2 * B) + tl.arange(0, 2 * B)
        if TABLE_GRAD:
            tl.store(grad_table + to, _sum_diagonals(table_tile, B))
        if SEGMENT_GRADS:
            tl.store(grad_feature + to, _sum_diagonals(feature_tile, B))
            if args.cell is None:
                to = grad_segments + program.to(tl.int64) * (2 * SLOTS) + slot
                tl.store(to, intercept_sums)
                tl.store(to + SLOTS, slope_sums)


@triton.jit
@no_type_check
def position_gradients(
    q_view, k_view, v_view, grad_view, lse, delta, grad_table, grad_feature, grad_segments, fixed_point_scale, regular,
    args, tiles, sizes, factor, inverse, lines, below, TABLE_GRAD: tl.constexpr, SEGMENT_GRADS: tl.constexpr,
    CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Sum gradients by distance pair by pair, if `regular` is 0: distances do not follow from indices.

    The sums are fixed-point numbers in units of `fixed_point_scale` (4 entries: table, distance_feature, intercept,
    slope). grad_table [h, n], grad_feature [n], grad_segments [2, h, s].
    """
    if tl.load(regular) == 0:
        number, _pair, batch, head = _locate(tl.program_id(0), lines, sizes.heads)
        diagonal = number - below
        line = batch * tiles.step + number
        at = tiles.ends + line * KINDS
        far = tl.load(at + KNOTS)
        skip = tl.load(at + FAR) - far
        for n in range(tl.load(at + GENERAL) - skip):
            ib, info = _tile_entry(tiles, line, n + tl.where(n >= far, skip, 0), None, GENERAL, False, False)
            dS, visible, query_scale, distance = _recompute_tile(ib, info, diagonal, batch, head, q_view, k_view,
                                                                 v_view, grad_view, lse, delta, None, factor, inverse,
                                                                 args, sizes, GENERAL, CAUSAL, B, DIM,
                                                                 PADDED_DIM)  # fmt: skip
            if TABLE_GRAD:
                to = (
                    grad_table
                    + head * args.table_heads_step
                    + _clamp_index(distance - args.table_first, args.table_size)
                )
                tl.atomic_add(to, _to_fixed_point(dS, fixed_point_scale), mask=visible, sem="relaxed")
            if SEGMENT_GRADS:
                to = _clamp_index(distance, args.feature_size)
                x = tl.load(args.distance_feature + to) * query_scale[:, None]
                s = tl.zeros_like(x).to(tl.int32) + (info & 0xFF)
                if args.cell is None:
                    for k in range(info & 0xFF, (info & 0xFF) + (info >> 8)):
                        s += (x >= tl.load(args.knots + k)).to(tl.int32)
                else:
                    s = _find_segment(x, args)
                a = tl.load(args.slope + head * args.slope_heads_step + s)
                new = _to_fixed_point(dS * a * query_scale[:, None], fixed_point_scale + 1)
                tl.atomic_add(grad_feature + to, new, mask=visible, sem="relaxed")
                _scatter_segments(grad_segments, s, x, dS, visible, head, fixed_point_scale, args, sizes)


@triton.jit
@no_type_check
def _entries(tile_sums, e, lines, chosen, B: tl.constexpr):
    """Return the entries e of a head's sums by distance: a line's second half lies on the first half of the next."""
    line = e // B
    n = e % B
    own = tl.load(tile_sums + line.to(tl.int64) * (2 * B) + n, mask=chosen & (line < lines), other=0.0)
    before = tl.load(tile_sums + (line - 1).to(tl.int64) * (2 * B) + B + n, mask=chosen & (line > 0), other=0.0)
    return own + before


@triton.jit
@no_type_check
def _sum_range(tile_sums, begin, end, lines, B: tl.constexpr, CHUNK: tl.constexpr):
    """Return the sum of the entries from `begin` to `end` of a head."""
    total = tl.zeros([CHUNK], tl.float64)
    for n in range(begin, end, CHUNK):
        e = n + tl.arange(0, CHUNK)
        total += _entries(tile_sums, e, lines, e < end, B)
    return tl.sum(total, 0)


@triton.jit
@no_type_check
def sum_columns(
    tile_sums, out, pairs, heads, lines, start, columns, programs, B: tl.constexpr, COLUMNS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Sum the results of `distance_gradients` [b h, lines, 2 B] over the batch into columns, [rows, columns].

    pairs: how many of (b, h) belong to a row, the batch times `heads`. Entry e belongs to column e + start; those past
    an end are added to it.
    """
    program = tl.program_id(0)
    row = program // programs
    first = (program % programs) * COLUMNS
    column = first + tl.arange(0, COLUMNS)
    entries = (lines + 1) * B
    e = column - start
    inner = (column > 0) & (column < columns - 1) & (e >= 0) & (e < entries)
    total = tl.zeros([COLUMNS], tl.float64)
    all_heads = heads * (tl.num_programs(0) // programs)
    low = tl.minimum(tl.maximum(1 - start, 0), entries)
    high = tl.maximum(tl.minimum(tl.maximum(columns - 1 - start, 0), entries), low)
    for pair in range(pairs):
        head = row * heads + pair % heads
        number = ((pair // heads) * all_heads + head).to(tl.int64)
        at = tile_sums + number * lines * (2 * B)
        total += _entries(at, e, lines, inner, B)
        if first == 0:
            total += tl.where(column == 0, _sum_range(at, 0, low, lines, B, CHUNK), 0.0)
        if first + COLUMNS >= columns:
            total += tl.where(column == columns - 1, _sum_range(at, high, entries, lines, B, CHUNK), 0.0)
    tl.store(out + row * columns + column, total, mask=column < columns)
