"""Numbers of one pair of a query and a key in plain Python, for `Term.plain_value`."""

import math
from collections.abc import Sequence

from torch import Tensor

PairIndex = tuple[int, int, int, int]  # batch, head, query, key


def number(x: Tensor, *index: int) -> float:
    """Return one number of a tensor. The single entry of an axis of size 1 serves all indices."""
    return float(x[tuple(n if size > 1 else 0 for n, size in zip(index, x.shape, strict=True))])


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def entry(table: Tensor, head: int, distance: int, first: int, distances: Tensor | None = None) -> Tensor:
    """Return the entry of a table [h|1, n, ...] for a distance; past either end it is the nearest one."""
    column = distance - first if distances is None else distances.tolist().index(max(distance, int(distances[0])))
    return table[head if len(table) > 1 else 0, min(max(column, 0), table.shape[1] - 1)]
