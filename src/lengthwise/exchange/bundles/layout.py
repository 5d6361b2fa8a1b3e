"""What a bundle consists of: a zip file with these names and no others.

`manifest.json` has the version of the layout, the version of Lengthwise, the name of the study, and the number of rows, the size
and the SHA-256 hash of each other file. Those are JSON lines: one for each table of the store, with one object of cells per row, as
the store has them. There is no code in a bundle, and no file is written from it.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Double, Integer, Table
from sqlalchemy.types import TypeEngine

from lengthwise.store.transfer import TABLES, names_of

LAYOUT = 1
"""The version of the layout. A change of the store's tables or of these files raises it."""

MANIFEST = "manifest.json"
FILES = {f"{name}.jsonl": name for name in TABLES}
INFINITY = "Infinity"  # JSON has no such number; a loss may be one
MOST_BYTES = 4 * 2**30  # of all files together, before compression
MOST_OF_MANIFEST = 2**16
MOST_OF_LINE = 2**26


def cells_to_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as an object of JSON."""
    return {name: INFINITY if cell == math.inf else cell for name, cell in row.items()}


def cells_from_json(table: Table, row: Any) -> dict[str, Any]:
    """Return a row with cells of the types of its columns. Raises `ValueError`, with the reason, for anything else."""
    columns = _columns(table)
    if not isinstance(row, dict) or row.keys() != columns.keys():
        raise ValueError(f"is not an object with exactly the columns {', '.join(columns)}")
    return {name: cell(row[name]) for name, cell in columns.items()}


@cache
def _columns(table: Table) -> dict[str, Callable[[Any], Any]]:
    """Return what makes a cell of each column from JSON. A bundle of a large study has a million rows."""
    return {name: _reader(table.c[name].type, bool(table.c[name].nullable), name) for name in names_of(table)}


def _reader(kind: TypeEngine[Any], nullable: bool, name: str) -> Callable[[Any], Any]:
    convert = next((convert for cls, convert in CONVERTED.items() if isinstance(kind, cls)), _text)

    def read(cell: Any) -> Any:
        if cell is None and nullable:
            return None
        try:
            return convert(cell)
        except TypeError:
            raise ValueError(f"whose {name} is not of the column's type") from None

    return read


def _flag(cell: Any) -> bool:
    if not isinstance(cell, bool):
        raise TypeError
    return cell


def _real(cell: Any) -> float:
    if cell == INFINITY:
        return math.inf
    if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) < 2**53:
        return float(cell)
    if not isinstance(cell, float):
        raise TypeError
    return cell


def _whole(cell: Any) -> int:
    if not isinstance(cell, int) or isinstance(cell, bool):
        raise TypeError
    return cell


def _text(cell: Any) -> str:
    if not isinstance(cell, str) or "\x00" in cell:  # no database has such text
        raise TypeError
    return cell


CONVERTED: dict[type[TypeEngine[Any]], Callable[[Any], Any]] = {Boolean: _flag, Double: _real, Integer: _whole}
"""For the types of columns; `BigInteger` is an `Integer`, and the other columns have text."""
