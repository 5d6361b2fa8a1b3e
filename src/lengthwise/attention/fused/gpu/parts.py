"""The arguments of the Triton kernels (output.py, weights.py, gradients.py, bias_gradients.py), and shared functions.

`args` are those of the operator; call.py has the names of their sizes and strides.
biases.py adds biases to the logits; rows.py reads tables with a row for each query, and sums into them; segment_sums.py
sums by segment; visits.py determines which tiles a program processes.

A tile is a pair of a block of queries and a block of keys. There are six kinds of tiles, so that most need little
work:

    CLEAN      all pairs visible, distances follow from indices, no knot between any two coordinates x
    ONE_KNOT   the same with one knot between: each pair selects one of two segments
    TWO_KNOTS  the same with two
    KNOTS      the same with more (or with so many segments that each pair searches for its own)
    FAR        all pairs visible, all distances past one end of every table, so that the bias is one number for each
               query; or all distances on one side of 0 where the table is a straight line (`steps`)
    GENERAL    anything else: masks, positions read one by one

The number of a kind up to TWO_KNOTS is that of its knots.

Each kind has a loop of its own. Unless there are documents, positions or segments, the kinds follow from indices alone,
and each loop is over a range of blocks (visits.py). Otherwise tiles.py sorts each block's tiles by kind into lists.

  * Logits are in units of `scale`: s = <q, k> + bias / scale, weight = 2^(factor s - factor row_max), factor =
    scale log2(e), so that scaling costs nothing. What a bias adds to all pairs of a query in a tile (`shift`) is added
    to the row maximum instead, so a FAR tile takes about as many instructions as one without a bias.
  * The entries of a tile's distances are a window of about as many numbers as it has rows and columns. They are read
    once and distributed to the pairs through shared memory (`_gather_window` in biases.py). Reading them pair by pair
    took twice as many instructions and 33 barriers a tile.
  * Every sum is computed by one program in a fixed order, or from fixed-point numbers. There are no atomic additions of
    floating-point numbers.
  * Masked keys are skipped rather than multiplied by zero, so NaN or infinity in a masked key cannot reach the output
    (`_masked_dot`).
"""

from typing import Any, NamedTuple, no_type_check

import triton
import triton.language as tl

CLEAN = tl.constexpr(0)
ONE_KNOT = tl.constexpr(1)
TWO_KNOTS = tl.constexpr(2)
KNOTS = tl.constexpr(3)
FAR = tl.constexpr(4)
GENERAL = tl.constexpr(5)
KINDS = tl.constexpr(6)

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


class View(NamedTuple):
    """A tensor [batch, head, token, dim]: its pointer and its strides; the dims of a token are contiguous."""

    at: Any
    batch: int
    head: int
    token: int


class Sizes(NamedTuple):
    heads: int
    group: int  # heads of queries for each head of keys
    queries: int
    keys: int


class Tiles(NamedTuple):
    """For every block its tiles sorted by kind, [r, blocks, tiles], and where each kind ends, [r, blocks, 6]; or None.

    An entry contains a block (16 bits), the first segment in the tile (8 bits) and the number of knots. For FAR tiles
    the segment is 1 if distances are past the last entry of every table, and 0 if they are before the first.
    """

    order: Any
    ends: Any
    step: int  # blocks, or 0 where all rows of the batch have the same lists
    width: int


@triton.jit
@no_type_check
def _locate(program, blocks, heads):
    """Return the block of a program, the number of its pair of batch and head, the batch and the head."""
    pair = program // blocks
    return program % blocks, pair, pair // heads, pair % heads


@triton.jit
@no_type_check
def _load_tokens(
    view, batch, head, start, limit, BLOCK: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr,
    FULL: tl.constexpr,
):  # fmt: skip
    """Load tokens start ... start + BLOCK of a head, with zeros past its end. FULL: none lies past it."""
    base = view.at + batch.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + start.to(tl.int64) * view.token
    t = tl.arange(0, BLOCK)
    d = tl.arange(0, PADDED_DIM)
    at = base + (t[:, None] * view.token + d[None, :])
    if FULL:
        if DIM == PADDED_DIM:
            return tl.load(at)
        return tl.load(at, mask=d[None, :] < DIM, other=0.0)
    return tl.load(at, mask=((start + t) < limit)[:, None] & (d[None, :] < DIM), other=0.0)


