"""The answer to a question: a table of rows, kept by columns."""

import math
import operator
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any, Literal

Row = Mapping[str, Any]
How = Literal["mean", "max", "sum", "median"]

NOT_FINITE = ("nan", "inf", "-inf")
_NOT_PLAIN = {str, list}  # types of cells that may contain such a text
LONG_RUN = 4  # a column with fewer changes than a fourth of its cells is stored as runs of equal cells


@dataclass(frozen=True)
class Table:
    """Rows by columns of equal length. A cell of a column that does not apply to its row is None."""

    columns: Mapping[str, Sequence[Any]]

    @staticmethod
    def from_rows(rows: Iterable[Row]) -> "Table":
        """Return a table with every column that one of the rows has."""
        rows = list(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        return Table({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts."""
        for cells in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, cells, strict=True))

    def column(self, name: str) -> Sequence[Any]:
        """Return the cells of a column; None in each row if the table does not have it."""
        return self.columns.get(name) or [None] * len(self)

    def first(self, name: str) -> Any:
        """Return the first cell of a column that is not None."""
        return next((cell for cell in self.columns.get(name, ()) if cell is not None), None)

    def thinned(self, most: int) -> "Table":
        """Return at most so many rows at equal distances, with the last one."""
        step = -(-len(self) // most)
        return (
            self
            if step <= 1
            else Table({n: cells[(len(self) - 1) % step :: step] for n, cells in self.columns.items()})
        )

    def to_data(self) -> dict[str, Any]:
        """Return what is stored as JSON. A column of long runs of equal cells becomes {"runs": [[cell, count], ...]}.

        A number that is not finite becomes the text "nan", "inf" or "-inf".
        """
        return {name: _packed(cells) for name, cells in self.columns.items()}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> "Table":
        return Table({name: _unpacked(cells) for name, cells in data.items()})

    def groups(self, y: str, by: Sequence[str], where: Mapping[str, Any]) -> dict[tuple[Any, ...], list[int]]:
        """Return the numbers of the rows that `where` selects, by their cells in the columns `by`, in the order of the
        rows.

        A row is selected if it has the values of `where`, or one of several in a tuple. Rows with None in `y` or in a
        column of `by` are left out: these columns do not apply to them.
        """
        values = self.column(y)
        tests = [(self.column(name), v if isinstance(v, tuple) else (v,)) for name, v in where.items()]
        keys = list(zip(*map(self.column, by), strict=True)) if by else list(repeat((), len(self)))
        rows_by_key: dict[tuple[Any, ...], list[int]] = {}
        for n, key in enumerate(keys):
            if values[n] is not None and None not in key and all(column[n] in known for column, known in tests):
                rows_by_key.setdefault(key, []).append(n)
        return rows_by_key

    def combined(
        self, y: str, by: Sequence[str], where: Mapping[str, Any], how: How = "mean", weight: str = ""
    ) -> dict[tuple[Any, ...], float]:
        """Return the values of the column `y` for each group of `groups`: their mean, highest value, sum or
        median.

        `weight`: a column with the weights of a mean. A group with a number that is not finite is NaN.
        """
        values, weights = self.column(y), self.column(weight) if weight else None
        return {
            key: _combined(
                [float(values[n]) for n in rows], how, [float(weights[n]) for n in rows] if weights else None
            )
            for key, rows in self.groups(y, by, where).items()
        }

    def grid(self, y: str, *by: str, **where: Any) -> Any:
        """Return the cells of a column as nested lists, one level for each column of `by`."""
        if not by:
            ((row,),) = self.groups(y, (), where).values()
            return self.column(y)[row]
        first, *rest = by
        return [self.grid(y, *rest, **where, **{first: key}) for (key,) in self.groups(y, [first], where)]


def joined(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables in one."""
    names = dict.fromkeys(name for table in tables for name in table.columns)
    return Table({name: [cell for table in tables for cell in table.column(name)] for name in names})


def _combined(values: Sequence[float], how: How, weights: Sequence[float] | None) -> float:
    if not all(map(math.isfinite, values)):
        return math.nan
    if how == "max":
        return max(values)
    if how == "median":
        return statistics.median(values)
    if weights is not None and how == "mean":
        return math.fsum(map(operator.mul, values, weights)) / math.fsum(weights)
    return math.fsum(values) / (len(values) if how == "mean" else 1)


def _packed(cells: Sequence[Any]) -> Any:
    cells = list(map(_as_json, cells))
    runs = [[key[1], sum(1 for _ in group)] for key, group in groupby(cells, key=lambda cell: (type(cell), cell))]
    return {"runs": runs} if LONG_RUN * len(runs) <= len(cells) else cells


def _unpacked(cells: Any) -> list[Any]:
    if isinstance(cells, dict):
        cells = [cell for cell, count in cells["runs"] for _ in range(count)]
    return list(map(_from_json, cells)) if _NOT_PLAIN & set(map(type, cells)) else cells


def _as_json(cell: Any) -> Any:
    if isinstance(cell, list):
        return list(map(_as_json, cell))
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _from_json(cell: Any) -> Any:
    if isinstance(cell, list):
        return list(map(_from_json, cell))
    return float(cell) if cell in NOT_FINITE else cell
