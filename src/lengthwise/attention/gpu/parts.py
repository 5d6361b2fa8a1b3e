"""What the Triton kernels of fused attention on a GPU share (output.py, gradients.py, bias_gradients.py).

A pair of blocks of queries and keys (a tile) is of one of four kinds, so that most of them do little:

    CLEAN    all pairs visible, all distances inside every table, no knot between any two coordinates x
    KNOTS    the same with knots in it (or with so many pieces that each pair's is searched for)
    FAR      all pairs visible, all distances past one end of the table: the bias is one number
    GENERAL  anything else: masks, clamped distances, positions read one by one

tiles.py sorts each block's tiles by kind, and each kind has a loop of its own. Without a bias and without documents the
kinds follow from indices alone, and there are no lists.

  * Logits are kept in units of `scale`: s = <q, k> + bias / scale, weight = 2^(factor s - factor peak), factor =
    scale log2(e), so that scaling costs nothing. What is the same for a whole tile (`shift`) goes to the peak.
  * The distances of a tile are a window of as many numbers as it has rows and columns, read once and spread over the pairs
    through shared memory (`_slide`): reading them pair by pair took twice as many instructions and 33 barriers a tile.
  * Every sum has one owner, which adds in a fixed order: no atomic addition of floating-point numbers.
  * A key that nobody sees is never multiplied by 0: NaN and infinity stay with the rows that see them (`_times`).
"""

from typing import Any, NamedTuple, no_type_check

import triton
import triton.language as tl

CLEAN = tl.constexpr(0)
KNOTS = tl.constexpr(1)
FAR = tl.constexpr(2)
GENERAL = tl.constexpr(3)

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


class View(NamedTuple):
    """A tensor [batch, head, token, dim]: its numbers, and its strides; those of one token lie side by side."""

    at: Any
    batch: int
    head: int
    token: int


class Sizes(NamedTuple):
    heads: int
    group: int  # heads of queries for each head of keys
    queries: int
    keys: int


class Bias(NamedTuple):
    """table [h|1, n]; slope, intercept [h|1, s], knots [s-1], u [n], w [b|1, i]; rows [b, h|1, i, r]. A step is 0 where
    there is one for all. cell, cell_place, cell_most: where to begin the search for a segment, or None where there are few
    pieces."""

    table: Any
    table_size: int
    table_step: int
    first: int
    slope: Any
    intercept: Any
    piece_step: int
    pieces: int
    knots: Any
    u: Any
    u_size: int
    w: Any
    w_step: int
    cell: Any
    cells: int
    cell_place: Any
    cell_most: Any
    rows: Any
    rows_size: int
    rows_batch: int
    rows_head: int
    rows_first: int


class Sight(NamedTuple):
    """Positions and documents, [b|1, tokens]; window: None where there is none."""

    position_q: Any
    position_q_step: int
    position_k: Any
    position_k_step: int
    documents: Any
    documents_step: int
    window: Any


class Tiles(NamedTuple):
    """Of every block: its tiles sorted by kind, and where each kind ends, [r, blocks, tiles] and [r, blocks, 4]; or None.
    An entry is a block, 16 bits; the first segment in it (of FAR tiles: bit 0: the table's last entry, bit 1: that of
    rows), 8 bits; the number of knots."""

    order: Any
    ends: Any
    step: int  # blocks, or 0 where all rows of the batch have the same lists
    width: int


# ---- parts ---------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _read(
    view, batch, head, start, limit, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr, ALL: tl.constexpr
):
    """Tokens start ... start + BLOCK of a head, zeros past its end. ALL: none lies past it."""
    base = view.at + batch.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + start.to(tl.int64) * view.token
    t = tl.arange(0, BLOCK)
    d = tl.arange(0, WIDE)
    at = base + (t[:, None] * view.token + d[None, :])
    if ALL:
        if DIM == WIDE:
            return tl.load(at)
        return tl.load(at, mask=d[None, :] < DIM, other=0.0)
    return tl.load(at, mask=((start + t) < limit)[:, None] & (d[None, :] < DIM), other=0.0)


