"""Triton kernel: gradients of what depends on distance: table, slope, intercept and u.

A program has all tiles whose block of queries lies as far from their block of keys. Where distances go by indices, they
are the same in all of these, so it adds whole tiles and sorts the sum by distance once, at the end. Where they do not
(positions with gaps, thousands of pieces), numbers go to their places one by one, as whole numbers of 64 bits: whatever
the order, the sum is the same.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.gpu.biases import _look_up, _segment
from lengthwise.attention.gpu.gradients import _change, _levels
from lengthwise.attention.gpu.parts import (
    CLEAN,
    GENERAL,
    KNOTS,
    _distances,
    _keys_of,
    _queries_of,
    _read,
    _whole,
    _wide,
    _within,
)
from lengthwise.attention.gpu.visits import _tile


@triton.jit
@no_type_check
def _diagonals(x, SIZE: tl.constexpr):
    """x [SIZE, SIZE] -> [2 SIZE]: entry n is the sum over row - column = n - SIZE, in float64: once for a program."""
    wide = tl.join(x, tl.zeros_like(x))  # [row, column, 2]
    wide = tl.reshape(tl.permute(wide, (0, 2, 1)), (SIZE, 2 * SIZE))  # zeros right of each row
    row = tl.arange(0, SIZE)[:, None]
    n = tl.arange(0, 2 * SIZE)[None, :]
    column = (row - (n - SIZE)) & (2 * SIZE - 1)  # past either end: zeros
    return tl.sum(tl.gather(wide, column, 1).to(tl.float64), 0)


@triton.jit
@no_type_check
def _again(
    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, looked_up, factor, inverse, bias, sight,
    sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits of the tile at block ib of queries; which pairs are seen; w; distances.

    looked_up: distances, entries and u of all tiles of the program, or None: of positions, pair by pair."""
    whole: tl.constexpr = KIND != GENERAL
    block = ib - diagonal
    queries = _queries_of(batch, head, ib, sizes, sight, bias, B, whole)
    keys = _keys_of(batch, block, sizes, sight, B)
    q = _read(q_view, batch, head, ib * B, sizes.queries, B, DIM, WIDE, whole)
    grad = _read(grad_view, batch, head, ib * B, sizes.queries, B, DIM, WIDE, whole)
    k = _read(k_view, batch, head // sizes.group, block * B, sizes.keys, B, DIM, WIDE, whole)
    v = _read(v_view, batch, head // sizes.group, block * B, sizes.keys, B, DIM, WIDE, whole)
    level, less = _levels(lse, delta, batch, head, queries[1], sizes, whole)
    if looked_up is None:
        distance = _distances(queries, keys, KIND, False)
        entry, u = _look_up(distance, 0, head, bias, KIND, B)
    else:
        distance, entry, u = looked_up
    ds, _, seen, _, _ = _change(q, grad, level, less, k, v, distance, entry, u, queries, keys, head, info, factor, inverse, bias,
                          sight, sizes, KIND, CAUSAL)  # fmt: skip
    return ds, seen, queries[5], distance


@triton.jit
@no_type_check
def _flush(zeroth, slopes, slot, segment, run_0, run_1):
    """What was summed up of tiles that lie in one segment."""
    if segment >= 0:
        zeroth += tl.where(slot == segment, tl.sum(run_0, 0), 0.0)
        slopes += tl.where(slot == segment, tl.sum(run_1, 0), 0.0)
    return zeroth, slopes


@triton.jit
@no_type_check
def _scatter_pieces(to, s, x, ds, seen, head, room, bias, sizes):
    heads = 1 if bias.piece_step == 0 else sizes.heads
    to = to + head * bias.piece_step + s
    tl.atomic_add(to, _whole(ds, room + 2), mask=seen, sem="relaxed")
    tl.atomic_add(to + heads * bias.pieces, _whole(ds * x, room + 3), mask=seen, sem="relaxed")


@triton.jit
@no_type_check
def _sum_pieces(all_u, zeroth, slopes, slot, ds, seen, u, w, info, head, to, room, bias, sizes):
    """The sums of a tile that has more than one segment."""
    x = u * w[:, None]
    if bias.cell is None:
        k0 = info & 0xFF
        k1 = k0 + (info >> 8)
        for k in range(k0, k1 + 1):
            low = tl.load(bias.knots + k - 1, mask=k > k0, other=float("-inf"))
            high = tl.load(bias.knots + k, mask=k < k1, other=float("inf"))
            # Written so that NaN is in every segment.
            part = tl.where(((k == k0) | ((x < low) == 0)) & ((k == k1) | ((x >= high) == 0)), ds, 0.0)
            a = tl.load(bias.slope + head * bias.piece_step + k)
            all_u += part * (a * w[:, None])
            zeroth += tl.where(slot == k, tl.sum(tl.sum(part, 1), 0), 0.0)
            slopes += tl.where(slot == k, tl.sum(tl.sum(part * x, 1), 0), 0.0)
    else:
        s = _segment(x, bias)
        a = tl.load(bias.slope + head * bias.piece_step + s)
        all_u += ds * (a * w[:, None])
        _scatter_pieces(to, s, x, ds, seen, head, room, bias, sizes)
    return all_u, zeroth, slopes


@triton.jit
@no_type_check
def of_distances(
    q_view, k_view, v_view, grad_view, lse, delta, of_table, of_u, of_pieces, room, regular, bias, sight, tiles, sizes,
    factor, inverse, lines, below, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, SLOTS: tl.constexpr,
    CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """By indices. of_table, of_u [b h, lines, 2 B]: entry n is of the distance offset + diagonal B + n - B. of_pieces
    [b h, lines, 2, SLOTS]: of every segment's intercept and slope; or, where there are many, whole numbers in units of
    `room` [2, h, s]. Nothing is done where `regular` says that distances do not go by indices."""
    asked = True
    if regular is not None:
        asked = tl.load(regular) == 1
    if asked:
        program = tl.program_id(0)
        number = program % lines
        diagonal = number - below
        pair = program // lines
        batch = pair // sizes.heads
        head = pair % sizes.heads
        at = tiles.ends + (batch * tiles.step + number) * 4
        line = batch * tiles.step + number
        row = tl.arange(0, B)
        distance = sizes.keys - sizes.queries + diagonal * B + row[:, None] - row[None, :]
        entry, u = _look_up(distance, 0, head, bias, GENERAL, B)
        looked_up = (distance, entry, u)
        dtype: tl.constexpr = q_view.at.dtype.element_ty
        all_t = _wide(tl.zeros([B, B], tl.float32), dtype)
        all_u = _wide(tl.zeros([B, B], tl.float32), dtype)
        slot = tl.arange(0, SLOTS)
        zeroth = _wide(tl.zeros([SLOTS], tl.float32), dtype)
        slopes = _wide(tl.zeros([SLOTS], tl.float32), dtype)
        # Of the CLEAN tiles since the segment changed: sums of ds and ds x by row.
        segment = -1
        run_0 = _wide(tl.zeros([B], tl.float32), dtype)
        run_1 = _wide(tl.zeros([B], tl.float32), dtype)
        for n in range(tl.load(at)):
            ib, info = _tile(tiles, line, n, 0, 0)
            ds, _, w, _ = _again(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, looked_up,
                                 factor, inverse, bias, sight, sizes, CLEAN, CAUSAL, B, DIM, WIDE)  # fmt: skip
            if OF_TABLE:
                all_t += _wide(ds, dtype)
            if OF_PIECES:
                if (info & 0xFF) != segment:
                    zeroth, slopes = _flush(zeroth, slopes, slot, segment, run_0, run_1)
                    run_0 = _wide(tl.zeros([B], tl.float32), dtype)
                    run_1 = _wide(tl.zeros([B], tl.float32), dtype)
                    segment = info & 0xFF
                run_0 += tl.sum(_wide(ds, dtype), 1)
                run_1 += w * tl.sum(_wide(ds, dtype) * u, 1)
                a = tl.load(bias.slope + head * bias.piece_step + segment)
                all_u += _wide(ds, dtype) * (a * w)[:, None]
        if OF_PIECES:
            zeroth, slopes = _flush(zeroth, slopes, slot, segment, run_0, run_1)
            for n in range(tl.load(at), tl.load(at + 1)):
                ib, info = _tile(tiles, line, n, 0, 0)
                ds, seen, w, _ = _again(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta,
                                        looked_up, factor, inverse, bias, sight, sizes, KNOTS, CAUSAL, B, DIM,
                                        WIDE)  # fmt: skip
                if OF_TABLE:
                    all_t += _wide(ds, dtype)
                all_u, zeroth, slopes = _sum_pieces(all_u, zeroth, slopes, slot, _wide(ds, dtype), seen, u, w, info, head,
                                                    of_pieces, room, bias, sizes)  # fmt: skip
        for n in range(tl.load(at + 2), tl.load(at + 3)):
            ib, info = _tile(tiles, line, n, 0, 0)
            ds, seen, w, _ = _again(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, looked_up,
                                    factor, inverse, bias, sight, sizes, GENERAL, CAUSAL, B, DIM, WIDE)  # fmt: skip
            if OF_TABLE:
                all_t += _wide(ds, dtype)
            if OF_PIECES:
                all_u, zeroth, slopes = _sum_pieces(all_u, zeroth, slopes, slot, _wide(ds, dtype), seen, u, w, info, head,
                                                    of_pieces, room, bias, sizes)  # fmt: skip
        to = program.to(tl.int64) * (2 * B) + tl.arange(0, 2 * B)
        if OF_TABLE:
            tl.store(of_table + to, _diagonals(all_t, B))
        if OF_PIECES:
            tl.store(of_u + to, _diagonals(all_u, B))
            if bias.cell is None:
                to = of_pieces + program.to(tl.int64) * (2 * SLOTS) + slot
                tl.store(to, zeroth)
                tl.store(to + SLOTS, slopes)


@triton.jit
@no_type_check
def of_positions(
    q_view, k_view, v_view, grad_view, lse, delta, of_table, of_u, of_pieces, room, regular, bias, sight, tiles, sizes,
    factor, inverse, lines, below, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr,
    DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """By positions, where `regular` says that distances do not go by indices: whole numbers, in units of `room` (4: table, u,
    intercept, slope). of_table [h, n], of_u [n], of_pieces [2, h, s]."""
    if tl.load(regular) == 0:
        program = tl.program_id(0)
        number = program % lines
        diagonal = number - below
        pair = program // lines
        batch = pair // sizes.heads
        head = pair % sizes.heads
        line = batch * tiles.step + number
        at = tiles.ends + line * 4
        second = tl.load(at + 1)
        skip = tl.load(at + 2) - second  # FAR, which of_queries has
        for n in range(tl.load(at + 3) - skip):
            ib, info = _tile(tiles, line, n + tl.where(n >= second, skip, 0), 0, 0)
            ds, seen, w, distance = _again(ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, None,
                                           factor, inverse, bias, sight, sizes, GENERAL, CAUSAL, B, DIM, WIDE)  # fmt: skip
            if OF_TABLE:
                to = of_table + head * bias.table_step + _within(distance - bias.first, bias.table_size)
                tl.atomic_add(to, _whole(ds, room), mask=seen, sem="relaxed")
            if OF_PIECES:
                to = _within(distance, bias.u_size)
                x = tl.load(bias.u + to) * w[:, None]
                s = tl.zeros_like(x).to(tl.int32) + (info & 0xFF)
                if bias.cell is None:
                    for k in range(info & 0xFF, (info & 0xFF) + (info >> 8)):
                        s += (x >= tl.load(bias.knots + k)).to(tl.int32)
                else:
                    s = _segment(x, bias)
                a = tl.load(bias.slope + head * bias.piece_step + s)
                tl.atomic_add(of_u + to, _whole(ds * a * w[:, None], room + 1), mask=seen, sem="relaxed")
                _scatter_pieces(of_pieces, s, x, ds, seen, head, room, bias, sizes)
