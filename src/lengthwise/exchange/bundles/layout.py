"""What a bundle consists of: a zip file with these names and no others.

`manifest.json` has the version of the layout, the version of Lengthwise, the name of the study, and the number of rows, the size
and the SHA-256 hash of each other file. Those are JSON lines: one for each table of the store, with one object of cells per row, as
the store has them. There is no code in a bundle, and no file is written from it.
"""

import math
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
    names = names_of(table)
    if not isinstance(row, dict) or set(row) != set(names):
        raise ValueError(f"is not an object with exactly the columns {', '.join(names)}")
    return {name: _cell(table.c[name].type, bool(table.c[name].nullable), name, row[name]) for name in names}


def _cell(kind: TypeEngine[Any], nullable: bool, name: str, cell: Any) -> Any:
    if cell is None and nullable:
        return None
    if isinstance(kind, Boolean):
        fits = isinstance(cell, bool)
    elif isinstance(kind, Double):
        if cell == INFINITY:
            return math.inf
        if isinstance(cell, int) and not isinstance(cell, bool) and abs(cell) < 2**53:
            return float(cell)
        fits = isinstance(cell, float)
    elif isinstance(kind, Integer):  # and BigInteger
        fits = isinstance(cell, int) and not isinstance(cell, bool)
    else:
        fits = isinstance(cell, str) and "\x00" not in cell  # no database has such text
    if not fits:
        raise ValueError(f"whose {name} is not of the column's type")
    return cell
