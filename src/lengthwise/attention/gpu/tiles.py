"""Which tiles (pairs of blocks of queries and keys) need which of the kernels' loops: parts.py says what the kinds are.

A tile takes 4 bytes: at 64 x 64 pairs of tokens 1/1000 byte a pair, 16 MiB for 131,072 tokens, shared by all heads. All of
it happens on the device, and nothing waits for it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

CLEAN, KNOTS, FAR, GENERAL, UNSEEN = range(5)
FEW = 64  # pieces at most whose knots a tile goes through one by one
_AT_ONCE = 1 << 20  # tiles sorted at once


@dataclass(frozen=True)
class Case:
    """What decides on the kinds: the operator's arguments."""

    table: Tensor | None
    first: int
    slope: Tensor | None
    knots: Tensor | None
    u: Tensor | None
    w: Tensor | None
    rows: Tensor | None
    rows_first: int
    position_q: Tensor | None
    position_k: Tensor | None
    documents: Tensor | None
    causal: bool
    window: int
    queries: int
    keys: int
    device: torch.device

    @property
    def biased(self) -> bool:
        return self.table is not None or self.slope is not None or self.rows is not None

    @property
    def many(self) -> bool:
        """So many pieces that each pair's is searched for."""
        return self.slope is not None and self.slope.shape[1] > FEW

    @property
    def batch(self) -> int:
        """Rows of the batch that see differently."""
        given = (self.position_q, self.position_k, self.documents, self.w)
        return max((len(x) for x in given if x is not None), default=1)


Kinds = Callable[
    [Tensor, Tensor], tuple[Tensor, Tensor]
]  # blocks of queries, of keys -> kind, what else there is to say


