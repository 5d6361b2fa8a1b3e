"""What the Triton kernels of fused attention on a GPU share (output.py, gradients.py, bias_gradients.py): what they are given,
and blocks of queries and keys. biases.py has what is added to the logits, visits.py which tiles there are.

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
    through shared memory (`_slide` in biases.py): reading them pair by pair took twice as many instructions and 33 barriers a tile.
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
def _product(a, b, total=None):
    """a @ b, added to `total`: what a compiler makes of a product and a sum after it, so said here, and so interpreted."""
    if a.dtype == tl.float32:
        return tl.dot(a, b, total, input_precision="ieee")
    return tl.dot(a, b, total)


@triton.jit
@no_type_check
def _times(total, weight, x, seen, KIND: tl.constexpr):
    """total + weight @ x, where a hidden pair adds nothing, whatever x is; NaN where a visible x is NaN or infinite."""
    if KIND == GENERAL:
        off = x.to(tl.float32)
        if tl.max(tl.max(tl.where(off - off == 0.0, 0, 1), 1), 0) > 0:
            again = x.to(tl.float32)
            fine = again - again == 0.0
            total = _product(weight.to(x.dtype), tl.where(fine, x, 0.0).to(x.dtype), total)
            hits = _product(tl.where(seen, 1.0, 0.0).to(x.dtype), tl.where(fine, 0.0, 1.0).to(x.dtype))
            total = tl.where(hits > 0.0, float("nan"), total)
        else:
            total = _product(weight.to(x.dtype), x, total)
        return total
    else:
        return _product(weight.to(x.dtype), x, total)


@triton.jit
@no_type_check
def _wide(x, dtype: tl.constexpr):
    """What changes are summed in, by the dtype of q: float64 for float32, where all the sums cancel so far that rounding at
    each addition would be more than all the rest; halves are off by more than that themselves."""
    if dtype == tl.float32:
        return x.to(tl.float64)
    else:
        return x


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