@triton.jit
@no_type_check
def _store_tokens(view, batch, head, start, limit, x, BLOCK: tl.constexpr, DIM: tl.constexpr, PADDED_DIM: tl.constexpr):
    base = view.at + batch.to(tl.int64) * view.batch + head.to(tl.int64) * view.head + start.to(tl.int64) * view.token
    t = tl.arange(0, BLOCK)
    d = tl.arange(0, PADDED_DIM)
    mask = ((start + t) < limit)[:, None] & (d[None, :] < DIM)
    tl.store(base + (t[:, None] * view.token + d[None, :]), x.to(view.at.dtype.element_ty), mask=mask)


@triton.jit
@no_type_check
def _dot(a, b, acc=None):
    """Return a @ b + acc. One operation, as compilers fuse it anyway; so the interpreter rounds in the same way."""
    if a.dtype == tl.float32:
        return tl.dot(a, b, acc, input_precision="ieee")
    return tl.dot(a, b, acc)


@triton.jit
@no_type_check
def _masked_dot(acc, weight, x, visible, KIND: tl.constexpr):
    """Return acc + weight @ x. Hidden pairs add nothing, whatever x is; a visible NaN or infinity makes a row NaN."""
    if KIND == GENERAL:
        difference = x.to(tl.float32)
        if tl.max(tl.max(tl.where(difference - difference == 0.0, 0, 1), 1), 0) > 0:
            again = x.to(tl.float32)
            finite = again - again == 0.0
            acc = _dot(weight.to(x.dtype), tl.where(finite, x, 0.0).to(x.dtype), acc)
            spoiled = _dot(tl.where(visible, 1.0, 0.0).to(x.dtype), tl.where(finite, 0.0, 1.0).to(x.dtype))
            acc = tl.where(spoiled > 0.0, float("nan"), acc)
        else:
            acc = _dot(weight.to(x.dtype), x, acc)
        return acc
    else:
        return _dot(weight.to(x.dtype), x, acc)


@triton.jit
@no_type_check
def _to_sum_dtype(x, dtype: tl.constexpr):
    """Return x in the dtype in which gradients of logits are summed, by the dtype of q.

    It is float64 for float32, because these sums cancel so far that rounding at each addition would exceed all other
    errors. Half precision has larger errors itself.
    """
    if dtype == tl.float32:
        return x.to(tl.float64)
    else:
        return x


