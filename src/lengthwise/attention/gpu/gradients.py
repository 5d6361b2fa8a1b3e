"""Triton kernels of the backward pass; parts.py has what is shared.

    inner_products   of every query, its output and the output's gradient
    of_keys          gradients of one block of keys and values
    of_queries       gradient of one block of queries, and the sums over its rows: w, rows, a table's far ends

bias_gradients.py has what is summed by distance. Tiles are computed anew from lse, as in flash attention.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.gpu.biases import _below, _biased, _look_up
from lengthwise.attention.gpu.parts import (
    CLEAN,
    FAR,
    GENERAL,
    KNOTS,
    LOG2E,
    _distances,
    _keys_of,
    _product,
    _queries_of,
    _read,
    _times,
    _visible,
    _whole,
    _wide,
    _within,
    _write,
)
from lengthwise.attention.gpu.visits import _ends, _keys_seen, _queries_seeing, _tile


@triton.jit
@no_type_check
def inner_products(
    out_view, grad_view, delta, sizes, blocks, BM: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0)
    block = program % blocks
    pair = program // blocks
    batch = pair // sizes.heads
    head = pair % sizes.heads
    out = _read(out_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, False).to(tl.float32)
    grad = _read(grad_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, False).to(tl.float32)
    number = block * BM + tl.arange(0, BM)
    at = delta + pair.to(tl.int64) * sizes.queries + number
    tl.store(at, tl.sum(out * grad, 1), mask=number < sizes.queries)


@triton.jit
@no_type_check
def _levels(lse, delta, batch, head, number, sizes, ALL: tl.constexpr):
    """lse in units of log 2, and delta, of queries; such that there is no weight where there is no query. ALL: all are."""
    before = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries
    if ALL:
        return tl.load(lse + before + number) * LOG2E, tl.load(delta + before + number)
    there = number < sizes.queries
    level = tl.load(lse + before + number, mask=there, other=float("inf")) * LOG2E
    return level, tl.load(delta + before + number, mask=there, other=0.0)


# ---- keys ----------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _change_keys(
    dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info, factor, inverse, bias, sight, sizes,
    KIND: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What one more block of queries adds. Tiles are [keys, queries] here, so that none has to be transposed."""
    whole: tl.constexpr = KIND != GENERAL
    queries = _queries_of(batch, head, block, sizes, sight, bias, BM, whole)
    q = _read(q_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, whole)
    s = _product(k, tl.trans(q))
    distance = _distances(queries, keys, KIND, True)
    entry, u = 0.0, 0.0
    if KIND != FAR:
        entry, u = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, bias, KIND, 2 * (BM if BM > BN else BN))
    s, shift, _, _ = _biased(s, distance, entry, u, queries, head, info, inverse, bias, sizes, KIND, True)
    level, less = _levels(lse, delta, batch, head, queries[1], sizes, whole)
    p = tl.exp2(s * factor - _below(level, shift, factor, bias, KIND)[None, :])
    seen = _visible(queries, keys, sizes, sight, KIND, CAUSAL, True)
    if KIND == GENERAL:
        p = tl.where(seen, p, 0.0)
    grad = _read(grad_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, whole)
    dv = _times(dv, p, grad, seen, KIND)
    ds = p * (_product(v, tl.trans(grad)) - less[None, :])
    if KIND == GENERAL:
        ds = tl.where(seen, ds, 0.0)
    return _times(dk, ds, q, seen, KIND), dv


