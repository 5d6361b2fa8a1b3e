"""The Triton kernel that sums up the weights of each query by distance, for vectors that are added to values.

The output needs a row's final maximum, so this is a pass of its own over the keys, after that of output.py. It
multiplies no values.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import _far_line, _look_up
from lengthwise.attention.fused.gpu.gradients import _load_lse_and_delta, _weights
from lengthwise.attention.fused.gpu.parts import (
    FAR,
    GENERAL,
    KINDS,
    _distances,
    _load_keys,
    _load_queries,
    _load_tokens,
    _locate,
    _visible,
)
from lengthwise.attention.fused.gpu.rows import _add_to_rows
from lengthwise.attention.fused.gpu.visits import _loop_bounds, _occurs, _stages, _tile_entry, key_blocks


@triton.jit
@no_type_check
def _add_weights(
    ends, q, row_lse, k_view, sums, fixed_point_scale, batch, head, queries, block, info, far_line, factor, inverse,
    args, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Add the weights of one more block of keys; see `_add_to_rows`."""
    low, high = ends
    keys = _load_keys(batch, block, sizes, args, BN)
    k = _load_tokens(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, PADDED_DIM, KIND != GENERAL)
    distance = _distances(queries, keys, KIND, False)
    entry, feature = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, args, KIND, 2 * max(q.shape[0], BN))
    p, _, _ = _weights(q, row_lse, k, distance, entry, feature, queries, keys, batch, head, info, far_line, factor,
                       inverse, args, sizes, KIND)  # fmt: skip
    visible = _visible(queries, keys, sizes, args, KIND, CAUSAL, False)
    if KIND == GENERAL:
        p = tl.where(visible, p, 0.0)
    return _add_to_rows(
        sums, low, high, p, visible, distance, fixed_point_scale, batch, head, queries, info, args, sizes, KIND
    )


@triton.jit
@no_type_check
def weights_by_distance(
    q_view, k_view, lse, sums, ends, fixed_point_scale, args, tiles, sizes, factor, inverse, blocks, splits,
    NEAR_ONLY: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Sum up the weights of a block of queries by distance.

    sums [b, h, i, r]: of each distance between the ends, which other programs do not write to, or fixed-point numbers
    if there is a `fixed_point_scale`. ends [splits, 2, b, h, i]: of the first and the last distance and all past them.
    splits > 1: each program processes a part of the keys. NEAR_ONLY: keys that are so far before all queries of the
    block that they belong to the last distance are left out where that saves time, so the sums of the last distance are
    wrong.
    """
    program = tl.program_id(0)
    split = program % splits
    number, pair, batch, head = _locate(program // splits, blocks, sizes.heads)
    ib = blocks - 1 - number  # longest first
    q = _load_tokens(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, PADDED_DIM, False)
    queries = _load_queries(batch, head, ib, sizes, args, BM, False)
    row_lse, _ = _load_lse_and_delta(lse, lse, batch, head, queries[1], sizes, False)  # delta is not used
    bounds = key_blocks(queries[0], head, split, splits, sizes, args, CAUSAL, BM, BN)
    line = batch * tiles.step + ib
    starts, stops = _loop_bounds(tiles, line, bounds, CAUSAL, False)
    far_line = _far_line(head, inverse, args)

    row_ends = (tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32))
    for KIND in tl.static_range(KINDS):
        if _occurs(tiles, args, KIND) and not (NEAR_ONLY and KIND == FAR):
            for n in tl.range(starts[KIND], stops[KIND], num_stages=_stages(KIND)):
                block, info = _tile_entry(tiles, line, n, bounds, KIND, CAUSAL, False)
                if KIND == GENERAL and tiles.order is None and args.slope is not None:
                    info = (args.segments - 1) * 256  # any segment
                row_ends = _add_weights(row_ends, q, row_lse, k_view, sums, fixed_point_scale, batch, head, queries,
                                        block, info, far_line, factor, inverse, args, sizes, KIND, CAUSAL, BN, DIM,
                                        PADDED_DIM)  # fmt: skip
    step = (tl.num_programs(0) // (blocks * splits)).to(tl.int64) * sizes.queries
    at = ends + 2 * split * step + pair.to(tl.int64) * sizes.queries + queries[1]
    tl.store(at, row_ends[0], mask=queries[1] < sizes.queries)
    tl.store(at + step, row_ends[1], mask=queries[1] < sizes.queries)