def kinds(case: Case, size_q: int, size_k: int, coarse: tuple[int, int] | None = None) -> Kinds:
    """The kind of any tile [r, x, y], and what an entry has beside its block: see `Tiles` in parts.py.

    coarse: sizes of larger tiles, each of several of these; FAR is only what lies in one that is FAR."""
    around = None if coarse is None else kinds(case, *coarse)
    offset, keys = case.keys - case.queries, case.keys
    at_q = torch.arange(offset, keys, device=case.device)[None]
    at_k = torch.arange(keys, device=case.device)[None]
    index_q, index_k = _edges(at_q, size_q), _edges(at_k, size_k)
    place_q = index_q if case.position_q is None else _edges(case.position_q, size_q)
    place_k = index_k if case.position_k is None else _edges(case.position_k, size_k)
    # Where a block's positions are its indices moved by as much as the other block's, distances go by indices.
    moved_q = None if case.position_q is None else _edges(case.position_q - at_q, size_q)
    moved_k = None if case.position_k is None else _edges(case.position_k - at_k, size_k)
    in_q = None if case.documents is None else _edges(case.documents[:, offset:], size_q)
    in_k = None if case.documents is None else _edges(case.documents, size_k)
    low_u = high_u = edges_w = None
    if case.slope is not None:
        assert case.u is not None and case.w is not None and case.knots is not None
        # No u between two distances is below the first or above the second of these, be they in order or not.
        low_u, high_u = case.u.flip(0).cummin(0).values.flip(0), case.u.cummax(0).values
        edges_w = _edges(case.w, size_q)

    def of(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        (q_low, q_high), (k_low, k_high) = _pick(index_q, q), _pick(index_k, k)
        seen = torch.ones_like(q_low < k_low)
        # Blocks that the end of the queries or keys cuts off are GENERAL.
        plain = ((q + 1) * size_q <= case.queries) & ((k + 1) * size_k <= keys)
        if case.causal:
            seen, plain = seen & (k_low <= q_high), plain & (k_high <= q_low)
        if case.window:
            seen, plain = seen & (k_high > q_low - case.window), plain & (k_low > q_high - case.window)
            if not case.causal:
                seen, plain = seen & (k_low < q_high + case.window), plain & (k_high < q_low + case.window)
        if in_q is not None and in_k is not None:
            (a, b), (c, d) = _pick(in_q, q), _pick(in_k, k)
            seen, plain = seen & (a <= d) & (c <= b), plain & (a == b) & (c == d) & (a == c)
        (a, b), (c, d) = _pick(place_q, q), _pick(place_k, k)
        nearest, furthest = a - d, b - c
        inside = plain
        if moved_q is not None and moved_k is not None:
            (a, b), (c, d) = _pick(moved_q, q), _pick(moved_k, k)
            inside = inside & (a == b) & (c == d) & (a == c)
        far = plain if case.slope is None and case.biased else torch.zeros_like(plain)
        more = torch.zeros_like(nearest)
        tables = ((case.table, case.first, 1), (case.rows, case.rows_first, 2))
        for table, first, bit in tables:
            if table is not None:
                last = first + table.shape[-1] - 1
                inside = inside & (nearest >= first) & (furthest <= last)
                far = far & ((nearest >= last) | (furthest <= first))
                more = more + bit * (nearest >= last)
        kind = torch.where(seen, GENERAL, UNSEEN)
        if case.slope is None:
            if around is not None and coarse is not None:
                far = far & (around(q * size_q // coarse[0], k * size_k // coarse[1])[0] == FAR)
            kind = torch.where(seen & far, FAR, torch.where(seen & inside, CLEAN, kind))
            return kind, torch.where(kind == FAR, more, 0)
        assert case.u is not None and case.knots is not None
        assert low_u is not None and high_u is not None and edges_w is not None
        inside = inside & (nearest >= 0) & (furthest <= len(case.u) - 1)
        if case.many:
            return torch.where(seen & inside, KNOTS, kind), more * 0
        w_low, w_high = _pick(edges_w, q)
        u_low, u_high = (x[d.clamp(0, len(case.u) - 1)] for x, d in ((low_u, nearest), (high_u, furthest)))
        ends = [u * w for u in (u_low, u_high) for w in (w_low, w_high)]
        low = torch.minimum(torch.minimum(ends[0], ends[1]), torch.minimum(ends[2], ends[3]))
        high = torch.maximum(torch.maximum(ends[0], ends[1]), torch.maximum(ends[2], ends[3]))
        before, until = (
            torch.searchsorted(
                case.knots, torch.nan_to_num(x, nan=nan, posinf=torch.inf, neginf=-torch.inf), right=True
            )
            for x, nan in ((low, -torch.inf), (high, torch.inf))
        )
        kind = torch.where(seen & inside, torch.where(before == until, CLEAN, KNOTS), kind)
        return kind, before + 256 * (until - before)

    return of


def _edges(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """x [r, t] -> the lowest and highest of every block, [r, blocks]. NaN is both."""
    blocks = -(-x.shape[1] // size)
    at = torch.arange(blocks * size, device=x.device).clamp(max=x.shape[1] - 1)
    low, high = torch.aminmax(x[:, at].view(len(x), blocks, size), dim=-1)
    return low, high


def _pick(edges: tuple[Tensor, Tensor], block: Tensor) -> tuple[Tensor, Tensor]:
    """Of blocks [x, y], [r, x, y]; a block past the end takes the last."""
    low, high = edges
    block = block.clamp(0, low.shape[1] - 1)
    return low[:, block], high[:, block]


def sort(of: Kinds, queries: Tensor, keys: Tensor, other: Tensor, there: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The lists: order [r, x, y] and ends [r, x, 4]. queries, keys: blocks, [x|1, y|1]; other: which of them an entry names;
    there: which tiles there are."""
    lines = max(len(queries), len(keys))
    width = max(queries.shape[1], keys.shape[1])
    assert width <= 1 << 16, "an entry has 16 bits for its block"
    step = max(1, _AT_ONCE // width)
    parts = []
    for start in range(0, lines, step):
        q, k, name, exists = (
            x if x is None or len(x) == 1 else x[start : start + step] for x in (queries, keys, other, there)
        )
        assert q is not None and k is not None and name is not None
        kind, more = of(q, k)
        if exists is not None:
            kind = torch.where(exists, kind, UNSEEN)
        key = (kind << 48) + (name << 32) + name + (more << 16)
        sorted_ = key.sort(-1).values
        found = sorted_ >> 48
        ends = torch.stack([(found <= n).sum(-1) for n in (CLEAN, KNOTS, FAR, GENERAL)], -1)
        parts.append(((sorted_ & 0x7FFFFFFF).to(torch.int32), ends.to(torch.int32)))
    order, ends = (torch.cat([part[n] for part in parts], 1) if len(parts) > 1 else parts[0][n] for n in (0, 1))
    return order, ends


def by_queries(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    q, k = _blocks(case, size_q, size_k)
    return sort(kinds(case, size_q, size_k), q[:, None], k[None], k[None])


def by_keys(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    q, k = _blocks(case, size_q, size_k)
    return sort(kinds(case, size_q, size_k), q[None], k[:, None], q[None])


def by_distance(case: Case, size: int, coarse: tuple[int, int]) -> tuple[Tensor, Tensor, int]:
    """Lines of tiles at one distance, entries name blocks of queries; and how many lines there are before distance 0."""
    q, k = _blocks(case, size, size)
    offset = case.keys - case.queries
    # Causal: no query sees a block of keys that begins after the last query of its own block.
    below = (offset + size - 1) // size if case.causal else len(k) - 1
    distance = torch.arange(-min(below, len(k) - 1), len(q), device=case.device)[:, None]
    queries = q[None].expand(len(distance), -1)
    keys = queries - distance
    there = (keys >= 0) & (keys < len(k))
    return *sort(kinds(case, size, size, coarse), queries, keys, queries, there), min(below, len(k) - 1)


def _blocks(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    counts = -(-case.queries // size_q), -(-case.keys // size_k)
    q, k = (torch.arange(count, device=case.device) for count in counts)
    return q, k


def cells(knots: Tensor, pieces: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where to begin the search for a coordinate's segment: [0, 2 pieces) equal cells between the first knot and the last.

    Of every cell how many knots lie in cells before it; the place [first, cells per unit]; and how many knots one cell has
    at most. A knot in an earlier cell is below x in the same arithmetic that puts x into its cell, so this is exact."""
    count = 2 * pieces
    low, high = knots[0], knots[-1]
    per = torch.where(high > low, (count - 1) / (high - low), 0.0).clamp(max=3e38)
    place = torch.stack([low, per])
    cell = ((knots - low) * per).clamp(0, count - 1).to(torch.int32)
    before = torch.searchsorted(cell, torch.arange(count, dtype=torch.int32, device=knots.device), out_int32=True)
    most = F.pad(before[1:], (0, 1), value=len(knots)) - before
    return before, place, most.max().to(torch.int32)[None]
