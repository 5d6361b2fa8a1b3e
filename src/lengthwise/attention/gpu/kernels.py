"""The Triton kernels of fused attention on a GPU; what is computed is in attention/operator.py.

    _forward   out and lse of one block of queries
    _keys      gradients of one block of keys and values
    _queries   gradient of one block of queries, and the rows' sums that belong to it: w, rows, a table's far ends
    _sums      gradients of table, slope, intercept and u, of all pairs of blocks at one distance from each other

A pair of blocks (a tile) is of one of four kinds, so that most of them do little:

    CLEAN    all pairs visible, all distances inside every table, no knot between any two coordinates x
    KNOTS    the same with knots in it (or with so many pieces that each pair's is searched for)
    FAR      all pairs visible, all distances past one end of the table: the bias is one number
    GENERAL  anything else: masks, clamped distances, positions read one by one

tiles.py sorts each block's tiles by kind, and each kind has a loop of its own. Without a bias and without documents the
kinds follow from indices alone, and there are no lists.

  * Logits are kept in units of `scale`: s = <q, k> + bias / scale, weight = 2^(factor s - factor peak), factor =
    scale log2(e), so that scaling costs nothing. What is the same for a whole tile (`shift`) goes to the peak.
  * Every sum has one owner, which adds in a fixed order: no atomic addition of floating-point numbers. Along a diagonal
    of tiles all distances are the same, so _sums adds whole tiles and sorts them by distance once, at the end. Where that
    does not hold (positions with gaps, thousands of pieces) sums go through whole numbers, whose order does not matter.
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
    at = base + t[:, None].to(tl.int64) * view.token + d[None, :]
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
    tl.store(base + t[:, None].to(tl.int64) * view.token + d[None, :], x.to(view.at.dtype.element_ty), mask=mask)


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
        fine = off - off == 0.0
        total += _product(weight.to(x.dtype), tl.where(fine, x, 0.0).to(x.dtype))
        if tl.max(tl.max(tl.where(fine, 0, 1), 1), 0) > 0:
            hits = _product(tl.where(seen, 1.0, 0.0).to(x.dtype), tl.where(fine, 0.0, 1.0).to(x.dtype))
            total = tl.where(hits > 0.0, float("nan"), total)
        return total
    else:
        return total + _product(weight.to(x.dtype), x)


@triton.jit
@no_type_check
def _visible(i, j, document_i, document_j, sizes, sight, CAUSAL: tl.constexpr):
    """i, j: indices among the keys, one a column and one a row."""
    seen = (i < sizes.keys) & (j < sizes.keys)
    if CAUSAL:
        seen = seen & (j <= i)
    if sight.window is not None:
        seen = seen & (j > i - sight.window)
        if not CAUSAL:
            seen = seen & (j < i + sight.window)
    if sight.documents is not None:
        seen = seen & (document_i == document_j)
    return seen


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
def _biased(s, distance, entry, u, w, row, valid, head, k0, k1, inverse, bias, KIND: tl.constexpr):
    """s + bias / scale but for `shift`, which is the same for the whole tile; shift; slope · u of every pair.

    entry, u: of `_look_up`. w: of every query. row: where rows of each query begin, valid: which of these there are."""
    shift = 0.0
    spread = 0.0
    if KIND == FAR:
        if bias.table is not None:
            shift = tl.load(bias.table + head * bias.table_step + (k0 & 1) * (bias.table_size - 1)) * inverse
        if bias.rows is not None:
            s += tl.load(bias.rows + row + (k0 >> 1) * (bias.rows_size - 1), mask=valid, other=0.0) * inverse
    else:
        if bias.table is not None:
            s += entry * inverse
        if bias.rows is not None:
            column = distance - bias.rows_first
            if KIND == GENERAL:
                column = _within(column, bias.rows_size)
            s += tl.load(bias.rows + row + column, mask=valid & (column >= 0), other=0.0) * inverse
        if bias.slope is not None:
            if KIND == CLEAN:
                a = tl.load(bias.slope + head * bias.piece_step + k0)
                shift = tl.load(bias.intercept + head * bias.piece_step + k0) * inverse
                s += u * (w * (a * inverse))
                spread = a * u
            else:
                x = u * w
                a, c = _piece(x, head, k0, k1, bias)
                s += (a * x + c) * inverse
                spread = a * u
    return s, shift, spread


@triton.jit
@no_type_check
def _row_of(batch, head, number, sizes, bias):
    """Where the rows of queries begin."""
    if bias.rows is not None:
        return batch.to(tl.int64) * bias.rows_batch + head * bias.rows_head + number.to(tl.int64) * bias.rows_size
    return number


@triton.jit
@no_type_check
def _tile(tiles, line, n, past, skip):
    """Of the n-th tile: its other block, first segment and last. Without lists: n itself, from `past` on `skip` further."""
    if tiles.order is None:
        return n + tl.where(n >= past, skip, 0), 0
    else:
        entry = tl.load(tiles.order + line.to(tl.int64) * tiles.width + n)
        return entry & 0xFFFF, entry >> 16


@triton.jit
@no_type_check
def _ends(tiles, line, low, high, clean_low, clean_high):
    """Where the loops end, CLEAN first. Without lists: CLEAN from clean_low to clean_high, GENERAL around it."""
    if tiles.order is None:
        return clean_high, clean_high, clean_high, high - (clean_high - clean_low)
    else:
        at = tiles.ends + line * 4
        return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


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
    if (bias.table is not None) or (bias.slope is not None) or (bias.rows is not None) or (sight.documents is not None):
        clean_high = 0
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high


@triton.jit
@no_type_check
def _queries_seeing(j0, offset, sizes, sight, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Blocks of queries that see the keys at j0 ... j0 + BN, and those among them that are CLEAN. Queries begin at the
    index `offset`."""
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


