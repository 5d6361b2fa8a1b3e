"""What is added to a tile's logits, for the Triton kernels; parts.py says what the kinds of tiles are."""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.gpu.parts import CLEAN, FAR, GENERAL, _q, _within


@triton.jit
@no_type_check
def _segment(x, bias):
    """How many knots are <= x, searched for: from the cell of x on."""
    low = tl.load(bias.cell_place)
    place = (x - low) * tl.load(bias.cell_place + 1)
    place = tl.minimum(tl.maximum(place, 0.0), (bias.cells - 1) * 1.0)
    s = tl.load(bias.cell + tl.minimum(tl.maximum(place.to(tl.int32), 0), bias.cells - 1))
    for _ in range(tl.load(bias.cell_most)):
        knot = tl.load(bias.knots + tl.minimum(s, bias.pieces - 2))
        s += ((s < bias.pieces - 1) & (knot <= x)).to(tl.int32)
    return s


@triton.jit
@no_type_check
def _piece(x, head, k0, k1, bias):
    """Slope and intercept at x, which has k0 to k1 knots below it."""
    slope = bias.slope + head * bias.piece_step
    intercept = bias.intercept + head * bias.piece_step
    if bias.cell is None:
        a = tl.zeros_like(x) + tl.load(slope + k0)
        c = tl.zeros_like(x) + tl.load(intercept + k0)
        for k in range(k0, k1):
            on = x >= tl.load(bias.knots + k)
            a = tl.where(on, tl.load(slope + k + 1), a)
            c = tl.where(on, tl.load(intercept + k + 1), c)
    else:
        s = _segment(x, bias)
        a = tl.load(slope + s)
        c = tl.load(intercept + s)
    return a, c


@triton.jit
@no_type_check
def _slide(at, distance, nearest, size, SPAN: tl.constexpr):
    """at[distance] for a tile whose distances are nearest ... nearest + SPAN - 1: they are read once."""
    window = tl.load(at + _within(nearest + tl.arange(0, SPAN), size))
    return tl.reshape(
        tl.gather(window, tl.reshape(distance - nearest, [distance.shape[0] * distance.shape[1]]), 0), distance.shape
    )


@triton.jit
@no_type_check
def _look_up(distance, nearest, head, bias, KIND: tl.constexpr, SPAN: tl.constexpr):
    """The table's entry and u of every pair, of a tile that is not FAR; 0 where there is none."""
    entry = 0.0
    u = 0.0
    if bias.table is not None:
        column = distance - bias.first
        table = bias.table + head * bias.table_step
        if KIND == GENERAL:
            entry = tl.load(table + _within(column, bias.table_size))
        else:
            entry = _slide(table, column, nearest - bias.first, bias.table_size, SPAN)
    if bias.slope is not None:
        if KIND == GENERAL:
            u = tl.load(bias.u + _within(distance, bias.u_size))
        else:
            u = _slide(bias.u, distance, nearest, bias.u_size, SPAN)
    return entry, u


@triton.jit
@no_type_check
def _biased(
    s, distance, entry, u, queries, head, info, inverse, bias, sizes, KIND: tl.constexpr, ACROSS: tl.constexpr
):  # fmt: skip
    """s + bias / scale but for `shift`, which is the same for the whole tile; shift; slope · u of every pair, as a tile
    and what to multiply it with.

    entry, u: of `_look_up`; info: what the list of tiles says of this one."""
    shift = 0.0
    spread = 0.0
    times = 1.0
    row = _q(queries[6], ACROSS)
    if KIND == FAR:
        if bias.table is not None:
            shift = tl.load(bias.table + head * bias.table_step + (info & 1) * (bias.table_size - 1)) * inverse
        if bias.rows is not None:
            far = ((info >> 1) & 1) * (bias.rows_size - 1)
            s += tl.load(bias.rows + queries[7] + (row + far)) * inverse
    else:
        if bias.table is not None:
            s += entry * inverse
        if bias.rows is not None:
            column = distance - bias.rows_first
            if KIND == GENERAL:
                there = _q(queries[1], ACROSS) < sizes.queries
                at = row + _within(column, bias.rows_size)
                s += tl.load(bias.rows + queries[7] + at, mask=there, other=0.0) * inverse
            else:
                s += tl.load(bias.rows + queries[7] + (row + column)) * inverse
        if bias.slope is not None:
            w = _q(queries[5], ACROSS)
            if KIND == CLEAN:
                at = head * bias.piece_step + (info & 0xFF)
                a = tl.load(bias.slope + at)
                shift = tl.load(bias.intercept + at) * inverse
                s += u * (w * (a * inverse))
                spread = u
                times = a
            else:
                x = u * w
                a, c = _piece(x, head, info & 0xFF, (info & 0xFF) + (info >> 8), bias)
                s += (a * x + c) * inverse
                spread = a * u
    return s, shift, spread, times


@triton.jit
@no_type_check
def _below(level, shift, factor, bias, KIND: tl.constexpr):
    """level - shift · factor. Of tiles without a shift nothing is computed: even 0 · factor takes a register."""
    if ((KIND == FAR) and (bias.table is not None)) or ((KIND == CLEAN) and (bias.slope is not None)):
        return level - shift * factor
    return level
