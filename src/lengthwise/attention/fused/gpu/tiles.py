"""Sort tiles (pairs of blocks of queries and keys) by the loop of the kernels that they need; parts.py explains the kinds.

A tile takes 4 bytes: with 64 x 64 pairs of tokens 1/1000 byte a pair, 16 MiB for 131,072 tokens, shared by all heads.
While tiles are sorted, each takes 8 bytes more. Everything is computed on the device without waiting for it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.attention.fused.arguments import BY_DISTANCE, Arguments

MAX_LISTED_KNOTS = 64  # up to this number of segments a tile checks its knots one by one
_TILES = 16  # that a program classifies together

BiasForm = Literal["none", "table", "segments"]  # what the kernels are compiled for; `rows` count as a table


@dataclass(frozen=True)
class Case:
    """The arguments of the operator that determine the kinds of tiles."""

    arguments: Arguments
    queries: int
    keys: int
    device: torch.device

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias that depends on the distance."""
        return any(getattr(self.arguments, name) is not None for name in BY_DISTANCE)

    @property
    def has_tables_only(self) -> bool:
        """Whether every bias that depends on the distance is a table, so that it is one number past an end."""
        return all(getattr(self.arguments, name) is None for name in BY_DISTANCE if name not in ("table", "rows"))

    @property
    def many_segments(self) -> bool:
        """Whether there are so many segments that each pair searches for its own."""
        slope = self.arguments.slope
        return slope is not None and slope.shape[1] > MAX_LISTED_KNOTS

    @property
    def form(self) -> BiasForm:
        if self.arguments.slope is not None:
            return "segments"
        return "table" if self.has_bias else "none"

    @property
    def layout(self) -> "Layout | None":
        """All that determines the lists of tiles; None if the contents of tensors do."""
        arguments = self.arguments
        if not self.has_tables_only or any(x is not None for x in _placed(arguments)):
            return None
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        table, rows = (None if x is None else x.shape[-1] for x in (arguments.table, arguments.rows))
        visible = arguments.causal, arguments.window
        firsts = arguments.table_first, arguments.rows_first
        return Layout(self.queries, self.keys, self.device, *visible, table, rows, *firsts, stream)

    @property
    def batch(self) -> int:
        """The number of rows of the batch that have lists of their own: 1 if all share them."""
        tensors = *_placed(self.arguments), self.arguments.query_scale
        return max((len(x) for x in tensors if x is not None), default=1)


def _placed(arguments: Arguments) -> tuple[Tensor | None, ...]:
    return arguments.position_q, arguments.position_k, arguments.documents


class Layout(NamedTuple):
    """The numbers that determine the lists of tiles of a case without segments, positions and documents."""

    queries: int
    keys: int
    device: torch.device
    causal: bool
    window: int
    table: int | None  # its entries
    rows: int | None
    table_first: int
    rows_first: int
    stream: int  # the CUDA stream on which the lists are computed and used

    def case(self) -> Case:
        """Return a case with these numbers, whose tables have no contents."""
        table, rows = (None if n is None else torch.empty(1, n, device="meta") for n in (self.table, self.rows))
        arguments = Arguments(
            table=table, table_first=self.table_first, rows=rows, rows_first=self.rows_first, causal=self.causal, window=self.window
        )  # fmt: skip
        return Case(arguments, self.queries, self.keys, self.device)


@functools.lru_cache(maxsize=16)
def _remembered(build: Callable[..., Any], layout: Layout, *sizes: Any) -> Any:
    return build(layout.case(), *sizes)


