"""The Triton kernel of the forward pass: the output of one block of queries. parts.py has the shared functions."""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import _add_bias, _far_line, _look_up, _subtract_shift
from lengthwise.attention.fused.gpu.parts import (
    GENERAL,
    KINDS,
    LN2,
    _distances,
    _dot,
    _load_keys,
    _load_queries,
    _load_tokens,
    _locate,
    _masked_dot,
    _store_tokens,
    _visible,
)
from lengthwise.attention.fused.gpu.visits import _loop_bounds, _occurs, _stages, _tile_entry, key_blocks


@triton.jit
@no_type_check
def _attend(
    state, q, k_view, v_view, batch, head, queries, block, info, far_line, factor, inverse, args,
    sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):  # fmt: skip
    acc, row_sum, row_max = state
    full: tl.constexpr = KIND != GENERAL
    keys = _load_keys(batch, block, sizes, args, BN)
    k = _load_tokens(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, PADDED_DIM, full)
    s = _dot(q, tl.trans(k))
    distance = _distances(queries, keys, KIND, False)
    entry, feature = _look_up(distance, queries[0] - keys[0] - (BN - 1), head, args, KIND, 2 * max(BM, BN))
    s, shift, _, _ = _add_bias(
        s, distance, entry, feature, queries, keys, batch, head, info, far_line, inverse, args, sizes, KIND, False
    )
    visible = _visible(queries, keys, sizes, args, KIND, CAUSAL, False)
    if KIND == GENERAL:
        s = tl.where(visible, s, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(s, 1) + shift)
    finite_max = tl.where(new_max == float("-inf"), 0.0, new_max)
    p = tl.exp2(s * factor - (_subtract_shift(finite_max, shift, 1.0, args, KIND) * factor)[:, None])
    rescale = tl.exp2((row_max - finite_max) * factor)
    row_sum = row_sum * rescale + tl.sum(p, 1)
    v = _load_tokens(v_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, PADDED_DIM, full)
    return _masked_dot(acc * rescale[:, None], p, v, visible, KIND), row_sum, new_max


@triton.jit
@no_type_check
def attend(
    q_view, k_view, v_view, out_view, lse, args, tiles, sizes, factor, inverse, blocks, splits, split_batch,
    CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Compute the output and lse of a block of queries.

    splits > 1: each program processes a part of the keys, and the batch of `out` and `lse` is `splits` times as large.
    split_batch: the number of rows of the batch of `out` for each part.
    """
    program = tl.program_id(0)
    split = program % splits
    number, _, batch, head = _locate(program // splits, blocks, sizes.heads)
    ib = blocks - 1 - number  # longest first
    q = _load_tokens(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, PADDED_DIM, False)
    queries = _load_queries(batch, head, ib, sizes, args, BM, False)

    bounds = key_blocks(queries[0], head, split, splits, sizes, args, CAUSAL, BM, BN)
    line = batch * tiles.step + ib
    starts, ends = _loop_bounds(tiles, line, bounds, CAUSAL, False)
    far_line = _far_line(head, inverse, args)

    row_sum = tl.zeros([BM], tl.float32)
    row_max = tl.full([BM], float("-inf"), tl.float32)
    if args.sink is not None:  # the first of the row's logits; one of the splits has it
        row_max = row_sum + tl.where(split == 0, tl.load(args.sink + head) * inverse, float("-inf"))
        row_sum = tl.where(row_max == float("-inf"), 0.0, 1.0)
    state = (tl.zeros([BM, PADDED_DIM], tl.float32), row_sum, row_max)
    for KIND in tl.static_range(KINDS):
        if _occurs(tiles, args, KIND):
            for n in tl.range(starts[KIND], ends[KIND], num_stages=_stages(KIND)):
                block, info = _tile_entry(tiles, line, n, bounds, KIND, CAUSAL, False)
                if KIND == GENERAL and tiles.order is None and args.slope is not None:
                    info = (args.segments - 1) * 256  # any segment
                state = _attend(state, q, k_view, v_view, batch, head, queries, block, info, far_line, factor, inverse,
                                args, sizes, KIND, CAUSAL, BM, BN, DIM, PADDED_DIM)  # fmt: skip

    acc, row_sum, row_max = state
    acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    _store_tokens(out_view, batch + split * split_batch, head, ib * BM, sizes.queries, acc, BM, DIM, PADDED_DIM)
    at = lse + ((batch + split * split_batch).to(tl.int64) * sizes.heads + head) * sizes.queries + queries[1]
    tl.store(at, row_max * factor * LN2 + tl.log2(row_sum) * LN2, mask=queries[1] < sizes.queries)
