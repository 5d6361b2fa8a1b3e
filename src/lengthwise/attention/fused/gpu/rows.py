"""Triton functions that read and sum up tables [b, h, i, r] with a number for each query and distance.

These are `rows` of the bias, and what has the same layout and the same distances: `value_rows`, gradients, and sums of
weights.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.parts import FAR, _along_queries, _clamp_index, _to_fixed_point


@triton.jit
@no_type_check
def _row_entries(at, distance, queries, info, args, KIND: tl.constexpr, TRANSPOSED: tl.constexpr):
    """Return the entry of every pair of a tile; in FAR tiles one for each query."""
    row = _along_queries(queries[6], TRANSPOSED)
    if KIND == FAR:
        return _along_queries(_far_row_entries(at, queries, info, args), TRANSPOSED)
    else:
        return tl.load(at + queries[7] + (row + _clamp_index(distance - args.rows_first, args.rows_size)))


@triton.jit
@no_type_check
def _far_row_entries(at, queries, info, args):
    """Return the entry of each query in a FAR tile."""
    return tl.load(at + queries[7] + (queries[6] + (info & 1) * (args.rows_size - 1)))


@triton.jit
@no_type_check
def _add_to_rows(
    sums, low, high, x, visible, distance, fixed_point_scale, batch, head, queries, info, args, sizes,
    KIND: tl.constexpr,
):  # fmt: skip
    """Add a tile's numbers x to the sums of each query and distance.

    Those past the first and the last entry are added to low and high, [BM], which are returned; the others in memory,
    to `sums` [b, h, i, r], as fixed-point numbers if there is a `fixed_point_scale`.
    """
    if KIND == FAR:
        row_sum = tl.sum(x, 1)
        low += tl.where((info & 1) == 0, row_sum, 0.0)
        high += tl.where((info & 1) == 1, row_sum, 0.0)
    else:
        column = _clamp_index(distance - args.rows_first, args.rows_size)
        number = queries[0] - (sizes.keys - sizes.queries)  # the number of the block's first query
        before = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + number
        to = sums + before * args.rows_size + (queries[6][:, None] + column)
        last = column == args.rows_size - 1
        within = visible & (column > 0) & (last == 0)
        if fixed_point_scale is None:  # every distance occurs once in a row
            tl.store(to, x, mask=within)
        else:
            tl.atomic_add(to, _to_fixed_point(x, fixed_point_scale), mask=within, sem="relaxed")
        low += tl.sum(tl.where(visible & (column == 0) & (last == 0), x, 0.0), 1)
        high += tl.sum(tl.where(visible & last, x, 0.0), 1)
    return low, high
