"""Sort tiles (pairs of blocks of queries and keys) by the loop of the kernels that they need; parts.py names the kinds.

A tile takes 4 bytes: with 64 x 64 pairs of tokens 1/1000 byte a pair, 16 MiB for 131,072 tokens, shared by all heads.
While tiles are sorted, each takes 8 bytes more. Everything is computed on the device without waiting for it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.attention.fused.arguments import BY_DISTANCE, Arguments

MAX_LISTED_KNOTS = 64  # up to this number of segments a tile checks its knots one by one
_TILES = 16  # that a program classifies together
_ENTRIES = 1024  # of a table, that a program compares together

# What block sizes depend on. A table or rows that end before the keys do leave most tiles as without a bias ("none").
BiasForm = Literal["none", "table", "segments"]


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
        arguments = self.arguments
        if arguments.slope is not None:
            return "segments"
        tables = (arguments.table, arguments.table_first), (arguments.rows, arguments.rows_first)
        ends = [first + table.shape[-1] for table, first in tables if table is not None]
        return "table" if ends and max(ends) >= self.keys else "none"

    @property
    def steps_matter(self) -> bool:
        """Whether the table may be a straight line where it matters: tiles without lists, and every distance in it."""
        arguments = self.arguments
        if arguments.table is None or arguments.rows is not None or self.needs_lists:
            return False
        last = arguments.table_first + arguments.table.shape[-1] - 1
        return last >= self.keys - 1 and arguments.table_first <= (0 if arguments.causal else 1 - self.keys)

    @property
    def needs_lists(self) -> bool:
        """Whether the kinds of tiles depend on more than indices."""
        return self.arguments.slope is not None or any(x is not None for x in placed_tensors(self.arguments))

    @property
    def batch(self) -> int:
        """The number of rows of the batch that have lists of their own: 1 if all share them."""
        tensors = *placed_tensors(self.arguments), self.arguments.query_scale
        return max((len(x) for x in tensors if x is not None), default=1)


def placed_tensors(arguments: Arguments) -> tuple[Tensor | None, ...]:
    return arguments.position_q, arguments.position_k, arguments.documents


def by_queries(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of queries; entries contain blocks of keys."""
    blocks_q, blocks_k = _blocks(case, size_q, size_k)
    return _sorted(case, "queries", blocks_q, blocks_k, (size_q, size_k))


def by_keys(case: Case, size_q: int, size_k: int) -> tuple[Tensor, Tensor]:
    """Return the lists for blocks of keys; entries contain blocks of queries."""
    blocks_q, blocks_k = _blocks(case, size_q, size_k)
    return _sorted(case, "keys", blocks_k, blocks_q, (size_q, size_k))


def by_distance(case: Case, size: int) -> tuple[Tensor, Tensor]:
    """Return the lists for lines of tiles at one distance; entries contain blocks of queries."""
    lines, below = lines_at_distances(case, size)
    return _sorted(case, "distance", lines, _blocks(case, size, size)[0], (size, size), below)


def lines_at_distances(case: Case, size: int) -> tuple[int, int]:
    """Return how many lines of tiles at one distance there are, and how many of them before distance 0."""
    blocks_q, blocks_k = _blocks(case, size, size)
    offset = case.keys - case.queries
    # Causal: blocks of keys that begin after the last query of a block are not visible to it.
    below = min((offset + size - 1) // size if case.arguments.causal else blocks_k - 1, blocks_k - 1)
    return below + blocks_q, below


def _blocks(case: Case, size_q: int, size_k: int) -> tuple[int, int]:
    return -(-case.queries // size_q), -(-case.keys // size_k)


def _sorted(
    case: Case,
    shared: Literal["queries", "keys", "distance"],
    lines: int,
    width: int,
    size: tuple[int, int],
    below: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the tiles in lines that share queries, keys or distance: order [r, lines, width], ends [r, lines, 6]."""
    from lengthwise.attention.fused.gpu.parts import KINDS
    from lengthwise.attention.fused.gpu.tile_lists import classify_tiles, sort_tiles

    arguments, blocks_k = case.arguments, _blocks(case, *size)[1]
    assert max(width, blocks_k) <= 1 << 16, "an entry has 16 bits for its block"
    order = torch.empty(case.batch, lines, width, dtype=torch.int32, device=case.device)
    ends = torch.empty(case.batch, lines, KINDS.value, dtype=torch.int32, device=case.device)
    kinds = torch.empty(case.batch, lines, width, dtype=torch.int64, device=case.device)
    placed = (*placed_tensors(arguments), arguments.query_scale)
    steps = [0 if x is None or len(x) == 1 else x.stride(0) for x in placed]
    feature, slope, sizes = arguments.distance_feature, arguments.slope, []
    for table, first in ((arguments.table, arguments.table_first), (arguments.rows, arguments.rows_first)):
        sizes += [first, 0 if table is None else table.shape[-1]]
    programs = -(-width // _TILES)
    classify_tiles[(case.batch * lines * programs,)](
        kinds, *placed_tensors(arguments), feature, arguments.query_scale, arguments.knots, *steps, case.queries,
        case.keys, arguments.window, *sizes, 0 if feature is None else len(feature),
        1 if slope is None else slope.shape[1], lines, width, programs, blocks_k, below, LINES=shared,
        TABLES=case.has_bias and case.has_tables_only, FEW_SEGMENTS=not case.many_segments,
        CAUSAL=arguments.causal, SIZE_Q=size[0], SIZE_K=size[1], TILES=_TILES, num_warps=4,
    )  # fmt: skip
    sort_tiles[(case.batch * lines,)](kinds, order, ends, width, num_warps=4)
    return order, ends


def steps(table: Tensor, first: int, heads: int) -> Tensor:
    """Return the change per distance of each head's table below and above distance 0, [heads, 2]; see `find_steps`."""
    from lengthwise.attention.fused.gpu.tile_lists import find_steps

    rows, columns = table.shape
    found = table.new_empty(heads, 2)
    find_steps[(heads,)](table, found, 0 if rows == 1 else columns, first, columns, CHUNK=_ENTRIES, num_warps=4)
    return found


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
