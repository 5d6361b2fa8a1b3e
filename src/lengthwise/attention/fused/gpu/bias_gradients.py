"""The Triton kernels of the gradient of a table, which is summed by distance.

A program processes all tiles with the same distance between the block of queries and the block of keys. If distances
follow from indices, they are the same in all these tiles. So it adds whole tiles and sums along the diagonals once, at
the end. Otherwise (positions with gaps) each number is added in memory, as a 64-bit fixed-point number: integer sums do
not depend on the order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.biases import _look_up
from lengthwise.attention.fused.gpu.gradients import _load_lse_and_delta, _logit_gradients
from lengthwise.attention.fused.gpu.parts import (
    FAR,
    GENERAL,
    KINDS,
    KNOTS,
    _clamp_index,
    _distances,
    _load_keys,
    _load_queries,
    _load_tokens,
    _locate,
    _to_fixed_point,
    _to_sum_dtype,
)
from lengthwise.attention.fused.gpu.visits import _blocks_at_distance, _loop_bounds, _occurs, _tile_entry


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
    """Return the gradient of the logits of the tile at block ib of queries, which pairs are visible, and distances.

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
    return dS, visible, distance


@triton.jit
@no_type_check
def distance_gradients(
    q_view, k_view, v_view, grad_view, lse, delta, grad_table, fixed_point_scale, regular, args, tiles, sizes, factor,
    inverse, lines, below, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of a table, for distances that follow from indices; do nothing if `regular` is 0.

    Tiles past the table's last entry are left out, because the sums of all entries of a row of logits are 0: the
    gradient of the last entry is what the others leave (distances.py).
    grad_table [b h, lines, 2 B]: entry n belongs to the distance offset + diagonal B + n - B.
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
        for KIND in tl.static_range(KINDS):
            if KIND != FAR and _occurs(tiles, args, KIND):
                for n in range(starts[KIND], ends[KIND]):
                    ib, info = _tile_entry(tiles, line, n, bounds, KIND, False, False)
                    dS, _, _ = _recompute_tile(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse,
                                               delta, looked_up, factor, inverse, args, sizes, KIND, CAUSAL, B, DIM,
                                               PADDED_DIM)  # fmt: skip
                    table_tile += _to_sum_dtype(dS, dtype)
        to = program.to(tl.int64) * (2 * B) + tl.arange(0, 2 * B)
        tl.store(grad_table + to, _sum_diagonals(table_tile, B))


@triton.jit
@no_type_check
def position_gradients(
    q_view, k_view, v_view, grad_view, lse, delta, grad_table, fixed_point_scale, regular, args, tiles, sizes, factor,
    inverse, lines, below, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of a table [h, n] pair by pair, as fixed-point numbers in units of `fixed_point_scale`, if
    `regular` is 0: distances do not follow from indices.
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
            dS, visible, distance = _recompute_tile(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view,
                                                    lse, delta, None, factor, inverse, args, sizes, GENERAL, CAUSAL, B,
                                                    DIM, PADDED_DIM)  # fmt: skip
            to = grad_table + head * args.table_heads_step + _clamp_index(distance - args.table_first, args.table_size)
            tl.atomic_add(to, _to_fixed_point(dS, fixed_point_scale), mask=visible, sem="relaxed")


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
