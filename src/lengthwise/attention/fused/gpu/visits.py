"""Triton functions that determine which tiles a program processes: from lists (tiles.py), or from indices alone."""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.parts import FAR, GENERAL, KNOTS


@triton.jit
@no_type_check
def _tile_entry(tiles, line, n, clean_low, clean_high, KIND: tl.constexpr):
    """Return the other block of the n-th tile, and its info. Without lists the GENERAL blocks are those around the
    CLEAN ones.
    """
    if tiles.order is None:
        skip = clean_high - clean_low if KIND == GENERAL else 0
        return n + tl.where(n >= clean_low, skip, 0), 0
    else:
        entry = tl.load(tiles.order + line.to(tl.int64) * tiles.width + n)
        return entry & 0xFFFF, entry >> 16


@triton.jit
@no_type_check
def _loop_bounds(tiles, line, low, high, clean_low, clean_high):
    """Return where the loop of each kind of tiles begins and ends.

    Without lists, tiles from clean_low to clean_high are CLEAN, and those on either side are GENERAL.
    """
    if tiles.order is None:
        general_end = high - (clean_high - clean_low)
        return (clean_low, clean_high, clean_high, low), (clean_high, clean_high, clean_high, general_end)
    else:
        at = tiles.ends + line * 4
        first, second, third = tl.load(at), tl.load(at + 1), tl.load(at + 2)
        return (0, first, second, third), (first, second, third, tl.load(at + 3))


@triton.jit
@no_type_check
def _occurs(tiles, args, KIND: tl.constexpr):
    """Whether a call may have tiles of a kind."""
    if KIND == KNOTS:
        return (tiles.order is not None) and (args.slope is not None)
    elif KIND == FAR:
        has_table = (args.table is not None) or (args.rows is not None)
        return (tiles.order is not None) and (args.slope is None) and has_table
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
def _only_indices_matter(args):
    return (args.table is None) and (args.slope is None) and (args.rows is None) and (args.documents is None)


@triton.jit
@no_type_check
def _visible_key_blocks(i0, sizes, args, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the blocks of keys that are visible to the queries i0 ... i0 + BM, and those of them that are CLEAN, by
    indices.
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
    if i0 + BM > sizes.keys:
        clean_high = 0
    if not _only_indices_matter(args):
        clean_high = 0
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high


@triton.jit
@no_type_check
def _part_of_blocks(low, high, clean_low, clean_high, split, splits):
    """Return the same four ends for one of `splits` parts of the blocks of keys."""
    if splits > 1:
        share = tl.cdiv(high - low, splits)
        low = low + split * share
        high = tl.minimum(high, low + share)
        low = tl.minimum(low, high)
        clean_low = tl.minimum(tl.maximum(clean_low, low), high)
        clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high


@triton.jit
@no_type_check
def _visible_query_blocks(j0, sizes, args, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the blocks of queries to which the keys j0 ... j0 + BN are visible, and those of them that are CLEAN."""
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
    clean_low = tl.minimum(tl.maximum(clean_low, low), high)
    clean_high = tl.minimum(tl.maximum(clean_high, clean_low), high)
    return low, high, clean_low, clean_high
