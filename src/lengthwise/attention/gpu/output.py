"""Triton kernel: the output of one block of queries; parts.py has what is shared."""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.gpu.biases import _below, _biased, _look_up
from lengthwise.attention.gpu.parts import (
    CLEAN,
    FAR,
    GENERAL,
    KNOTS,
    LN2,
    _distances,
    _keys_of,
    _product,
    _queries_of,
    _read,
    _times,
    _visible,
    _write,
)
from lengthwise.attention.gpu.visits import _ends, _keys_seen, _tile


@triton.jit
@no_type_check
def _attend(
    state, q, k_view, v_view, batch, head, queries, block, info, factor, inverse, bias, sight, sizes, KIND: tl.constexpr,
    CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One more block of keys."""
    total, mass, peak = state
    whole: tl.constexpr = KIND != GENERAL
    keys = _keys_of(batch, block, sizes, sight, BN)
    k = _read(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, whole)
    s = _product(q, tl.trans(k))
    distance = _distances(queries, keys, KIND, False)
    entry, u = 0.0, 0.0
    if KIND != FAR:
        entry, u = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, bias, KIND, 2 * (BM if BM > BN else BN))
    s, shift, _, _ = _biased(s, distance, entry, u, queries, head, info, inverse, bias, sizes, KIND, False)
    seen = _visible(queries, keys, sizes, sight, KIND, CAUSAL, False)
    if KIND == GENERAL:
        s = tl.where(seen, s, float("-inf"))
    higher = tl.maximum(peak, tl.max(s, 1) + shift)
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    p = tl.exp2(s * factor - (_below(safe, shift, 1.0, bias, KIND) * factor)[:, None])
    keep = tl.exp2((peak - safe) * factor)
    mass = mass * keep + tl.sum(p, 1)
    v = _read(v_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, whole)
    return _times(total * keep[:, None], p, v, seen, KIND), mass, higher


@triton.jit
@no_type_check
def attend(
    q_view, k_view, v_view, out_view, lse, bias, sight, tiles, sizes, factor, inverse, blocks, splits, share,
    CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """splits > 1: each program sees a part of the keys, and `out` and `lse` have as many times the batch; share: how many
    rows out's batch has for each part."""
    program = tl.program_id(0)
    split = program % splits
    program = program // splits
    ib = blocks - 1 - program % blocks  # those with most to do first
    pair = program // blocks
    batch = pair // sizes.heads
    head = pair % sizes.heads
    q = _read(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    queries = _queries_of(batch, head, ib, sizes, sight, bias, BM, False)

    low, high, clean_low, clean_high = _keys_seen(queries[0], sizes, sight, bias, CAUSAL, BM, BN)
    if splits > 1:
        part = tl.cdiv(high - low, splits)
        low = low + split * part
        high = tl.minimum(high, low + part)
        low = tl.minimum(low, high)
        clean_low = tl.minimum(tl.maximum(clean_low, low), high)
        clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    line = batch * tiles.step + ib
    start, first, second, third, rest, last = _ends(tiles, line, low, high, clean_low, clean_high)

    state = (
        tl.zeros([BM, WIDE], tl.float32), tl.zeros([BM], tl.float32), tl.full([BM], float("-inf"), tl.float32)
    )  # fmt: skip
    for n in range(start, first):
        block, info = _tile(tiles, line, n, first, 0)
        state = _attend(state, q, k_view, v_view, batch, head, queries, block, info, factor, inverse, bias, sight, sizes,
                        CLEAN, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
    if tiles.order is not None:
        if bias.slope is not None:
            for n in range(first, second):
                block, info = _tile(tiles, line, n, 0, 0)
                state = _attend(state, q, k_view, v_view, batch, head, queries, block, info, factor, inverse, bias, sight,
                                sizes, KNOTS, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
        elif (bias.table is not None) or (bias.rows is not None):
            for n in range(second, third):
                block, info = _tile(tiles, line, n, 0, 0)
                state = _attend(state, q, k_view, v_view, batch, head, queries, block, info, factor, inverse, bias, sight,
                                sizes, FAR, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip
    for n in range(rest, last):
        block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
        if tiles.order is None and bias.slope is not None:
            info = (bias.pieces - 1) * 256  # any segment
        state = _attend(state, q, k_view, v_view, batch, head, queries, block, info, factor, inverse, bias, sight, sizes,
                        GENERAL, CAUSAL, BM, BN, DIM, WIDE)  # fmt: skip

    total, mass, peak = state
    total = total / tl.where(mass == 0.0, 1.0, mass)[:, None]
    _write(out_view, batch + split * share, head, ib * BM, sizes.queries, total, BM, DIM, WIDE)
    at = lse + ((batch + split * share).to(tl.int64) * sizes.heads + head) * sizes.queries + queries[1]
    tl.store(at, peak * factor * LN2 + tl.log2(mass) * LN2, mask=queries[1] < sizes.queries)