@triton.jit
@no_type_check
def _write(view, batch, head, start, limit, x, BLOCK: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr):
    base = view.at + batch.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + start.to(tl.int64) * view.token
    t = tl.arange(0, BLOCK)
    d = tl.arange(0, WIDE)
    mask = ((start + t) < limit)[:, None] & (d[None, :] < DIM)
    tl.store(base + (t[:, None] * view.token + d[None, :]), x.to(view.at.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check
def _product(a, b):
    if a.dtype == tl.float32:
        return tl.dot(a, b, input_precision="ieee")
    return tl.dot(a, b)


@triton.jit
@no_type_check
def _times(total, weight, x, seen, KIND: tl.constexpr):
    """total + weight @ x, where a hidden pair adds nothing, whatever x is; NaN where a visible x is NaN or infinite."""
    if KIND == GENERAL:
        off = x.to(tl.float32)
        if tl.max(tl.max(tl.where(off - off == 0.0, 0, 1), 1), 0) > 0:
            again = x.to(tl.float32)
            fine = again - again == 0.0
            total += _product(weight.to(x.dtype), tl.where(fine, x, 0.0).to(x.dtype))
            hits = _product(tl.where(seen, 1.0, 0.0).to(x.dtype), tl.where(fine, 0.0, 1.0).to(x.dtype))
            total = tl.where(hits > 0.0, float("nan"), total)
        else:
            total += _product(weight.to(x.dtype), x)
        return total
    else:
        return total + _product(weight.to(x.dtype), x)


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
def _within(x, size):
    return tl.minimum(tl.maximum(x, 0), size - 1)


@triton.jit
@no_type_check
def _whole(x, room):
    """x in units so small that nothing of it is lost, as a whole number."""
    y = x * tl.load(room)
    return (y + tl.where(y < 0.0, -0.5, 0.5)).to(tl.int64)


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
def _each(at, place, number, sizes, ALL: tl.constexpr):
    """at[place] of queries, 0 past the last. ALL: none lies past it."""
    if ALL:
        return tl.load(at + place)
    return tl.load(at + place, mask=number < sizes.queries, other=0)


@triton.jit
@no_type_check
def _queries_of(batch, head, block, sizes, sight, bias, SIZE: tl.constexpr, ALL: tl.constexpr):
    """All that is asked of a block of queries but its numbers: the first one's index among the keys; of each its number, its
    index, position, document, w, and where its rows begin; where the block's rows do. ALL: none lies past the end."""
    number = block * SIZE + tl.arange(0, SIZE)
    i0 = sizes.keys - sizes.queries + block * SIZE
    i = sizes.keys - sizes.queries + number
    position = i
    if sight.position_q is not None:
        position = _each(sight.position_q + batch * sight.position_q_step, number, number, sizes, ALL)
    document = i
    if sight.documents is not None:
        document = _each(sight.documents + batch * sight.documents_step, i, number, sizes, ALL)
    w = 0.0 * number
    if bias.w is not None:
        w = _each(bias.w + batch * bias.w_step, number, number, sizes, ALL)
    row, rows = number, 0
    if bias.rows is not None:  # within a block by 32 bits: numbers of 64 bits for every pair fill the registers
        row = tl.arange(0, SIZE) * bias.rows_size
        rows = (
            batch.to(tl.int64) * bias.rows_batch + head * bias.rows_head + (block * SIZE).to(tl.int64) * bias.rows_size
        )
    return i0, number, i, position, document, w, row, rows


@triton.jit
@no_type_check
def _keys_of(batch, block, sizes, sight, SIZE: tl.constexpr):
    """The same of a block of keys: the first index; of each its index, position, document."""
    j = block * SIZE + tl.arange(0, SIZE)
    there = j < sizes.keys
    position = j
    if sight.position_k is not None:
        position = tl.load(sight.position_k + batch * sight.position_k_step + j, mask=there, other=0)
    document = j
    if sight.documents is not None:
        document = tl.load(sight.documents + batch * sight.documents_step + j, mask=there, other=0)
    return block * SIZE, j, position, document


@triton.jit
@no_type_check
def _q(x, ACROSS: tl.constexpr):
    """Numbers of queries for a tile [queries, keys], or [keys, queries] where ACROSS."""
    return x[None, :] if ACROSS else x[:, None]


@triton.jit
@no_type_check
def _k(x, ACROSS: tl.constexpr):
    return x[:, None] if ACROSS else x[None, :]


@triton.jit
@no_type_check
def _distances(queries, keys, KIND: tl.constexpr, ACROSS: tl.constexpr):
    if KIND == GENERAL:
        return _q(queries[3], ACROSS) - _k(keys[2], ACROSS)
    else:  # by index, which is the same there
        return _q(queries[2], ACROSS) - _k(keys[1], ACROSS)


@triton.jit
@no_type_check
def _visible(queries, keys, sizes, sight, KIND: tl.constexpr, CAUSAL: tl.constexpr, ACROSS: tl.constexpr):
    i = _q(queries[2], ACROSS)
    j = _k(keys[1], ACROSS)
    if KIND == GENERAL:
        seen = (i < sizes.keys) & (j < sizes.keys)
        if CAUSAL:
            seen = seen & (j <= i)
        if sight.window is not None:
            seen = seen & (j > i - sight.window)
            if not CAUSAL:
                seen = seen & (j < i + sight.window)
        if sight.documents is not None:
            seen = seen & (_q(queries[4], ACROSS) == _k(keys[3], ACROSS))
        return seen
    else:
        return (i >= 0) & (j >= 0)


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


@triton.jit
@no_type_check
def _tile(tiles, line, n, past, skip):
    """Of the n-th tile: its other block, and what there is to say. Without lists: n, from `past` on `skip` further."""
    if tiles.order is None:
        return n + tl.where(n >= past, skip, 0), 0
    else:
        entry = tl.load(tiles.order + line.to(tl.int64) * tiles.width + n)
        return entry & 0xFFFF, entry >> 16


@triton.jit
@no_type_check
def _ends(tiles, line, low, high, clean_low, clean_high):
    """Where the loop of CLEAN begins, where each kind ends, and where GENERAL begins. Without lists: CLEAN from clean_low to
    clean_high, GENERAL on either side of it."""
    if tiles.order is None:
        return clean_low, clean_high, clean_high, clean_high, low, high - (clean_high - clean_low)
    else:
        at = tiles.ends + line * 4
        third = tl.load(at + 2)
        return 0, tl.load(at), tl.load(at + 1), third, third, tl.load(at + 3)


@triton.jit
@no_type_check
def _bare(bias, sight):
    """Nothing but indices matters."""
    return (bias.table is None) and (bias.slope is None) and (bias.rows is None) and (sight.documents is None)


@triton.jit
@no_type_check
def _keys_seen(i0, sizes, sight, bias, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Blocks of keys that the queries at i0 ... i0 + BM see, and those among them that are CLEAN: by indices alone."""
    low = 0
    high = tl.cdiv(sizes.keys, BN)
    clean_low = 0
    clean_high = sizes.keys // BN
    last = tl.minimum(i0 + BM, sizes.keys) - 1
    if CAUSAL:
        high = last // BN + 1
        clean_high = tl.minimum(clean_high, (i0 + 1) // BN)
    if sight.window is not None:
        low = tl.maximum(i0 - sight.window + 1, 0) // BN
        clean_low = tl.cdiv(tl.maximum(last - sight.window + 1, 0), BN)
        if not CAUSAL:
            high = tl.minimum(high, tl.cdiv(last + sight.window, BN))
            clean_high = tl.minimum(clean_high, tl.maximum(i0 + sight.window, 0) // BN)
    if i0 + BM > sizes.keys:
        clean_high = 0
    if not _bare(bias, sight):
        clean_high = 0
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high


@triton.jit
@no_type_check
def _queries_seeing(j0, sizes, sight, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Blocks of queries that see the keys at j0 ... j0 + BN, and those among them that are CLEAN."""
    offset = sizes.keys - sizes.queries
    low = 0
    high = tl.cdiv(sizes.queries, BM)
    clean_low = 0
    clean_high = sizes.queries // BM
    last = tl.minimum(j0 + BN, sizes.keys) - 1
    if CAUSAL:
        low = tl.maximum(j0 - offset, 0) // BM
        clean_low = tl.cdiv(tl.maximum(last - offset, 0), BM)
    if sight.window is not None:
        high = tl.minimum(high, tl.cdiv(tl.maximum(last + sight.window - offset, 0), BM))
        clean_high = tl.minimum(clean_high, tl.maximum(j0 + sight.window - offset, 0) // BM)
        if not CAUSAL:
            low = tl.maximum(j0 - sight.window + 1 - offset, 0) // BM
            clean_low = tl.cdiv(tl.maximum(last - sight.window + 1 - offset, 0), BM)
    if j0 + BN > sizes.keys:
        clean_high = 0
    high = tl.maximum(high, low)
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high
