"""Triton functions that determine which tiles a program processes: from lists (tiles.py), or from indices alone.

Without lists, the blocks on the other side of a line are these ranges, in this order:

    low ... clean_low            GENERAL
    clean_low ... near_low       FAR
    near_low ... near_high       CLEAN
    near_high ... clean_high     FAR
    clean_high ... high          GENERAL

Their `bounds` are a tuple (low, high, clean_low, clean_high, near_low, near_high).
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.parts import FAR, GENERAL, KINDS, KNOTS, ONE_KNOT, TWO_KNOTS


@triton.jit
@no_type_check
def _tile_entry(tiles, line, n, bounds, KIND: tl.constexpr, CAUSAL: tl.constexpr, BY_KEYS: tl.constexpr):
    """Return the other block of the n-th tile, and its info. BY_KEYS: the tiles of the line share their keys."""
    if tiles.order is not None:
        entry = tl.load(tiles.order + line.to(tl.int64) * tiles.width + n)
        return entry & 0xFFFF, entry >> 16
    elif KIND == GENERAL:
        return n + tl.where(n >= bounds[2], bounds[3] - bounds[2], 0), 0
    elif KIND == FAR and not CAUSAL:
        after = (n >= bounds[4]).to(tl.int32)
        return n + after * (bounds[5] - bounds[4]), (after if BY_KEYS else 1 - after)
    else:
        return tl.cast(n, tl.int32), 1  # the interpreter counts in plain numbers


@triton.jit
@no_type_check
def _loop_bounds(tiles, line, bounds, CAUSAL: tl.constexpr, BY_KEYS: tl.constexpr):
    """Return where the loop of each kind of tiles begins and ends."""
    if tiles.order is None:
        low, high, clean_low, clean_high, near_low, near_high = bounds
        far_low, far_high = clean_low, clean_high - (near_high - near_low)
        if CAUSAL:  # only distances past the last entry are FAR; the range has no gap
            far_low = near_high if BY_KEYS else clean_low
            far_high = clean_high if BY_KEYS else near_low
        general_high = high - (clean_high - clean_low)
        return (near_low, 0, 0, 0, far_low, low), (near_high, 0, 0, 0, far_high, general_high)
    else:
        at = tiles.ends + line * KINDS
        clean, one, two = tl.load(at), tl.load(at + ONE_KNOT), tl.load(at + TWO_KNOTS)
        knots, far, general = tl.load(at + KNOTS), tl.load(at + FAR), tl.load(at + GENERAL)
        return (0, clean, one, two, knots, far), (clean, one, two, knots, far, general)


@triton.jit
@no_type_check
def _occurs(tiles, args, KIND: tl.constexpr):
    """Whether a call may have tiles of a kind."""
    if KIND >= ONE_KNOT and KIND <= KNOTS:
        return (tiles.order is not None) and (args.slope is not None) and (KIND == KNOTS or args.cell is None)
    elif KIND == FAR:
        return (args.slope is None) and ((args.table is not None) or (args.rows is not None))
    else:
        return True


@triton.constexpr_function
@no_type_check
def _stages(KIND: int) -> int | None:
    """Return the stages of the pipeline of a kind's loop; None is what the kernel was launched with.

    Triton (seen in 3.6.0 and 3.7.1) loads the next tile into the buffer of the present one before the branches of a
    loop have read it. Only the loops of GENERAL tiles have branches with products of matrices (`_masked_dot`).
    """
    return 1 if KIND == GENERAL else None


@triton.jit
@no_type_check
def _far_distances(head, args, sizes):
    """Return up to which distance, and from which on, tiles without lists are FAR."""
    nowhere = 2 * sizes.keys
    if args.steps is not None:
        below = tl.load(args.steps + 2 * head)
        above = tl.load(args.steps + 2 * head + 1)
        return tl.where(below == below, 0, -nowhere), tl.where(above == above, 0, nowhere)
    elif (args.table is not None) and (args.rows is not None):
        far_to = tl.minimum(args.table_first, args.rows_first)
        far_from = tl.maximum(args.table_first + args.table_size, args.rows_first + args.rows_size) - 1
        return far_to, far_from
    elif args.table is not None:
        return args.table_first, args.table_first + args.table_size - 1
    elif args.rows is not None:
        return args.rows_first, args.rows_first + args.rows_size - 1
    else:
        return -nowhere, nowhere


@triton.jit
@no_type_check
def key_blocks(i0, head, split, splits, sizes, args, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the bounds of the blocks of keys for the queries i0 ... i0 + BM, in one of `splits` parts of the keys.

    A block of queries need not be full, as what is computed for queries past the end is not stored.
    """
    low = 0
    high = tl.cdiv(sizes.keys, BN)
    clean_low = 0
    clean_high = sizes.keys // BN
    last = tl.minimum(i0 + BM, sizes.keys) - 1
    if CAUSAL:
        high = last // BN + 1
        clean_high = tl.minimum(clean_high, (i0 + 1) // BN)
    if args.window is not None:
        low = tl.maximum(i0 - args.window + 1, 0) // BN
        clean_low = tl.cdiv(tl.maximum(last - args.window + 1, 0), BN)
        if not CAUSAL:
            high = tl.minimum(high, tl.cdiv(last + args.window, BN))
            clean_high = tl.minimum(clean_high, tl.maximum(i0 + args.window, 0) // BN)
    if (args.slope is not None) or (args.documents is not None) or (args.position_q is not None):
        clean_high = 0  # more than indices matter
    if splits > 1:
        share = tl.cdiv(high - low, splits)
        low = low + split * share
        high = tl.minimum(high, low + share)
        low = tl.minimum(low, high)
    far_to, far_from = _far_distances(head, args, sizes)
    near_low = tl.maximum(i0 - far_from + 1, 0) // BN
    near_high = high if CAUSAL else tl.cdiv(tl.maximum(i0 + BM - 1 - far_to, 0), BN)
    return _ordered(low, high, clean_low, clean_high, near_low, near_high)


@triton.jit
@no_type_check
def query_blocks(j0, head, sizes, args, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the bounds of the blocks of queries for the keys j0 ... j0 + BN."""
    offset = sizes.keys - sizes.queries
    low = 0
    high = tl.cdiv(sizes.queries, BM)
    clean_low = 0
    clean_high = sizes.queries // BM
    last = tl.minimum(j0 + BN, sizes.keys) - 1
    if CAUSAL:
        low = tl.maximum(j0 - offset, 0) // BM
        clean_low = tl.cdiv(tl.maximum(last - offset, 0), BM)
    if args.window is not None:
        high = tl.minimum(high, tl.cdiv(tl.maximum(last + args.window - offset, 0), BM))
        clean_high = tl.minimum(clean_high, tl.maximum(j0 + args.window - offset, 0) // BM)
        if not CAUSAL:
            low = tl.maximum(j0 - args.window + 1 - offset, 0) // BM
            clean_low = tl.cdiv(tl.maximum(last - args.window + 1 - offset, 0), BM)
    if j0 + BN > sizes.keys:
        clean_high = 0
    high = tl.maximum(high, low)
    far_to, far_from = _far_distances(head, args, sizes)
    near_low = low if CAUSAL else tl.maximum(far_to + j0 - offset + 1, 0) // BM
    near_high = tl.cdiv(tl.maximum(far_from + j0 + BN - 1 - offset, 0), BM)
    return _ordered(low, high, clean_low, clean_high, near_low, near_high)


@triton.jit
@no_type_check
def _blocks_at_distance(diagonal, sizes, args, CAUSAL: tl.constexpr, B: tl.constexpr):
    """Return the bounds of the blocks of queries of which the tiles `diagonal` blocks before them are needed for the
    gradients of a table. There are no FAR tiles: see `distance_gradients`.
    """
    nearest = sizes.keys - sizes.queries + diagonal * B - (B - 1)
    furthest = nearest + 2 * (B - 1)
    low = tl.maximum(diagonal, 0)
    high = tl.minimum(tl.cdiv(sizes.queries, B), tl.cdiv(sizes.keys, B) + diagonal)
    clean_high = tl.minimum(sizes.queries // B, sizes.keys // B + diagonal)
    if CAUSAL:
        high = tl.where(furthest >= 0, high, low)
        clean_high = tl.where(nearest >= 0, clean_high, low)
    if args.window is not None:
        high = tl.where((nearest < args.window) & (furthest > -args.window), high, low)
        clean_high = tl.where((furthest < args.window) & (nearest > -args.window), clean_high, low)
    if args.table is not None:
        high = tl.where(nearest >= args.table_first + args.table_size - 1, low, high)
    return _ordered(low, high, low, clean_high, low, high)


@triton.jit
@no_type_check
def _ordered(low, high, clean_low, clean_high, near_low, near_high):
    high = tl.maximum(high, low)
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    near_low = tl.minimum(tl.maximum(near_low, clean_low), clean_high)
    near_high = tl.minimum(tl.maximum(near_high, near_low), clean_high)
    return low, high, clean_low, clean_high, near_low, near_high
