"""The lists of tiles in plain PyTorch, which define what the Triton kernel in tile_lists.py computes."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from lengthwise.attention.fused.gpu.tiles import Case, lines_at_distances, placed_tensors

CLEAN, ONE_KNOT, TWO_KNOTS, KNOTS, FAR, GENERAL, UNSEEN = range(7)
_MAX_SORTED = 1 << 20  # tiles that are sorted together

Kinds = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # blocks of queries, of keys -> kind, info


def kinds(case: Case, size_q: int, size_k: int, only_past: bool = False) -> Kinds:
    """Return a function that gives the kind of any tile [r, x, y], and the info of its entry (see `Tiles` in parts.py).

    only_past: a tile is FAR only past the last entry of every table, not before the first.
    """
    arguments = case.arguments
    token_position_q, token_position_k, documents = placed_tensors(arguments)
    causal, window, feature, knots = arguments.causal, arguments.window, arguments.distance_feature, arguments.knots
    offset, keys = case.keys - case.queries, case.keys
    at_q = torch.arange(offset, keys, device=case.device)[None]
    at_k = torch.arange(keys, device=case.device)[None]
    index_q, index_k = _block_ranges(at_q, size_q), _block_ranges(at_k, size_k)
    position_q = index_q if token_position_q is None else _block_ranges(token_position_q, size_q)
    position_k = index_k if token_position_k is None else _block_ranges(token_position_k, size_k)
    # If positions differ from indices by the same offset in both blocks, distances follow from indices.
    shift_q = None if token_position_q is None else _block_ranges(token_position_q - at_q, size_q)
    shift_k = None if token_position_k is None else _block_ranges(token_position_k - at_k, size_k)
    document_q = None if documents is None else _block_ranges(documents[:, offset:], size_q)
    document_k = None if documents is None else _block_ranges(documents, size_k)
    feature_min = feature_max = scale_range = None
    if feature is not None and arguments.query_scale is not None:
        # Bounds of the distance feature between two distances, even if it is not monotonic.
        feature_min, feature_max = feature.flip(0).cummin(0).values.flip(0), feature.cummax(0).values
        scale_range = _block_ranges(arguments.query_scale, size_q)

    def classify(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        (q_low, q_high), (k_low, k_high) = _range_of(index_q, q), _range_of(index_k, k)
        visible = torch.ones_like(q_low < k_low)
        # Incomplete blocks at the end of the queries or keys are GENERAL.
        full = ((q + 1) * size_q <= case.queries) & ((k + 1) * size_k <= keys)
        if causal:
            visible, full = visible & (k_low <= q_high), full & (k_high <= q_low)
        if window:
            visible, full = visible & (k_high > q_low - window), full & (k_low > q_high - window)
            if not causal:
                visible, full = visible & (k_low < q_high + window), full & (k_high < q_low + window)
        if document_q is not None and document_k is not None:
            (a, b), (c, d) = _range_of(document_q, q), _range_of(document_k, k)
            visible, full = visible & (a <= d) & (c <= b), full & (a == b) & (c == d) & (a == c)
        (a, b), (c, d) = _range_of(position_q, q), _range_of(position_k, k)
        nearest, furthest = a - d, b - c
        inside = full
        if shift_q is not None and shift_k is not None:
            (a, b), (c, d) = _range_of(shift_q, q), _range_of(shift_k, k)
            inside = inside & (a == b) & (c == d) & (a == c)
        past, before = full & case.has_bias & case.has_tables_only, full & case.has_tables_only & (not only_past)
        for table, first in ((arguments.table, arguments.table_first), (arguments.rows, arguments.rows_first)):
            if table is not None:
                past, before = past & (nearest >= first + table.shape[-1] - 1), before & (furthest <= first)
        far = (past | before) & case.has_bias
        kind = torch.where(visible, GENERAL, UNSEEN)
        if feature is None:
            kind = torch.where(visible & far, FAR, torch.where(visible & inside, CLEAN, kind))
            return kind, past.to(nearest.dtype)
        assert knots is not None and feature_min is not None and feature_max is not None and scale_range is not None
        if case.many_segments:
            return torch.where(visible & inside, KNOTS, kind), torch.zeros_like(nearest)
        scale_low, scale_high = _range_of(scale_range, q)
        last = len(feature) - 1
        feature_low, feature_high = feature_min[nearest.clamp(0, last)], feature_max[furthest.clamp(0, last)]
        ends = [feature * scale for feature in (feature_low, feature_high) for scale in (scale_low, scale_high)]
        low = torch.minimum(torch.minimum(ends[0], ends[1]), torch.minimum(ends[2], ends[3]))
        high = torch.maximum(torch.maximum(ends[0], ends[1]), torch.maximum(ends[2], ends[3]))
        finite = functools.partial(torch.nan_to_num, posinf=torch.inf, neginf=-torch.inf)
        knots_below = torch.searchsorted(knots, finite(low, nan=-torch.inf), right=True)
        knots_up_to = torch.searchsorted(knots, finite(high, nan=torch.inf), right=True)
        kind = torch.where(visible & inside, (knots_up_to - knots_below).clamp(max=KNOTS), kind)
        return kind, knots_below + 256 * (knots_up_to - knots_below)

    return classify


def _block_ranges(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest entry of every block of x [r, t], [r, blocks]. With NaN both are NaN."""
    blocks = -(-x.shape[1] // size)
    at = torch.arange(blocks * size, device=x.device).clamp(max=x.shape[1] - 1)
    low, high = torch.aminmax(x[:, at].view(len(x), blocks, size), dim=-1)
    return low, high


def _range_of(edges: tuple[Tensor, Tensor], block: Tensor) -> tuple[Tensor, Tensor]:
    """Return the range of blocks [x, y] as [r, x, y]; a block past the end takes the last one."""
    low, high = edges
    block = block.clamp(0, low.shape[1] - 1)
    return low[:, block], high[:, block]


def sort(
    classify: Kinds, queries: Tensor, keys: Tensor, other: Tensor, tile_exists: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the lists of tiles: order [r, x, y] and ends [r, x, 6].

    queries, keys: the blocks of each tile, [x|1, y|1]. other: which of the two an entry contains. tile_exists: which
    tiles exist.
    """
    lines = max(len(queries), len(keys))
    width = max(queries.shape[1], keys.shape[1])
    assert width <= 1 << 16, "an entry has 16 bits for its block"
    step = max(1, _MAX_SORTED // width)
    parts = []
    for start in range(0, lines, step):
        q, k, name, exists = (
            x if x is None or len(x) == 1 else x[start : start + step] for x in (queries, keys, other, tile_exists)
        )
        assert q is not None and k is not None and name is not None
        kind, info = classify(q, k)
        if exists is not None:
            kind = torch.where(exists, kind, UNSEEN)
        key = (kind << 48) + (name << 32) + name + (info << 16)
        sorted_ = key.sort(-1).values
        sorted_kind = sorted_ >> 48
        ends = torch.stack([(sorted_kind <= n).sum(-1) for n in range(UNSEEN)], -1)
        parts.append(((sorted_ & 0x7FFFFFFF).to(torch.int32), ends.to(torch.int32)))
    order, ends = (torch.cat([part[n] for part in parts], 1) if len(parts) > 1 else parts[0][n] for n in (0, 1))
    return order, ends


def by_queries(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of queries; entries contain blocks of keys."""
    q, k = _blocks(case, size_q, size_k)
    return sort(kinds(case, size_q, size_k), q[:, None], k[None], k[None])


def by_keys(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of keys; entries contain blocks of queries."""
    q, k = _blocks(case, size_q, size_k)
    return sort(kinds(case, size_q, size_k), q[None], k[:, None], q[None])


def by_distance(case: Case, size: int) -> tuple[Tensor, Tensor]:
    """Return the lists for lines of tiles at one distance; entries contain blocks of queries."""
    q, k = _blocks(case, size, size)
    lines, below = lines_at_distances(case, size)
    distance = torch.arange(-below, lines - below, device=case.device)[:, None]
    queries = q[None].expand(len(distance), -1)
    keys = queries - distance
    tile_exists = (keys >= 0) & (keys < len(k))
    return sort(kinds(case, size, size, only_past=True), queries, keys, queries, tile_exists)


def _blocks(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    counts = -(-case.queries // size_q), -(-case.keys // size_k)
    q, k = (torch.arange(count, device=case.device) for count in counts)
    return q, k
