"""Which tiles a program goes through: those of its list (tiles.py), or, where indices alone decide, those from here."""

from typing import no_type_check

import triton
import triton.language as tl


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