@triton.jit
@no_type_check
def _partial_row_sums(x):
    """Return the sums of parts of the rows of x [n, m] as [n, 4].

    Each thread has four parts of two rows of a product of matrices, so nothing is exchanged between threads.
    """
    parts = tl.permute(tl.reshape(x, (x.shape[0], x.shape[1] // 8, 4, 2)), (0, 2, 1, 3))
    return tl.sum(tl.reshape(parts, (x.shape[0], 4, x.shape[1] // 4)), 2)


@triton.jit
@no_type_check
def _clamp_index(x, size):
    return tl.minimum(tl.maximum(x, 0), size - 1)


@triton.jit
@no_type_check
def _to_fixed_point(x, fixed_point_scale):
    """Return x as a fixed-point number: an integer in units so small that its precision is kept."""
    y = x * tl.load(fixed_point_scale)
    return (y + tl.where(y < 0.0, -0.5, 0.5)).to(tl.int64)


@triton.jit
@no_type_check
def _prefix_sums(batch, head, args):
    """Return the pointer to the running sums of a head."""
    return (
        args.prefix_sum
        + batch.to(tl.int64) * args.prefix_sum_batch_step
        + head.to(tl.int64) * args.prefix_sum_heads_step
    )


@triton.jit
@no_type_check
def _load_per_query(at, place, number, sizes, FULL: tl.constexpr):
    """Load at[place] for queries, with 0 past the last. FULL: none lies past it."""
    if FULL:
        return tl.load(at + place)
    return tl.load(at + place, mask=number < sizes.queries, other=0)


@triton.jit
@no_type_check
def _load_queries(batch, head, block, sizes, args, SIZE: tl.constexpr, FULL: tl.constexpr):
    """Load everything about a block of queries except their vectors.

    Return the index of the first query among the keys; for each query its number, index, position, document, query
    scale, and the offset of its row of `rows`; the offset of the block's rows; and the running sum of each query's own
    key. FULL: no query lies past the end.
    """
    number = block * SIZE + tl.arange(0, SIZE)
    i0 = sizes.keys - sizes.queries + block * SIZE
    i = sizes.keys - sizes.queries + number
    position = i
    if args.position_q is not None:
        position = _load_per_query(args.position_q + batch * args.position_q_batch_step, number, number, sizes, FULL)
    document = i
    if args.documents is not None:
        document = _load_per_query(args.documents + batch * args.documents_batch_step, i, number, sizes, FULL)
    query_scale = 0.0 * number
    if args.query_scale is not None:
        query_scale = _load_per_query(
            args.query_scale + batch * args.query_scale_batch_step, number, number, sizes, FULL
        )
    row, rows = number, 0
    if args.rows is not None:
        # 32-bit offsets within a block, because 64-bit offsets for every pair would fill the registers. Queries past
        # the end have the row of the last.
        row = (tl.minimum(number, sizes.queries - 1) - block * SIZE) * args.rows_size
        start = (block * SIZE).to(tl.int64) * args.rows_size
        rows = batch.to(tl.int64) * args.rows_batch_step + head * args.rows_heads_step + start
    own_sum = number
    if args.prefix_sum is not None:
        own_sum = _load_per_query(_prefix_sums(batch, head, args), i, number, sizes, FULL)
    return i0, number, i, position, document, query_scale, row, rows, own_sum


@triton.jit
@no_type_check
def _load_keys(batch, block, sizes, args, SIZE: tl.constexpr):
    """Load the first index of a block of keys, and the index, position and document of each key."""
    j = block * SIZE + tl.arange(0, SIZE)
    exists = j < sizes.keys
    position = j
    if args.position_k is not None:
        position = tl.load(args.position_k + batch * args.position_k_batch_step + j, mask=exists, other=0)
    document = j
    if args.documents is not None:
        document = tl.load(args.documents + batch * args.documents_batch_step + j, mask=exists, other=0)
    return block * SIZE, j, position, document


@triton.jit
@no_type_check
def _along_queries(x, TRANSPOSED: tl.constexpr):
    """Reshape values of queries for a tile [queries, keys], or [keys, queries] if TRANSPOSED."""
    return x[None, :] if TRANSPOSED else x[:, None]


@triton.jit
@no_type_check
def _along_keys(x, TRANSPOSED: tl.constexpr):
    return x[:, None] if TRANSPOSED else x[None, :]


@triton.jit
@no_type_check
def _distances(queries, keys, KIND: tl.constexpr, TRANSPOSED: tl.constexpr):
    if KIND == GENERAL:
        return _along_queries(queries[3], TRANSPOSED) - _along_keys(keys[2], TRANSPOSED)
    else:  # indices have the same distances here
        return _along_queries(queries[2], TRANSPOSED) - _along_keys(keys[1], TRANSPOSED)


@triton.jit
@no_type_check
def _visible(queries, keys, sizes, args, KIND: tl.constexpr, CAUSAL: tl.constexpr, TRANSPOSED: tl.constexpr):
    i = _along_queries(queries[2], TRANSPOSED)
    j = _along_keys(keys[1], TRANSPOSED)
    if KIND == GENERAL:
        visible = (i < sizes.keys) & (j < sizes.keys)
        if CAUSAL:
            visible = visible & (j <= i)
        if args.window is not None:
            visible = visible & (j > i - args.window)
            if not CAUSAL:
                visible = visible & (j < i + args.window)
        if args.documents is not None:
            visible = visible & (_along_queries(queries[4], TRANSPOSED) == _along_keys(keys[3], TRANSPOSED))
        return visible
    else:
        return (i < sizes.keys) & (j >= 0)