@triton.jit
@no_type_check
def of_keys(
    q_view, k_view, v_view, grad_view, dk_view, dv_view, lse, delta, bias, sight, tiles, sizes, factor, inverse, scale,
    blocks, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    jb = program % blocks
    pair = program // blocks
    kv_heads = sizes.heads // sizes.group
    batch = pair // kv_heads
    kv_head = pair % kv_heads
    k = _read(k_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, WIDE, False)
    v = _read(v_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, WIDE, False)
    keys = _keys_of(batch, jb, sizes, sight, BN)
    low, high, clean_low, clean_high = _queries_seeing(keys[0], sizes, sight, CAUSAL, BM, BN)
    line = batch * tiles.step + jb
    start, first, second, third, rest, last = _ends(tiles, line, low, high, clean_low, clean_high)

    dk = tl.zeros([BN, WIDE], tl.float32)
    dv = tl.zeros([BN, WIDE], tl.float32)
    for g in range(sizes.group):
        head = kv_head * sizes.group + g
        for n in range(start, first):
            block, info = _tile(tiles, line, n, first, 0)
            dk, dv = _change_keys(dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info, factor,
                                  inverse, bias, sight, sizes, CLEAN, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
        if tiles.order is not None:
            if bias.slope is not None:
                for n in range(first, second):
                    block, info = _tile(tiles, line, n, 0, 0)
                    dk, dv = _change_keys(dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info,
                                          factor, inverse, bias, sight, sizes, KNOTS, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
            elif (bias.table is not None) or (bias.rows is not None):
                for n in range(second, third):
                    block, info = _tile(tiles, line, n, 0, 0)
                    dk, dv = _change_keys(dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info,
                                          factor, inverse, bias, sight, sizes, FAR, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
        for n in range(rest, last):
            block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
            dk, dv = _change_keys(dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, keys, block, info, factor,
                                  inverse, bias, sight, sizes, GENERAL, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
    _write(dk_view, batch, kv_head, jb * BN, sizes.keys, dk * scale, BN, DIM, WIDE)
    _write(dv_view, batch, kv_head, jb * BN, sizes.keys, dv, BN, DIM, WIDE)


# ---- queries -------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _change(
    q, grad, level, less, k, v, distance, entry, u, queries, keys, head, info, factor, inverse, bias, sight, sizes,
    KIND: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile's logits [queries, keys], 0 where hidden; their weights; which pairs are seen; slope · u, see
    `_biased`."""
    s = _product(q, tl.trans(k))
    s, shift, spread, times = _biased(s, distance, entry, u, queries, head, info, inverse, bias, sizes, KIND, False)
    p = tl.exp2(s * factor - _below(level, shift, factor, bias, KIND)[:, None])
    ds = p * (_product(grad, tl.trans(v)) - less[:, None])
    seen = _visible(queries, keys, sizes, sight, KIND, CAUSAL, False)
    if KIND == GENERAL:
        p = tl.where(seen, p, 0.0)
        ds = tl.where(seen, ds, 0.0)
    return ds, p, seen, spread, times


@triton.jit
@no_type_check
def _change_queries(
    state, q, grad, level, less, k_view, v_view, drows, room, batch, head, queries, block, info, factor, inverse, bias,
    sight, sizes, KIND: tl.constexpr, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, CAUSAL: tl.constexpr,
    BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What one more block of keys adds to dq, dw, and the rows' sums past the first entry of the table, its last, and those
    of `rows`; to the sum of its changes, and to what that is to be taken off by: the mean of slope · u, and the weights past
    either end of the table."""
    dq, dw, table_low, table_high, rows_low, rows_high, rest, mean, weight_low, weight_high = state
    whole: tl.constexpr = KIND != GENERAL
    keys = _keys_of(batch, block, sizes, sight, BN)
    k = _read(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, whole)
    v = _read(v_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, whole)
    distance = _distances(queries, keys, KIND, False)
    entry, u = 0.0, 0.0
    if KIND != FAR:
        entry, u = _look_up(
            distance, queries[0] - keys[0] - (BN - 1), head, bias, KIND, 2 * (q.shape[0] if q.shape[0] > BN else BN)
        )
    ds, p, seen, spread, times = _change(q, grad, level, less, k, v, distance, entry, u, queries, keys, head, info, factor, inverse,
                               bias, sight, sizes, KIND, CAUSAL)  # fmt: skip
    dq = _times(dq, ds, k, seen, KIND)
    if OF_TABLE or OF_PIECES:
        rest += tl.sum(_wide(ds, q.dtype), 1)
    if OF_PIECES and KIND != FAR:
        dw += tl.sum(_wide(ds, q.dtype) * spread, 1) * times
        mean += tl.sum(p * spread, 1) * times
    if KIND == FAR:
        if OF_TABLE:
            side = tl.sum(_wide(ds, q.dtype), 1)
            table_low += tl.where((info & 1) == 0, side, 0.0)
            table_high += tl.where((info & 1) == 1, side, 0.0)
            if q.dtype == tl.float32:  # halves are off by more than what this mends, and it takes registers
                weight = tl.sum(p, 1)
                weight_low += tl.where((info & 1) == 0, weight, 0.0)
                weight_high += tl.where((info & 1) == 1, weight, 0.0)
        if drows is not None:
            side = tl.sum(ds, 1)
            rows_low += tl.where((info & 2) == 0, side, 0.0)
            rows_high += tl.where((info & 2) == 2, side, 0.0)
    elif drows is not None:
        column = distance - bias.rows_first
        if KIND == GENERAL:
            column = _within(column, bias.rows_size)
        number = queries[0] - (sizes.keys - sizes.queries)  # of the block's first query
        before = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + number
        to = drows + before * bias.rows_size + (queries[6][:, None] + column)
        last = column == bias.rows_size - 1
        within = seen & (column > 0) & (last == 0)
        if room is None:  # a distance is in a row once
            tl.store(to, ds, mask=within)
        else:
            tl.atomic_add(to, _whole(ds, room), mask=within, sem="relaxed")
        rows_low += tl.sum(tl.where(seen & (column == 0) & (last == 0), ds, 0.0), 1)
        rows_high += tl.sum(tl.where(seen & last, ds, 0.0), 1)
    return dq, dw, table_low, table_high, rows_low, rows_high, rest, mean, weight_low, weight_high


@triton.jit
@no_type_check
def _less(total, rest, weight):
    """total - rest · weight; a row that puts no weight there says nothing of it, NaN or not."""
    return total - tl.where(weight == 0.0, 0.0, rest * weight)


@triton.jit
@no_type_check
def of_queries(
    q_view, k_view, v_view, grad_view, dq_view, lse, delta, rests, dw, means, ends, drows, room, bias, sight, tiles, sizes, factor,
    inverse, scale, blocks, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """rests, dw, means [b, h, i]: the sum of a query's changes, which would be 0; w's gradient; the mean of slope · u by the
    query's weights. ends [4, b, h, i]: sums past the table's first entry, its last, those of rows; drows [b, h, i, r], whole
    numbers where there is `room`."""
    program = tl.program_id(0)
    ib = blocks - 1 - program % blocks  # those with most to do first
    pair = program // blocks
    batch = pair // sizes.heads
    head = pair % sizes.heads
    q = _read(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    grad = _read(grad_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    queries = _queries_of(batch, head, ib, sizes, sight, bias, BM, False)
    level, less = _levels(lse, delta, batch, head, queries[1], sizes, False)
    low, high, clean_low, clean_high = _keys_seen(queries[0], sizes, sight, bias, CAUSAL, BM, BN)
    line = batch * tiles.step + ib
    start, first, second, third, rest, last = _ends(tiles, line, low, high, clean_low, clean_high)

    nothing = tl.zeros([BM], tl.float32)
    far = _wide(nothing, q.dtype)
    wide = tl.zeros([BM], tl.float64)  # an addition a row and tile
    state = (tl.zeros([BM, WIDE], tl.float32), wide, far, far, nothing, nothing, wide, wide, nothing, nothing)
    for n in range(start, first):
        block, info = _tile(tiles, line, n, first, 0)
        state = _change_queries(state, q, grad, level, less, k_view, v_view, drows, room, batch, head, queries, block, info,
                                factor, inverse, bias, sight, sizes, CLEAN, OF_TABLE, OF_PIECES, CAUSAL, BN, DIM,
                                WIDE)  # fmt: skip
    if tiles.order is not None:
        if bias.slope is not None:
            for n in range(first, second):
                block, info = _tile(tiles, line, n, 0, 0)
                state = _change_queries(state, q, grad, level, less, k_view, v_view, drows, room, batch, head, queries,
                                        block, info, factor, inverse, bias, sight, sizes, KNOTS, OF_TABLE, OF_PIECES,
                                        CAUSAL, BN, DIM, WIDE)  # fmt: skip
        elif (bias.table is not None) or (bias.rows is not None):
            for n in range(second, third):
                block, info = _tile(tiles, line, n, 0, 0)
                state = _change_queries(state, q, grad, level, less, k_view, v_view, drows, room, batch, head, queries,
                                        block, info, factor, inverse, bias, sight, sizes, FAR, OF_TABLE, OF_PIECES,
                                        CAUSAL, BN, DIM, WIDE)  # fmt: skip
    for n in range(rest, last):
        block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
        state = _change_queries(state, q, grad, level, less, k_view, v_view, drows, room, batch, head, queries, block, info,
                                factor, inverse, bias, sight, sizes, GENERAL, OF_TABLE, OF_PIECES, CAUSAL, BN, DIM,
                                WIDE)  # fmt: skip

    _write(dq_view, batch, head, ib * BM, sizes.queries, state[0] * scale, BM, DIM, WIDE)
    there = queries[1] < sizes.queries
    at = pair.to(tl.int64) * sizes.queries + queries[1]
    if OF_TABLE or OF_PIECES:
        tl.store(rests + at, state[6], mask=there)
    if OF_PIECES:
        tl.store(dw + at, state[1], mask=there)
        tl.store(means + at, state[7], mask=there)
    if ends is not None:
        step = (tl.num_programs(0) // blocks).to(tl.int64) * sizes.queries
        tl.store(ends + at, _less(state[2], state[6], state[8]), mask=there)
        tl.store(ends + step + at, _less(state[3], state[6], state[9]), mask=there)
        tl.store(ends + 2 * step + at, state[4], mask=there)
        tl.store(ends + 3 * step + at, state[5], mask=there)
