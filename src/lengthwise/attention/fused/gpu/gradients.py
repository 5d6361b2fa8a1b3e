"""The Triton kernels of the backward pass; parts.py has the shared functions.

    inner_products    delta: the inner product of every query's output and its gradient
    key_gradients     gradients of one block of keys and values, sums for prefix_sum, and sums by segment
    query_gradients   gradient of one block of queries, and sums over its rows: for query_scale and rows

Sums by segment are in key_gradients, and not in query_gradients, because they need the corrected delta that the latter
computes. bias_gradients.py has the sums by distance, for tables. Tiles are recomputed from lse, as in flash attention.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import (
    _add_bias,
    _entry_of_pairs,
    _far_line,
    _look_up,
    _subtract_shift,
)
from lengthwise.attention.fused.gpu.parts import (
    FAR,
    GENERAL,
    KINDS,
    LOG2E,
    TWO_KNOTS,
    _distances,
    _dot,
    _load_keys,
    _load_queries,
    _load_tokens,
    _locate,
    _masked_dot,
    _partial_row_sums,
    _store_tokens,
    _to_fixed_point,
    _to_sum_dtype,
    _visible,
)
from lengthwise.attention.fused.gpu.rows import _add_to_rows, _row_entries
from lengthwise.attention.fused.gpu.segment_sums import (
    _add_run_to_segments,
    _add_tile_to_segments,
    _add_to_run,
    _end_of_run,
)
from lengthwise.attention.fused.gpu.visits import (
    _loop_bounds,
    _occurs,
    _stages,
    _tile_entry,
    key_blocks,
    query_blocks,
)


@triton.jit
@no_type_check
def inner_products(
    out_view, grad_view, delta, sizes, blocks, BM: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr
):  # fmt: skip
    block, pair, batch, head = _locate(tl.program_id(0), blocks, sizes.heads)
    out = _load_tokens(out_view, batch, head, block * BM, sizes.queries, BM, DIM, PADDED_DIM, False).to(tl.float32)
    grad = _load_tokens(grad_view, batch, head, block * BM, sizes.queries, BM, DIM, PADDED_DIM, False).to(tl.float32)
    number = block * BM + tl.arange(0, BM)
    at = delta + pair.to(tl.int64) * sizes.queries + number
    tl.store(at, tl.sum(out * grad, 1), mask=number < sizes.queries)


@triton.jit
@no_type_check
def _load_lse_and_delta(lse, delta, batch, head, number, sizes, FULL: tl.constexpr):
    """Load lse in units of log 2, and delta, of queries. Past the last query lse is infinite, so that weights are 0.

    FULL: no query lies past the last.
    """
    before = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries
    if FULL:
        return tl.load(lse + before + number) * LOG2E, tl.load(delta + before + number)
    exists = number < sizes.queries
    row_lse = tl.load(lse + before + number, mask=exists, other=float("inf")) * LOG2E
    return row_lse, tl.load(delta + before + number, mask=exists, other=0.0)


# ---- keys ----------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _accumulate_dk_dv(
    dk, dv, columns, row_sums, row_scale, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info, far_line,
    factor, inverse, args, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Add the contribution of one more block of queries. Tiles are [keys, queries] here, so that none is transposed.

    columns, row_sums: the sums of dS of each key and of each query, if there are `row_sums`; see `key_gradients`.
    Return the sums, and a tuple of what sums by segment need; see `_add_to_run`.
    """
    full: tl.constexpr = KIND != GENERAL
    queries = _load_queries(batch, head, block, sizes, args, BM, full)
    q = _load_tokens(q_view, batch, head, block * BM, sizes.queries, BM, DIM, PADDED_DIM, full)
    s = _dot(k, tl.trans(q))
    distance = _distances(queries, keys, KIND, True)
    entry, feature = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, args, KIND, 2 * max(BM, BN))
    s, shift, _, _ = _add_bias(
        s, distance, entry, feature, queries, keys, batch, head, info, far_line, inverse, args, sizes, KIND, True
    )
    row_lse, row_delta = _load_lse_and_delta(lse, delta, batch, head, queries[1], sizes, full)
    p = tl.exp2(s * factor - _subtract_shift(row_lse, shift, factor, args, KIND)[None, :])
    visible = _visible(queries, keys, sizes, args, KIND, CAUSAL, True)
    if KIND == GENERAL:
        p = tl.where(visible, p, 0.0)
    grad = _load_tokens(grad_view, batch, head, block * BM, sizes.queries, BM, DIM, PADDED_DIM, full)
    dv = _masked_dot(dv, p, grad, visible, KIND)
    dP = _dot(v, tl.trans(grad))
    if args.value_rows is not None:
        dP += _row_entries(args.value_rows, distance, queries, info, args, KIND, True)
    dS = p * (dP - row_delta[None, :])
    if KIND == GENERAL:
        dS = tl.where(visible, dS, 0.0)
    if row_sums is not None:
        summed = _to_sum_dtype(dS, q.dtype)
        columns += tl.sum(summed, 1)
        to = row_sums + (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + queries[1]
        new = _to_fixed_point(tl.sum(summed, 0), row_scale)
        tl.atomic_add(to, new, mask=queries[1] < sizes.queries, sem="relaxed")
    derivative = 0.0
    if args.feature_derivative is not None:
        derivative = _entry_of_pairs(args.feature_derivative, distance, queries[0] - keys[0] - (BN - 1),
                                     args.feature_size, args, KIND, 2 * max(BM, BN))  # fmt: skip
    dk = _masked_dot(dk, dS, q, visible, KIND)
    return dk, dv, columns, (_to_sum_dtype(dS, q.dtype), visible, feature, derivative, queries[5][None, :])


@triton.jit
@no_type_check
def key_gradients(
    q_view, k_view, v_view, grad_view, dk_view, dv_view, row_sums, row_scale, grad_segments, grad_parameter,
    fixed_point_scale, lse, delta, args, tiles, sizes, factor, inverse, scale, blocks, SEGMENT_GRADS: tl.constexpr,
    SLOTS: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a block of keys, and sums of dS: for prefix_sum, and by segment.

    args.grad_prefix_sum [b, h, j]: the negated sum of each key. row_sums [b, h, i]: that of each query, as a
    fixed-point number in units of `row_scale`. What was summed up in prefix_sum has a gradient in which most pairs are
    added once and subtracted once. So both sums must be of the very same numbers, and another kernel rounds
    differently.
    grad_segments [b, h, blocks, 2, SLOTS]: intercept and slope of every segment; with many segments, fixed-point
    numbers [2, h, s] in units of `fixed_point_scale`. grad_parameter [b, h, blocks]: feature_parameter.
    """
    jb, _, batch, kv_head = _locate(tl.program_id(0), blocks, sizes.heads // sizes.group)
    k = _load_tokens(k_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, PADDED_DIM, False)
    v = _load_tokens(v_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, PADDED_DIM, False)
    keys = _load_keys(batch, jb, sizes, args, BN)
    line = batch * tiles.step + jb

    dk = tl.zeros([BN, PADDED_DIM], tl.float32)
    dv = tl.zeros([BN, PADDED_DIM], tl.float32)
    for g in range(sizes.group):
        head = kv_head * sizes.group + g
        bounds = query_blocks(keys[0], head, sizes, args, CAUSAL, BM, BN)
        starts, ends = _loop_bounds(tiles, line, bounds, CAUSAL, True)
        far_line = _far_line(head, inverse, args)
        columns = tl.zeros([BN], tl.float64)  # one addition per column and tile
        slot = tl.arange(0, SLOTS)
        zeros = _to_sum_dtype(tl.zeros([BN, 4], tl.float32), k.dtype)
        zero_slots = _to_sum_dtype(tl.zeros([SLOTS], tl.float32), k.dtype)
        totals = (zero_slots, zero_slots, zeros)
        for KIND in tl.static_range(KINDS):
            if SEGMENT_GRADS and KIND <= TWO_KNOTS and args.cell is None:
                begin = tl.cast(starts[KIND], tl.int32)
                last = tl.cast(ends[KIND], tl.int32)
                while begin < last:
                    end, info = _end_of_run(tiles, line, begin, last)
                    none = (zeros, zeros, zeros)
                    run = (none, none, none)
                    for n in tl.range(begin, end, num_stages=_stages(KIND)):
                        block, _ = _tile_entry(tiles, line, n, bounds, KIND, CAUSAL, True)
                        dk, dv, columns, tile = _accumulate_dk_dv(dk, dv, columns, row_sums, row_scale, k, v, q_view,
                                                                  grad_view, lse, delta, batch, head, keys, block, info,
                                                                  far_line, factor, inverse, args, sizes, KIND, CAUSAL,
                                                                  BM, BN, DIM, PADDED_DIM)  # fmt: skip
                        run = _add_to_run(run, tile, info, args, KIND)
                    totals = _add_run_to_segments(totals, run, info, slot, head, args, KIND)
                    begin = end
            elif _occurs(tiles, args, KIND):
                for n in tl.range(starts[KIND], ends[KIND], num_stages=_stages(KIND)):
                    block, info = _tile_entry(tiles, line, n, bounds, KIND, CAUSAL, True)
                    dk, dv, columns, tile = _accumulate_dk_dv(dk, dv, columns, row_sums, row_scale, k, v, q_view,
                                                              grad_view, lse, delta, batch, head, keys, block, info,
                                                              far_line, factor, inverse, args, sizes, KIND, CAUSAL, BM,
                                                              BN, DIM, PADDED_DIM)  # fmt: skip
                    if SEGMENT_GRADS:
                        totals = _add_tile_to_segments(totals, zeros, tile, info, slot, head, grad_segments,
                                                       fixed_point_scale, args, sizes)  # fmt: skip
        pair = batch.to(tl.int64) * sizes.heads + head
        if SEGMENT_GRADS:
            tl.store(grad_parameter + pair * blocks + jb, tl.sum(tl.sum(totals[2], 1), 0))
            if args.cell is None:
                to = grad_segments + (pair * blocks + jb) * (2 * SLOTS) + slot
                tl.store(to, totals[0])
                tl.store(to + SLOTS, totals[1])
        if args.grad_prefix_sum is not None:
            at = pair * sizes.keys + keys[1]
            tl.store(args.grad_prefix_sum + at, -columns, mask=keys[1] < sizes.keys)
    _store_tokens(dk_view, batch, kv_head, jb * BN, sizes.keys, dk * scale, BN, DIM, PADDED_DIM)
    _store_tokens(dv_view, batch, kv_head, jb * BN, sizes.keys, dv, BN, DIM, PADDED_DIM)


# ---- queries -------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _weights(
    q, row_lse, k, distance, entry, feature, queries, keys, batch, head, info, far_line, factor, inverse, args, sizes,
    KIND: tl.constexpr,
):  # fmt: skip
    """Return a tile's weights [queries, keys], unmasked, and slope · distance_feature as two factors (`_add_bias`)."""
    s = _dot(q, tl.trans(k))
    s, shift, slope_feature, slope_factor = _add_bias(
        s, distance, entry, feature, queries, keys, batch, head, info, far_line, inverse, args, sizes, KIND, False
    )
    p = tl.exp2(s * factor - _subtract_shift(row_lse, shift, factor, args, KIND)[:, None])
    return p, slope_feature, slope_factor


@triton.jit
@no_type_check
def _logit_gradients(
    q, grad, row_lse, row_delta, k, v, distance, entry, feature, queries, keys, batch, head, info, far_line, factor,
    inverse, args, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Return the gradient of a tile's logits [queries, keys] (0 for hidden pairs), the weights, which pairs are
    visible, and slope · distance_feature in two factors (see `_add_bias`)."""
    p, slope_feature, slope_factor = _weights(q, row_lse, k, distance, entry, feature, queries, keys, batch, head, info,
                                              far_line, factor, inverse, args, sizes, KIND)  # fmt: skip
    dP = _dot(grad, tl.trans(v))
    if args.value_rows is not None:
        dP += _row_entries(args.value_rows, distance, queries, info, args, KIND, False)
    dS = p * (dP - row_delta[:, None])
    visible = _visible(queries, keys, sizes, args, KIND, CAUSAL, False)
    if KIND == GENERAL:
        p = tl.where(visible, p, 0.0)
        dS = tl.where(visible, dS, 0.0)
    return dS, p, visible, slope_feature, slope_factor


@triton.jit
@no_type_check
def _accumulate_dq(
    state, q, grad, row_lse, row_delta, k_view, v_view, drows, fixed_point_scale, batch, head, queries, block, info,
    far_line, factor, inverse, args, sizes, KIND: tl.constexpr, ROW_SUMS: tl.constexpr, SEGMENT_GRADS: tl.constexpr,
    CAUSAL: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Add the contribution of one more block of keys to the state of a block of queries.

    The state holds dq, the gradient of query_scale, the sums of dS past the first and the last entry of `rows`, and the
    sum of dS (`rest`), which would be 0 without rounding errors. To correct for `rest`, it also holds the mean of slope
    · distance_feature. Three of these are in four parts: see `_partial_row_sums`.
    """
    dq, dw, rows_low, rows_high, rest, mean = state
    full: tl.constexpr = KIND != GENERAL
    keys = _load_keys(batch, block, sizes, args, BN)
    k = _load_tokens(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, PADDED_DIM, full)
    v = _load_tokens(v_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, PADDED_DIM, full)
    distance = _distances(queries, keys, KIND, False)
    entry, feature = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, args, KIND, 2 * max(q.shape[0], BN))
    dS, p, visible, slope_feature, slope_factor = _logit_gradients(q, grad, row_lse, row_delta, k, v, distance, entry,
                                                                   feature, queries, keys, batch, head, info, far_line,
                                                                   factor, inverse, args, sizes, KIND,
                                                                   CAUSAL)  # fmt: skip
    dq = _masked_dot(dq, dS, k, visible, KIND)
    if ROW_SUMS:
        rest += _partial_row_sums(_to_sum_dtype(dS, q.dtype))
    if SEGMENT_GRADS and KIND != FAR:
        dw += _partial_row_sums(_to_sum_dtype(dS, q.dtype) * slope_feature) * slope_factor
        mean += _partial_row_sums(p * slope_feature) * slope_factor
    if drows is not None:
        rows_low, rows_high = _add_to_rows(drows, rows_low, rows_high, dS, visible, distance, fixed_point_scale, batch,
                                           head, queries, info, args, sizes, KIND)  # fmt: skip
    return dq, dw, rows_low, rows_high, rest, mean


@triton.jit
@no_type_check
def query_gradients(
    q_view, k_view, v_view, grad_view, dq_view, lse, delta, corrected, residuals, dw, means, ends, drows,
    fixed_point_scale, args, tiles, sizes, factor, inverse, scale, blocks, ROW_SUMS: tl.constexpr,
    SEGMENT_GRADS: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Compute dq of a block of queries and the sums over its rows.

    residuals [b, h, i]: the sum of dS, that of a sink included, if ROW_SUMS. It would be 0 without rounding errors, as
    the gradient of a bias needs; `corrected` is delta plus that sum. dw, means [b, h, i]: the gradient of query_scale;
    the mean of slope · distance_feature under the query's weights. ends [2, b, h, i]: sums of dS past the first and the
    last entry of rows. drows [b, h, i, r]: fixed-point numbers if there is a `fixed_point_scale`.
    """
    number, pair, batch, head = _locate(tl.program_id(0), blocks, sizes.heads)
    ib = blocks - 1 - number  # longest first
    q = _load_tokens(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, PADDED_DIM, False)
    grad = _load_tokens(grad_view, batch, head, ib * BM, sizes.queries, BM, DIM, PADDED_DIM, False)
    queries = _load_queries(batch, head, ib, sizes, args, BM, False)
    row_lse, row_delta = _load_lse_and_delta(lse, delta, batch, head, queries[1], sizes, False)
    bounds = key_blocks(queries[0], head, 0, 1, sizes, args, CAUSAL, BM, BN)
    line = batch * tiles.step + ib
    starts, stops = _loop_bounds(tiles, line, bounds, CAUSAL, False)
    far_line = _far_line(head, inverse, args)

    zeros = tl.zeros([BM], tl.float32)
    zeros64 = tl.zeros([BM, 4], tl.float64)  # one addition per row, part and tile
    dq = tl.zeros([BM, PADDED_DIM], tl.float32)
    state = (dq, zeros64, zeros, zeros, zeros64, zeros64)
    for KIND in tl.static_range(KINDS):
        if _occurs(tiles, args, KIND):
            for n in tl.range(starts[KIND], stops[KIND], num_stages=_stages(KIND)):
                block, info = _tile_entry(tiles, line, n, bounds, KIND, CAUSAL, False)
                state = _accumulate_dq(state, q, grad, row_lse, row_delta, k_view, v_view, drows, fixed_point_scale,
                                       batch, head, queries, block, info, far_line, factor, inverse, args, sizes, KIND,
                                       ROW_SUMS, SEGMENT_GRADS, CAUSAL, BN, DIM, PADDED_DIM)  # fmt: skip

    _store_tokens(dq_view, batch, head, ib * BM, sizes.queries, state[0] * scale, BM, DIM, PADDED_DIM)
    exists = queries[1] < sizes.queries
    at = pair.to(tl.int64) * sizes.queries + queries[1]
    if ROW_SUMS:
        rest = tl.sum(state[4], 1)
        if args.sink is not None:  # its dS: the weight times -delta
            rest -= (tl.exp2(tl.load(args.sink + head) * LOG2E - row_lse) * row_delta).to(tl.float64)
        tl.store(residuals + at, rest, mask=exists)
        tl.store(corrected + at, (row_delta.to(tl.float64) + rest).to(tl.float32), mask=exists)
    if SEGMENT_GRADS:
        tl.store(dw + at, tl.sum(state[1], 1), mask=exists)
        tl.store(means + at, tl.sum(state[5], 1), mask=exists)
    if ends is not None:
        step = (tl.num_programs(0) // blocks).to(tl.int64) * sizes.queries
        tl.store(ends + at, state[2], mask=exists)
        tl.store(ends + step + at, state[3], mask=exists)