@triton.jit
@no_type_check
def _position_q(batch, number, limit, sight, default):
    if sight.position_q is not None:
        return tl.load(sight.position_q + batch * sight.position_q_step + number, mask=number < limit, other=0)
    return default


@triton.jit
@no_type_check
def _position_k(batch, j, limit, sight, KIND: tl.constexpr):
    if sight.position_k is not None and KIND == GENERAL:
        return tl.load(sight.position_k + batch * sight.position_k_step + j, mask=j < limit, other=0)
    return j


@triton.jit
@no_type_check
def _document(batch, index, limit, sight):
    if sight.documents is not None:
        return tl.load(sight.documents + batch * sight.documents_step + index, mask=index < limit, other=0)
    return index


@triton.jit
@no_type_check
def _w(batch, number, limit, bias):
    if bias.w is not None:
        return tl.load(bias.w + batch * bias.w_step + number, mask=number < limit, other=0.0)
    return 0.0 * number


# ---- forward -------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _attend(
    total, mass, peak, q, k_view, v_view, batch, head, block, info, i0, i, number, position, document, w, row, factor,
    inverse, bias, sight, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """One more block of keys for a block of queries, which begin at index i0."""
    j0 = block * BN
    j = j0 + tl.arange(0, BN)
    k = _read(k_view, batch, head // sizes.group, j0, sizes.keys, BN, DIM, WIDE, KIND != GENERAL)
    s = _product(q, tl.trans(k))
    entry, u = 0.0, 0.0
    if KIND == GENERAL:
        distance = position[:, None] - _position_k(batch, j, sizes.keys, sight, KIND)[None, :]
    else:
        distance = i[:, None] - j[None, :]
    if KIND != FAR:
        entry, u = _look_up(distance, i0 - j0 - (BN - 1), head, bias, KIND, 2 * (BM if BM > BN else BN))
    valid = (number < sizes.queries)[:, None]
    s, shift, _ = _biased(
        s, distance, entry, u, w[:, None], row[:, None], valid, head, info & 0xFF, (info & 0xFF) + (info >> 8), inverse,
        bias, KIND,
    )  # fmt: skip
    seen = (i[:, None] >= 0) & (j[None, :] >= 0)
    if KIND == GENERAL:
        seen = _visible(i[:, None], j[None, :], document[:, None], _document(batch, j, sizes.keys, sight)[None, :],
                        sizes, sight, CAUSAL)  # fmt: skip
        s = tl.where(seen, s, float("-inf"))
    higher = tl.maximum(peak, tl.max(s, 1) + shift)
    safe = tl.where(higher == float("-inf"), 0.0, higher)
    p = tl.exp2(s * factor - ((safe - shift) * factor)[:, None])
    keep = tl.exp2((peak - safe) * factor)
    mass = mass * keep + tl.sum(p, 1)
    v = _read(v_view, batch, head // sizes.group, j0, sizes.keys, BN, DIM, WIDE, KIND != GENERAL)
    total = _times(total * keep[:, None], p, v, seen, KIND)
    return total, mass, higher


@triton.jit
@no_type_check
def _forward(
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
    offset = sizes.keys - sizes.queries
    number = ib * BM + tl.arange(0, BM)
    i0 = offset + ib * BM
    i = offset + number
    q = _read(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    position = _position_q(batch, number, sizes.queries, sight, i)
    document = _document(batch, i, sizes.keys, sight)
    w = _w(batch, number, sizes.queries, bias)
    row = _row_of(batch, head, number, sizes, bias)

    low, high, clean_low, clean_high = _keys_seen(offset + ib * BM, sizes, sight, bias, CAUSAL, BM, BN)
    if splits > 1:
        part = tl.cdiv(high - low, splits)
        low = low + split * part
        high = tl.minimum(high, low + part)
        low = tl.minimum(low, high)
        clean_low = tl.minimum(tl.maximum(clean_low, low), high)
        clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    line = batch * tiles.step + ib
    first, second, third, fourth = _ends(tiles, line, low, high, clean_low, clean_high)
    start = clean_low if tiles.order is None else 0

    total = tl.zeros([BM, WIDE], tl.float32)
    mass = tl.zeros([BM], tl.float32)
    peak = tl.full([BM], float("-inf"), tl.float32)
    for n in range(start, first):
        block, info = _tile(tiles, line, n, first, 0)
        total, mass, peak = _attend(
            total, mass, peak, q, k_view, v_view, batch, head, block, info, i0, i, number, position, document, w, row, factor,
            inverse, bias, sight, sizes, CLEAN, CAUSAL, BM, BN, DIM, WIDE,
        )  # fmt: skip
    if tiles.order is not None:
        if bias.slope is not None:
            for n in range(first, second):
                block, info = _tile(tiles, line, n, 0, 0)
                total, mass, peak = _attend(
                    total, mass, peak, q, k_view, v_view, batch, head, block, info, i0, i, number, position, document, w, row,
                    factor, inverse, bias, sight, sizes, KNOTS, CAUSAL, BM, BN, DIM, WIDE,
                )  # fmt: skip
        elif (bias.table is not None) or (bias.rows is not None):
            for n in range(second, third):
                block, info = _tile(tiles, line, n, 0, 0)
                total, mass, peak = _attend(
                    total, mass, peak, q, k_view, v_view, batch, head, block, info, i0, i, number, position, document, w, row,
                    factor, inverse, bias, sight, sizes, FAR, CAUSAL, BM, BN, DIM, WIDE,
                )  # fmt: skip
    start = low if tiles.order is None else third
    for n in range(start, fourth):
        block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
        if tiles.order is None and bias.slope is not None:
            info = (bias.pieces - 1) * 256
        total, mass, peak = _attend(
            total, mass, peak, q, k_view, v_view, batch, head, block, info, i0, i, number, position, document, w, row, factor,
            inverse, bias, sight, sizes, GENERAL, CAUSAL, BM, BN, DIM, WIDE,
        )  # fmt: skip

    total = total / tl.where(mass == 0.0, 1.0, mass)[:, None]
    _write(out_view, batch + split * share, head, ib * BM, sizes.queries, total, BM, DIM, WIDE)
    at = lse + ((batch + split * share).to(tl.int64) * sizes.heads + head) * sizes.queries + number
    tl.store(at, peak * factor * LN2 + tl.log2(mass) * LN2, mask=number < sizes.queries)


# ---- backward ------------------------------------------------------------------------------------------------------


@triton.jit
@no_type_check
def _products(out_view, grad_view, delta, sizes, blocks, BM: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr):
    """delta = <out, its gradient> of every query."""
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
def _change_keys(
    dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, block, info, j0, j, position, document, factor, inverse, bias,
    sight, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """What one more block of queries adds to a block of keys. Tiles are [keys, queries] here."""
    number = block * BM + tl.arange(0, BM)
    i = sizes.keys - sizes.queries + number
    q = _read(q_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, KIND != GENERAL)
    s = _product(k, tl.trans(q))
    entry, u = 0.0, 0.0
    if KIND == GENERAL:
        distance = _position_q(batch, number, sizes.queries, sight, i)[None, :] - position[:, None]
    else:
        distance = i[None, :] - j[:, None]
    if KIND != FAR:
        entry, u = _look_up(
            distance,
            sizes.keys - sizes.queries + block * BM - j0 - (BN - 1),
            head,
            bias,
            KIND,
            2 * (BM if BM > BN else BN),
        )
    w = _w(batch, number, sizes.queries, bias)
    row = _row_of(batch, head, number, sizes, bias)
    valid = (number < sizes.queries)[None, :]
    s, shift, _ = _biased(
        s, distance, entry, u, w[None, :], row[None, :], valid, head, info & 0xFF, (info & 0xFF) + (info >> 8), inverse,
        bias, KIND,
    )  # fmt: skip
    at = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + number
    level = tl.load(lse + at, mask=number < sizes.queries, other=float("inf")) * LOG2E - shift * factor
    p = tl.exp2(s * factor - level[None, :])
    seen = (i[None, :] >= 0) & (j[:, None] >= 0)
    if KIND == GENERAL:
        seen = _visible(i[None, :], j[:, None], _document(batch, i, sizes.keys, sight)[None, :], document[:, None],
                        sizes, sight, CAUSAL)  # fmt: skip
        p = tl.where(seen, p, 0.0)
    grad = _read(grad_view, batch, head, block * BM, sizes.queries, BM, DIM, WIDE, KIND != GENERAL)
    dv = _times(dv, p, grad, seen, KIND)
    dp = _product(v, tl.trans(grad))
    ds = p * (dp - tl.load(delta + at, mask=number < sizes.queries, other=0.0)[None, :])
    if KIND == GENERAL:
        ds = tl.where(seen, ds, 0.0)
    return _times(dk, ds, q, seen, KIND), dv


@triton.jit
@no_type_check
def _keys(
    q_view, k_view, v_view, grad_view, dk_view, dv_view, lse, delta, bias, sight, tiles, sizes, factor, inverse, scale,
    blocks, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    jb = program % blocks
    pair = program // blocks
    kv_heads = sizes.heads // sizes.group
    batch = pair // kv_heads
    kv_head = pair % kv_heads
    j0 = jb * BN
    j = j0 + tl.arange(0, BN)
    offset = sizes.keys - sizes.queries
    k = _read(k_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, WIDE, False)
    v = _read(v_view, batch, kv_head, jb * BN, sizes.keys, BN, DIM, WIDE, False)
    position = _position_k(batch, j, sizes.keys, sight, GENERAL)
    document = _document(batch, j, sizes.keys, sight)
    low, high, clean_low, clean_high = _queries_seeing(jb * BN, offset, sizes, sight, CAUSAL, BM, BN)
    line = batch * tiles.step + jb
    first, second, third, fourth = _ends(tiles, line, low, high, clean_low, clean_high)

    dk = tl.zeros([BN, WIDE], tl.float32)
    dv = tl.zeros([BN, WIDE], tl.float32)
    for g in range(sizes.group):
        head = kv_head * sizes.group + g
        start = clean_low if tiles.order is None else 0
        for n in range(start, first):
            block, info = _tile(tiles, line, n, first, 0)
            dk, dv = _change_keys(
                dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, block, info, j0, j, position, document, factor,
                inverse, bias, sight, sizes, CLEAN, CAUSAL, BM, BN, DIM, WIDE,
            )  # fmt: skip
        if tiles.order is not None:
            if bias.slope is not None:
                for n in range(first, second):
                    block, info = _tile(tiles, line, n, 0, 0)
                    dk, dv = _change_keys(
                        dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, block, info, j0, j, position, document,
                        factor, inverse, bias, sight, sizes, KNOTS, CAUSAL, BM, BN, DIM, WIDE,
                    )  # fmt: skip
            elif (bias.table is not None) or (bias.rows is not None):
                for n in range(second, third):
                    block, info = _tile(tiles, line, n, 0, 0)
                    dk, dv = _change_keys(
                        dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, block, info, j0, j, position, document,
                        factor, inverse, bias, sight, sizes, FAR, CAUSAL, BM, BN, DIM, WIDE,
                    )  # fmt: skip
        start = low if tiles.order is None else third
        for n in range(start, fourth):
            block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
            dk, dv = _change_keys(
                dk, dv, k, v, q_view, grad_view, lse, delta, batch, head, block, info, j0, j, position, document, factor,
                inverse, bias, sight, sizes, GENERAL, CAUSAL, BM, BN, DIM, WIDE,
            )  # fmt: skip
    _write(dk_view, batch, kv_head, jb * BN, sizes.keys, dk * scale, BN, DIM, WIDE)
    _write(dv_view, batch, kv_head, jb * BN, sizes.keys, dv, BN, DIM, WIDE)


@triton.jit
@no_type_check
def _change(
    q, grad, level, delta, k, v_view, distance, entry, u, batch, head, block, info, i, j, number, document, w, row, factor,
    inverse, bias, sight, sizes, KIND: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile's logits [queries, keys], 0 where hidden; which pairs are seen; slope · u."""
    s = _product(q, tl.trans(k))
    valid = (number < sizes.queries)[:, None]
    s, shift, spread = _biased(
        s, distance, entry, u, w[:, None], row[:, None], valid, head, info & 0xFF, (info & 0xFF) + (info >> 8), inverse,
        bias, KIND,
    )  # fmt: skip
    p = tl.exp2(s * factor - (level - shift * factor)[:, None])
    v = _read(v_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, KIND != GENERAL)
    ds = p * (_product(grad, tl.trans(v)) - delta[:, None])
    seen = (i[:, None] >= 0) & (j[None, :] >= 0)
    if KIND == GENERAL:
        seen = _visible(i[:, None], j[None, :], document[:, None], _document(batch, j, sizes.keys, sight)[None, :],
                        sizes, sight, CAUSAL)  # fmt: skip
        ds = tl.where(seen, ds, 0.0)
    return ds, seen, spread


@triton.jit
@no_type_check
def _change_queries(
    dq, dw, left, right, q, grad, level, delta, k_view, v_view, drows, room, batch, head, block, info, i0, i, number, position,
    document, w, row, factor, inverse, bias, sight, sizes, KIND: tl.constexpr, OF_TABLE: tl.constexpr,
    OF_PIECES: tl.constexpr, CAUSAL: tl.constexpr, BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What one more block of keys adds to a block of queries.

    left, right: the rows' sums past either end of the table, or of rows, where these learn."""
    j = block * BN + tl.arange(0, BN)
    k = _read(k_view, batch, head // sizes.group, block * BN, sizes.keys, BN, DIM, WIDE, KIND != GENERAL)
    entry, u = 0.0, 0.0
    if KIND == GENERAL:
        distance = position[:, None] - _position_k(batch, j, sizes.keys, sight, KIND)[None, :]
    else:
        distance = i[:, None] - j[None, :]
    if KIND != FAR:
        entry, u = _look_up(distance, i0 - block * BN - (BN - 1), head, bias, KIND, 2 * BN)
    ds, seen, spread = _change(
        q, grad, level, delta, k, v_view, distance, entry, u, batch, head, block, info, i, j, number, document, w, row,
        factor, inverse, bias, sight, sizes, KIND, CAUSAL, BN, DIM, WIDE,
    )  # fmt: skip
    dq = _times(dq, ds, k, seen, KIND)
    if OF_PIECES and KIND != FAR:
        dw += tl.sum(ds * spread, 1)
    if KIND == FAR:
        if OF_TABLE or drows is not None:
            side = tl.sum(ds, 1)
            if OF_TABLE:
                far = (info & 1) * 1.0
                left_table, right_table = left[0], right[0]
                left = (left_table + side * (1.0 - far), left[1])
                right = (right_table + side * far, right[1])
            if drows is not None:
                far = ((info >> 1) & 1) * 1.0
                left = (left[0], left[1] + side * (1.0 - far))
                right = (right[0], right[1] + side * far)
    elif drows is not None:
        column = distance - bias.rows_first
        if KIND == GENERAL:
            column = _within(column, bias.rows_size)
        to = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + number
        to = drows + to[:, None] * bias.rows_size + column
        ends = (column == 0) | (column == bias.rows_size - 1)
        if room is None:  # each distance is there once in a row
            tl.store(to, ds, mask=seen & (ends == 0))
        else:
            tl.atomic_add(to, _whole(ds, room), mask=seen & (ends == 0), sem="relaxed")
        right_side = tl.sum(tl.where(seen & (column == bias.rows_size - 1), ds, 0.0), 1)
        left_side = tl.sum(tl.where(seen & ends & (column < bias.rows_size - 1), ds, 0.0), 1)
        left = (left[0], left[1] + left_side)
        right = (right[0], right[1] + right_side)
    return dq, dw, left, right


@triton.jit
@no_type_check
def _whole(x, room):
    """x in units so small that nothing of it is lost, as a whole number."""
    y = x * tl.load(room)
    return (y + tl.where(y < 0.0, -0.5, 0.5)).to(tl.int64)


@triton.jit
@no_type_check
def _queries(
    q_view, k_view, v_view, grad_view, dq_view, lse, delta, dw, ends, drows, room, bias, sight, tiles, sizes, factor,
    inverse, scale, blocks, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dw [b, h, i]; ends [4, b, h, i]: sums past the table's first entry, its last, those of rows; drows [b, h, i, r], whole
    numbers where there is `room`."""
    program = tl.program_id(0)
    ib = blocks - 1 - program % blocks
    pair = program // blocks
    batch = pair // sizes.heads
    head = pair % sizes.heads
    number = ib * BM + tl.arange(0, BM)
    offset = sizes.keys - sizes.queries
    i0 = offset + ib * BM
    i = offset + number
    q = _read(q_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    grad = _read(grad_view, batch, head, ib * BM, sizes.queries, BM, DIM, WIDE, False)
    at = pair.to(tl.int64) * sizes.queries + number
    there = number < sizes.queries
    level = tl.load(lse + at, mask=there, other=float("inf")) * LOG2E
    less = tl.load(delta + at, mask=there, other=0.0)
    position = _position_q(batch, number, sizes.queries, sight, i)
    document = _document(batch, i, sizes.keys, sight)
    w = _w(batch, number, sizes.queries, bias)
    row = _row_of(batch, head, number, sizes, bias)
    low, high, clean_low, clean_high = _keys_seen(offset + ib * BM, sizes, sight, bias, CAUSAL, BM, BN)
    line = batch * tiles.step + ib
    first, second, third, fourth = _ends(tiles, line, low, high, clean_low, clean_high)

    dq = tl.zeros([BM, WIDE], tl.float32)
    of_w = tl.zeros([BM], tl.float32)
    left = (tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32))
    right = (tl.zeros([BM], tl.float32), tl.zeros([BM], tl.float32))
    start = clean_low if tiles.order is None else 0
    for n in range(start, first):
        block, info = _tile(tiles, line, n, first, 0)
        dq, of_w, left, right = _change_queries(
            dq, of_w, left, right, q, grad, level, less, k_view, v_view, drows, room, batch, head, block, info, i0, i, number,
            position, document, w, row, factor, inverse, bias, sight, sizes, CLEAN, OF_TABLE, OF_PIECES, CAUSAL, BN, DIM,
            WIDE,
        )  # fmt: skip
    if tiles.order is not None:
        if bias.slope is not None:
            for n in range(first, second):
                block, info = _tile(tiles, line, n, 0, 0)
                dq, of_w, left, right = _change_queries(
                    dq, of_w, left, right, q, grad, level, less, k_view, v_view, drows, room, batch, head, block, info, i0, i,
                    number, position, document, w, row, factor, inverse, bias, sight, sizes, KNOTS, OF_TABLE, OF_PIECES,
                    CAUSAL, BN, DIM, WIDE,
                )  # fmt: skip
        elif (bias.table is not None) or (bias.rows is not None):
            for n in range(second, third):
                block, info = _tile(tiles, line, n, 0, 0)
                dq, of_w, left, right = _change_queries(
                    dq, of_w, left, right, q, grad, level, less, k_view, v_view, drows, room, batch, head, block, info, i0, i,
                    number, position, document, w, row, factor, inverse, bias, sight, sizes, FAR, OF_TABLE, OF_PIECES,
                    CAUSAL, BN, DIM, WIDE,
                )  # fmt: skip
    start = low if tiles.order is None else third
    for n in range(start, fourth):
        block, info = _tile(tiles, line, n, clean_low, clean_high - clean_low)
        dq, of_w, left, right = _change_queries(
            dq, of_w, left, right, q, grad, level, less, k_view, v_view, drows, room, batch, head, block, info, i0, i, number,
            position, document, w, row, factor, inverse, bias, sight, sizes, GENERAL, OF_TABLE, OF_PIECES, CAUSAL, BN, DIM,
            WIDE,
        )  # fmt: skip
    _write(dq_view, batch, head, ib * BM, sizes.queries, dq * scale, BM, DIM, WIDE)
    if OF_PIECES:
        tl.store(dw + at, of_w, mask=there)
    if ends is not None:
        step = (tl.num_programs(0) // blocks).to(tl.int64) * sizes.queries
        tl.store(ends + at, left[0], mask=there)
        tl.store(ends + step + at, right[0], mask=there)
        tl.store(ends + 2 * step + at, left[1], mask=there)
        tl.store(ends + 3 * step + at, right[1], mask=there)


# ---- gradients of what depends on distance -------------------------------------------------------------------------


@triton.jit
@no_type_check
def _diagonals(x, SIZE: tl.constexpr):
    """x [SIZE, SIZE] -> [2 SIZE]: entry n is the sum over row - column = n - SIZE."""
    wide = tl.join(x, tl.zeros_like(x))  # [row, column, 2]
    wide = tl.reshape(tl.permute(wide, (0, 2, 1)), (SIZE, 2 * SIZE))  # zeros right of each row
    row = tl.arange(0, SIZE)[:, None]
    n = tl.arange(0, 2 * SIZE)[None, :]
    column = (row - (n - SIZE)) & (2 * SIZE - 1)  # past either end: zeros
    return tl.sum(tl.gather(wide, column, 1), 0)


@triton.jit
@no_type_check
def _sums(
    q_view, k_view, v_view, grad_view, lse, delta, of_table, of_u, of_pieces, room, regular, bias, sight, tiles, sizes,
    factor, inverse, lines, below, OF_TABLE: tl.constexpr, OF_PIECES: tl.constexpr, SCATTER: tl.constexpr,
    SLOTS: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr, DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program: tiles whose block of queries is `diagonal` further than their block of keys.

    SCATTER false: distances go by indices. of_table, of_u [b h, lines, 2 B]: entry n is of the distance
    offset + diagonal B + n - B. of_pieces [b h, lines, 2, SLOTS]: of every segment's intercept and slope.
    Where pieces are many, and everywhere where SCATTER: whole numbers, in units of `room` (4: table, u, intercept, slope);
    of_table [h, n], of_u [n], of_pieces [2, h, s] then. Nothing is done where `regular` says that the other way serves.
    """
    asked = True
    if regular is not None:
        asked = tl.load(regular) != (1 if SCATTER else 0)
    if asked:
        program = tl.program_id(0)
        number_line = program % lines
        diagonal = number_line - below
        pair = program // lines
        batch = pair // sizes.heads
        head = pair % sizes.heads
        offset = sizes.keys - sizes.queries
        line = batch * tiles.step + number_line
        first = tl.load(tiles.ends + line * 4)
        second = tl.load(tiles.ends + line * 4 + 1)
        third = tl.load(tiles.ends + line * 4 + 2)
        fourth = tl.load(tiles.ends + line * 4 + 3)
        row = tl.arange(0, B)
        level_distance = offset + diagonal * B + row[:, None] - row[None, :]
        entry, u = _look_up(level_distance, 0, head, bias, GENERAL, B)
        all_t = tl.zeros([B, B], tl.float32)
        all_u = tl.zeros([B, B], tl.float32)
        slot = tl.arange(0, SLOTS)
        zeroth = tl.zeros([SLOTS], tl.float32)
        slopes = tl.zeros([SLOTS], tl.float32)
        if not SCATTER:
            run = -1
            run_0 = tl.zeros([B, B], tl.float32)
            run_w = tl.zeros([B, B], tl.float32)
            for n in range(first):
                ib, info = _tile(tiles, line, n, 0, 0)
                ds, seen, w, _ = _again(
                    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, entry, u, level_distance,
                    factor, inverse, bias, sight, sizes, CLEAN, False, CAUSAL, B, DIM, WIDE,
                )  # fmt: skip
                if OF_TABLE:
                    all_t += ds
                if OF_PIECES:
                    s = info & 0xFF
                    if s != run:
                        if run >= 0:
                            a = tl.load(bias.slope + head * bias.piece_step + run)
                            zeroth += tl.where(slot == run, tl.sum(tl.sum(run_0, 1), 0), 0.0)
                            slopes += tl.where(slot == run, tl.sum(tl.sum(run_w * u, 1), 0), 0.0)
                            all_u += a * run_w
                        run_0 = tl.zeros([B, B], tl.float32)
                        run_w = tl.zeros([B, B], tl.float32)
                        run = s
                    run_0 += ds
                    run_w += ds * w[:, None]
            if OF_PIECES:
                if run >= 0:
                    a = tl.load(bias.slope + head * bias.piece_step + run)
                    zeroth += tl.where(slot == run, tl.sum(tl.sum(run_0, 1), 0), 0.0)
                    slopes += tl.where(slot == run, tl.sum(tl.sum(run_w * u, 1), 0), 0.0)
                    all_u += a * run_w
                for n in range(first, second):
                    ib, info = _tile(tiles, line, n, 0, 0)
                    ds, seen, w, _ = _again(
                        ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, entry, u,
                        level_distance, factor, inverse, bias, sight, sizes, KNOTS, False, CAUSAL, B, DIM, WIDE,
                    )  # fmt: skip
                    if OF_TABLE:
                        all_t += ds
                    all_u, zeroth, slopes = _sum_pieces(
                        all_u, zeroth, slopes, ds, seen, u, w, slot, info, head, of_pieces, room, bias, sizes,
                    )  # fmt: skip
            for n in range(third, fourth):
                ib, info = _tile(tiles, line, n, 0, 0)
                ds, seen, w, _ = _again(
                    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, entry, u, level_distance,
                    factor, inverse, bias, sight, sizes, GENERAL, False, CAUSAL, B, DIM, WIDE,
                )  # fmt: skip
                if OF_TABLE:
                    all_t += ds
                if OF_PIECES:
                    all_u, zeroth, slopes = _sum_pieces(
                        all_u, zeroth, slopes, ds, seen, u, w, slot, info, head, of_pieces, room, bias, sizes,
                    )  # fmt: skip
            to = program.to(tl.int64) * (2 * B) + tl.arange(0, 2 * B)
            if OF_TABLE:
                tl.store(of_table + to, _diagonals(all_t, B))
            if OF_PIECES:
                tl.store(of_u + to, _diagonals(all_u, B))
                if bias.cell is None:
                    tl.store(of_pieces + program.to(tl.int64) * (2 * SLOTS) + slot, zeroth)
                    tl.store(of_pieces + program.to(tl.int64) * (2 * SLOTS) + SLOTS + slot, slopes)
        else:
            for n in range(fourth - (third - second)):
                ib, info = _tile(tiles, line, n + tl.where(n >= second, third - second, 0), 0, 0)
                ds, seen, w, distance = _again(
                    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, entry, u, level_distance,
                    factor, inverse, bias, sight, sizes, GENERAL, True, CAUSAL, B, DIM, WIDE,
                )  # fmt: skip
                if OF_TABLE:
                    column = _within(distance - bias.first, bias.table_size)
                    to = of_table + head * bias.table_step + column
                    tl.atomic_add(to, _whole(ds, room), mask=seen, sem="relaxed")
                if OF_PIECES:
                    at = _within(distance, bias.u_size)
                    x = tl.load(bias.u + at) * w[:, None]
                    s = tl.zeros_like(x).to(tl.int32) + (info & 0xFF)
                    if bias.cell is None:
                        for k in range(info & 0xFF, (info & 0xFF) + (info >> 8)):
                            s += (x >= tl.load(bias.knots + k)).to(tl.int32)
                    else:
                        s = _segment(x, bias)
                    a = tl.load(bias.slope + head * bias.piece_step + s)
                    tl.atomic_add(of_u + at, _whole(ds * a * w[:, None], room + 1), mask=seen, sem="relaxed")
                    _scatter_pieces(of_pieces, s, x, ds, seen, head, room, bias, sizes)


@triton.jit
@no_type_check
def _scatter_pieces(to, s, x, ds, seen, head, room, bias, sizes):
    heads = 1 if bias.piece_step == 0 else sizes.heads
    to = to + head * bias.piece_step + s
    tl.atomic_add(to, _whole(ds, room + 2), mask=seen, sem="relaxed")
    tl.atomic_add(to + heads * bias.pieces, _whole(ds * x, room + 3), mask=seen, sem="relaxed")


@triton.jit
@no_type_check
def _again(
    ib, info, diagonal, batch, head, q_view, k_view, v_view, grad_view, lse, delta, entry, u, level_distance, factor,
    inverse, bias, sight, sizes, KIND: tl.constexpr, SCATTER: tl.constexpr, CAUSAL: tl.constexpr, B: tl.constexpr,
    DIM: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits of the tile at block ib of queries; which are seen; w; distances."""
    number = ib * B + tl.arange(0, B)
    i = sizes.keys - sizes.queries + number
    block = ib - diagonal
    j = block * B + tl.arange(0, B)
    q = _read(q_view, batch, head, ib * B, sizes.queries, B, DIM, WIDE, KIND != GENERAL)
    grad = _read(grad_view, batch, head, ib * B, sizes.queries, B, DIM, WIDE, KIND != GENERAL)
    k = _read(k_view, batch, head // sizes.group, block * B, sizes.keys, B, DIM, WIDE, KIND != GENERAL)
    at = (batch.to(tl.int64) * sizes.heads + head) * sizes.queries + number
    there = number < sizes.queries
    level = tl.load(lse + at, mask=there, other=float("inf")) * LOG2E
    less = tl.load(delta + at, mask=there, other=0.0)
    w = _w(batch, number, sizes.queries, bias)
    row = _row_of(batch, head, number, sizes, bias)
    distance = level_distance
    if SCATTER:
        position = _position_q(batch, number, sizes.queries, sight, i)
        distance = position[:, None] - _position_k(batch, j, sizes.keys, sight, GENERAL)[None, :]
        entry, u = _look_up(distance, 0, head, bias, GENERAL, B)
    document = _document(batch, i, sizes.keys, sight)
    ds, seen, _ = _change(
        q, grad, level, less, k, v_view, distance, entry, u, batch, head, block, info, i, j, number, document, w, row, factor,
        inverse, bias, sight, sizes, KIND, CAUSAL, B, DIM, WIDE,
    )  # fmt: skip
    return ds, seen, w, distance


@triton.jit
@no_type_check
def _sum_pieces(
    all_u, zeroth, slopes, ds, seen, u, w, slot, info, head, of_pieces, room, bias, sizes
):  # fmt: skip
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
        _scatter_pieces(of_pieces, s, x, ds, seen, head, room, bias, sizes)
    return all_u, zeroth, slopes
