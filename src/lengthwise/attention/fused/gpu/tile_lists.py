"""The Triton kernels that find the kind of every tile and sort the tiles of a line by it; parts.py explains the kinds.

They are two, because the threads of a program may not see what others of the same program write to memory. The kinds
are complete once the first kernel ends. tiles.py launches both.
"""

from typing import no_type_check

import triton
import triton.language as tl

from lengthwise.attention.fused.gpu.parts import CLEAN, FAR, GENERAL, KINDS, KNOTS

UNSEEN = KINDS
CHUNK = tl.constexpr(128)  # entries that are written together


@triton.jit
@no_type_check
def _token(start, limit, SIZE: tl.constexpr):
    """Return the tokens of blocks that begin at `start` [y] as [y, SIZE]; past either end, the token there."""
    return tl.minimum(tl.maximum(start[:, None] + tl.arange(0, SIZE)[None, :], 0), limit - 1)


@triton.jit
@no_type_check
def _spread(at, token, less):
    """Return the lowest and the highest of at[token] - less in each row."""
    x = tl.load(at + token) - less
    return tl.min(x, 1), tl.max(x, 1)


@triton.jit
@no_type_check
def _relation(q, k, position_q, position_k, documents, queries, keys, window, CAUSAL: tl.constexpr,
              SIZE_Q: tl.constexpr, SIZE_K: tl.constexpr):  # fmt: skip
    """Return, for tiles of blocks q and k [y]: whether any pair can be visible, whether all are, the smallest and the
    largest distance, and whether distances follow from indices. The pointers are those of one row of the batch."""
    offset = keys - queries
    q_low = offset + q * SIZE_Q
    q_high = tl.minimum(q_low + SIZE_Q, keys) - 1
    k_low = k * SIZE_K
    k_high = tl.minimum(k_low + SIZE_K, keys) - 1
    # Incomplete blocks at the end of the queries or keys are GENERAL.
    full = ((q + 1) * SIZE_Q <= queries) & ((k + 1) * SIZE_K <= keys)
    visible = k_high > q_low - window
    full = full & (k_low > q_high - window)
    if CAUSAL:
        visible = visible & (k_low <= q_high)
        full = full & (k_high <= q_low)
    else:
        visible = visible & (k_low < q_high + window)
        full = full & (k_high < q_low + window)
    token_q = _token(q * SIZE_Q, queries, SIZE_Q)
    token_k = _token(k_low, keys, SIZE_K)
    if documents is not None:
        a, b = _spread(documents, offset + token_q, 0)
        c, d = _spread(documents, token_k, 0)
        visible = visible & (a <= d) & (c <= b)
        full = full & (a == b) & (c == d) & (a == c)
    nearest = q_low - k_high
    furthest = q_high - k_low
    regular = full
    if position_q is not None:
        a, b = _spread(position_q, token_q, 0)
        c, d = _spread(position_k, token_k, 0)
        nearest = a - d
        furthest = b - c
        # If positions differ from indices by the same offset in both blocks, distances follow from indices.
        a, b = _spread(position_q, token_q, offset + token_q)
        c, d = _spread(position_k, token_k, token_k)
        regular = regular & (a == b) & (c == d) & (a == c)
    return visible, full, nearest, furthest, regular