def lists(build: Callable[..., Any], case: Case, *sizes: Any) -> Any:
    """Return build(case, *sizes), where `build` is by_queries, by_keys or by_distance.

    The last 16 lists are kept. They are not kept where a CUDA graph is captured, because there they have no contents
    before the graph runs.
    """
    layout = case.layout
    if layout is None or (case.device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
        return build(case, *sizes)
    return _remembered(build, layout, *sizes)


def by_queries(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of queries; entries contain blocks of keys."""
    blocks_q, blocks_k = _blocks(case, size_q, size_k)
    return _sorted(case, "queries", blocks_q, blocks_k, (size_q, size_k))


def by_keys(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of keys; entries contain blocks of queries."""
    blocks_q, blocks_k = _blocks(case, size_q, size_k)
    return _sorted(case, "keys", blocks_k, blocks_q, (size_q, size_k))


def by_distance(case: Case, size: int, coarse: tuple[int, int]) -> tuple[Tensor, Tensor, int]:
    """Return the lists for lines of tiles at one distance, and how many lines there are before distance 0.

    Entries contain blocks of queries. coarse: sizes of larger tiles, each divided into several of these; a tile is FAR
    only if its larger tile is.
    """
    blocks_q, blocks_k = _blocks(case, size, size)
    offset = case.keys - case.queries
    # Causal: blocks of keys that begin after the last query of a block are not visible to it.
    below = min((offset + size - 1) // size if case.arguments.causal else blocks_k - 1, blocks_k - 1)
    return *_sorted(case, "distance", below + blocks_q, blocks_q, (size, size), coarse, below), below


def _blocks(case: Case, size_q: int, size_k: int) -> tuple[int, int]:
    return -(-case.queries // size_q), -(-case.keys // size_k)


def _sorted(
    case: Case,
    shared: Literal["queries", "keys", "distance"],
    lines: int,
    width: int,
    size: tuple[int, int],
    coarse: tuple[int, int] = (0, 0),
    below: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the lists of tiles whose lines share their queries, keys or distance: order [r, lines, width], ends [r,
    lines, 4].
    """
    from lengthwise.attention.fused.gpu.tile_lists import classify_tiles, sort_tiles

    arguments, blocks_k = case.arguments, _blocks(case, *size)[1]
    assert max(width, blocks_k) <= 1 << 16, "an entry has 16 bits for its block"
    order = torch.empty(case.batch, lines, width, dtype=torch.int32, device=case.device)
    ends = torch.empty(case.batch, lines, 4, dtype=torch.int32, device=case.device)
    kinds = torch.empty(case.batch, lines, width, dtype=torch.int64, device=case.device)
    placed = (*_placed(arguments), arguments.query_scale)
    steps = [0 if x is None or len(x) == 1 else x.stride(0) for x in placed]
    feature, slope, sizes = arguments.distance_feature, arguments.slope, []
    for table, first in ((arguments.table, arguments.table_first), (arguments.rows, arguments.rows_first)):
        sizes += [first, 0 if table is None else table.shape[-1]]
    programs = -(-width // _TILES)
    classify_tiles[(case.batch * lines * programs,)](
        kinds, *_placed(arguments), feature, arguments.query_scale, arguments.knots, *steps, case.queries, case.keys,
        arguments.window, *sizes, 0 if feature is None else len(feature), 1 if slope is None else slope.shape[1], lines,
        width, programs, blocks_k, below, LINES=shared, TABLES=case.has_bias and case.has_tables_only,
        FEW_SEGMENTS=not case.many_segments, CAUSAL=arguments.causal, SIZE_Q=size[0], SIZE_K=size[1], COARSE_Q=coarse[0],
        COARSE_K=coarse[1], TILES=_TILES, num_warps=4,
    )  # fmt: skip
    sort_tiles[(case.batch * lines,)](kinds, order, ends, width, num_warps=4)
    return order, ends


def cells(knots: Tensor, segments: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return where to begin the search for the segment of a coordinate, using 2 · segments equal cells between the end
    knots.

    The results are: for every cell how many knots lie in cells before it; [first knot, cells per unit]; and the largest
    number of knots in a cell. This is exact, because knots and coordinates are assigned to cells by the same
    arithmetic.
    """
    count = 2 * segments
    low, high = knots[0], knots[-1]
    cells_per_unit = torch.where(high > low, (count - 1) / (high - low), 0.0).clamp(max=3e38)
    place = torch.stack([low, cells_per_unit])
    cell = ((knots - low) * cells_per_unit).clamp(0, count - 1).to(torch.int32)
    knots_below = torch.searchsorted(cell, torch.arange(count, dtype=torch.int32, device=knots.device), out_int32=True)
    knots_in_cell = F.pad(knots_below[1:], (0, 1), value=len(knots)) - knots_below
    return knots_below, place, knots_in_cell.max().to(torch.int32)[None]