@triton.jit
@no_type_check
def _knots_in_tile(q, nearest, furthest, distance_feature, query_scale, knots, queries, feature_size, segments,
                   SIZE_Q: tl.constexpr, SPAN: tl.constexpr):  # fmt: skip
    """Return how many knots are <= every coordinate of tiles with these distances, and how many are <= some coordinate.

    With NaN the former are none and the latter all. SPAN: entries of distance_feature that are read together. Tiles
    whose distances follow from indices have fewer.
    """
    first = tl.minimum(tl.maximum(nearest, 0), feature_size - 1)
    last = tl.minimum(tl.maximum(furthest, 0), feature_size - 1)
    scale = tl.load(query_scale + _token(q * SIZE_Q, queries, SIZE_Q)).to(tl.float32)
    c = tl.min(scale, 1)
    d = tl.max(scale, 1)
    lowest = tl.full([q.shape[0], SPAN], float("inf"), tl.float32)
    highest = -lowest
    total = tl.zeros([q.shape[0], SPAN], tl.float32)  # NaN if an entry is
    for start in range(0, tl.max(last - first, 0) + 1, SPAN):
        distance = tl.minimum(first[:, None] + start + tl.arange(0, SPAN)[None, :], last[:, None])
        feature = tl.load(distance_feature + distance).to(tl.float32)
        lowest = tl.minimum(lowest, feature)
        highest = tl.maximum(highest, feature)
        total += feature * 0.0
    a = tl.min(lowest, 1)
    b = tl.max(highest, 1)
    low = tl.minimum(tl.minimum(a * c, a * d), tl.minimum(b * c, b * d))
    high = tl.maximum(tl.maximum(a * c, a * d), tl.maximum(b * c, b * d))
    check = tl.sum(total, 1) + tl.sum(scale * 0.0, 1) + (a * c + a * d + b * c + b * d) * 0.0
    unknown = check != 0.0  # NaN, of NaN or infinity
    low = tl.where(unknown, float("-inf"), low)
    high = tl.where(unknown, float("inf"), high)
    below = tl.zeros_like(q)
    up_to = tl.zeros_like(q)
    for n in range(segments - 1):
        knot = tl.load(knots + n).to(tl.float32)
        below += (knot <= low).to(tl.int32)
        up_to += (knot <= high).to(tl.int32)
    return below, up_to


@triton.jit
@no_type_check
def _classify(
    q, k, position_q, position_k, documents, distance_feature, query_scale, knots, queries, keys, window, table_first,
    table_size, rows_first, rows_size, feature_size, segments, LINES: tl.constexpr, TABLES: tl.constexpr,
    FEW_SEGMENTS: tl.constexpr, CAUSAL: tl.constexpr, SIZE_Q: tl.constexpr, SIZE_K: tl.constexpr,
):  # fmt: skip
    """Return the kind and the info of tiles; see `Tiles` in parts.py."""
    visible, full, nearest, furthest, inside = _relation(q, k, position_q, position_k, documents, queries, keys, window,
                                                         CAUSAL, SIZE_Q, SIZE_K)  # fmt: skip
    kind = tl.where(visible, GENERAL, UNSEEN)
    info = tl.zeros_like(q)
    if distance_feature is None:
        kind = tl.where(visible & inside, CLEAN, kind)
        if TABLES:
            past = full & ((nearest >= table_first + table_size - 1) | (table_size == 0))
            past = past & ((nearest >= rows_first + rows_size - 1) | (rows_size == 0))
            before = full & ((furthest <= table_first) | (table_size == 0))
            before = before & ((furthest <= rows_first) | (rows_size == 0))
            if LINES == "distance":  # the gradient of the first entry needs those before it
                before = before & False
            kind = tl.where(visible & (past | before), FAR, kind)
            info = past.to(tl.int32)
    else:
        inside = visible & inside
        if FEW_SEGMENTS:
            below, up_to = _knots_in_tile(q, nearest, furthest, distance_feature, query_scale, knots, queries,
                                          feature_size, segments, SIZE_Q, 2 * max(SIZE_Q, SIZE_K))  # fmt: skip
            kind = tl.where(inside, tl.minimum(up_to - below, KNOTS), kind)
            info = below + 256 * (up_to - below)
        else:
            kind = tl.where(inside, KNOTS, kind)
    return kind, info


@triton.jit
@no_type_check
def classify_tiles(
    kinds, position_q, position_k, documents, distance_feature, query_scale, knots, position_q_step, position_k_step,
    documents_step, query_scale_step, queries, keys, window, table_first, table_size, rows_first, rows_size,
    feature_size, segments, lines, width, programs, key_blocks, below, LINES: tl.constexpr, TABLES: tl.constexpr,
    FEW_SEGMENTS: tl.constexpr, CAUSAL: tl.constexpr, SIZE_Q: tl.constexpr, SIZE_K: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    """Write the kind, the info and the block of tiles as one number each, [r, lines, width]; see `Tiles` in parts.py.

    LINES: what the tiles of a line share, "queries", "keys" or "distance" (of their blocks, from -below on). A window
    of 0 is none. A line is divided among `programs`, each of which classifies TILES tiles.
    """
    program = tl.program_id(0)
    line = (program // programs) % lines
    row = (program // programs // lines).to(tl.int64)
    if position_q is not None:
        position_q += row * position_q_step
        position_k += row * position_k_step
    if documents is not None:
        documents += row * documents_step
    if query_scale is not None:
        query_scale += row * query_scale_step
    window = tl.where(window > 0, window, 2 * keys)
    other = (program % programs) * TILES + tl.arange(0, TILES)
    q = other
    k = other
    exists = other < width
    if LINES == "queries":
        q = tl.zeros_like(other) + line
    elif LINES == "keys":
        k = tl.zeros_like(other) + line
    else:
        k = other - (line - below)
        exists = exists & (k >= 0) & (k < key_blocks)
    kind, info = _classify(
        q, k, position_q, position_k, documents, distance_feature, query_scale, knots, queries, keys, window,
        table_first, table_size, rows_first, rows_size, feature_size, segments, LINES, TABLES, FEW_SEGMENTS, CAUSAL,
        SIZE_Q, SIZE_K,
    )  # fmt: skip
    kind = tl.where(exists, kind, UNSEEN)
    entry = (kind.to(tl.int64) << 32) + (info << 16).to(tl.int64) + other
    at = (program // programs).to(tl.int64) * width
    tl.store(kinds + at + other, entry, mask=other < width)


@triton.jit
@no_type_check
def sort_tiles(kinds, order, ends, width):
    """Write the tiles of one line, sorted by kind and then by block: order [r, lines, width], ends [r, lines, 6].

    kinds: the results of `classify_tiles`.
    """
    program = tl.program_id(0).to(tl.int64)
    at = program * width
    count = 0
    for KIND in tl.static_range(KINDS):
        for start in range(0, width, CHUNK):
            n = start + tl.arange(0, CHUNK)
            entry = tl.load(kinds + at + n, mask=n < width, other=-1)
            chosen = ((entry >> 32) == KIND).to(tl.int32)
            place = count + tl.cumsum(chosen, 0) - 1
            tl.store(order + at + place, (entry & 0x7FFFFFFF).to(tl.int32), mask=chosen == 1)
            count += tl.sum(chosen, 0)
        tl.store(ends + program * KINDS + KIND, count)


@triton.jit
@no_type_check
def find_steps(table, steps, heads_step, first, size, CHUNK: tl.constexpr):
    """Write the change per distance of a head's table below distance 0 and above it, [heads, 2], where the table is a
    straight line there up to the rounding of its entries; otherwise NaN.

    The line goes through the entries at distance 0 and at the end.
    """
    head = tl.program_id(0)
    at = table + head * heads_step - first
    zero = tl.load(at)
    for SIDE in tl.static_range(2):
        end = first + size - 1 if SIDE == 1 else first
        step = (tl.load(at + end) - zero) / end
        bent = tl.zeros([CHUNK], tl.int32)
        for start in range(1, tl.abs(end) + 1, CHUNK):
            n = start + tl.arange(0, CHUNK)
            distance = n if SIDE == 1 else -n
            exists = n <= tl.abs(end)
            change = step * distance.to(tl.float32)
            error = tl.abs(tl.load(at + distance, mask=exists, other=0.0) - (zero + change))
            close = error <= (tl.abs(zero) + tl.abs(change)) * 2.0**-22
            bent += (exists & (close == 0)).to(tl.int32)
        straight = (end != 0) & (tl.sum(bent, 0) == 0)
        tl.store(steps + 2 * head + SIDE, tl.where(straight, step, float("nan")))
