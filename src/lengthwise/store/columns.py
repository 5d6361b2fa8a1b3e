"""Reading and writing rows whose cells pass the checks of their columns (`rows.py`).

A row with a cell that fails was damaged, or another program wrote it. Such a row is skipped wherever rows are read, with one
`StoreWarning`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Result, Table

from lengthwise.probes import PROBES as KNOWN_PROBES
from lengthwise.store.checks import Check, Unreadable, escaped, within
from lengthwise.store.errors import StoreWarning, Unstorable
from lengthwise.store.shapes import GENERATED


def readable(table: Table, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the readable rows of a table with their cells as Python values, and warn about the others."""
    for values, _ in _readable(table, rows):
        yield values


def readable_cells(table: Table, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the readable rows of a table with their cells as they are stored, and warn about the others."""
    for _, row in _readable(table, rows):
        yield dict(row._mapping)


def _readable(table: Table, rows: Iterable[Any]) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the checked values and the cells of each readable row."""
    names: tuple[str, ...] = ()
    # One call for many rows: fetching 100,000 rows of a query one by one takes a third longer.
    for row in chain.from_iterable(rows.partitions(1000)) if isinstance(rows, Result) else rows:
        names = names or row._fields  # all rows have the same ones
        try:
            values = _checked(table, names, row)
        except Unreadable as error:
            cells = row._mapping
            name = " ".join(escaped(cells[column.name]) for column in table.primary_key if column.name != "study")
            warnings.warn(StoreWarning(f"{table.name}: skipped the row {name}, {error}"), stacklevel=3)
        else:
            yield values, row


def require_readable(table: Table, cells: Mapping[str, Any], described: str) -> None:
    """Raise `Unstorable` for a row that could not be read back after it was stored."""
    try:
        check_cells(table, cells)
    except Unreadable as error:
        raise Unstorable(f"{described} cannot be stored, {error}") from None


def check_cells(table: Table, cells: Mapping[str, Any]) -> None:
    """Raise `Unreadable` for a row that could not be read back after it was stored."""
    _checked(table, tuple(cells), tuple(cells.values()))


def _checked(table: Table, names: tuple[str, ...], cells: Sequence[Any]) -> dict[str, Any]:
    """Return the checked cells. Columns without a check are left out."""
    checks = _checks(table, names)
    try:
        values = {name: check(cells[place]) for name, place, check in checks}
    except Unreadable:
        for name, place, check in checks:
            within(f"whose {name}", check, cells[place])
        raise
    _check_row(table.name, values)
    return values


@cache
def _checks(table: Table, names: tuple[str, ...]) -> list[tuple[str, int, Check]]:
    """Return the columns that have a check, with their places among `names`. Tables of thousands of rows are read."""
    found = ((name, place, table.c[name].info.get("check")) for place, name in enumerate(names) if name in table.c)
    return [(name, place, check) for name, place, check in found if check is not None]


def is_readable(table: Table, row: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        return any(True for _ in readable(table, [row]))


def _check_row(what: str, values: Mapping[str, Any]) -> None:
    """Check what depends on several cells."""
    if what == "runs" and values.get("worker") is not None and values.get("heartbeat") is None:
        raise Unreadable("which has a worker but no heartbeat")
    if what == "scores" and "unreadable" in (details := values.get("facts", {}).get("details") or {}):
        GENERATED(details)  # decoded answers have both members
    if what == "probes" and (probe := KNOWN_PROBES.get(values["question"]["probe"])) is not None:
        for column, check in zip(("question", "result"), probe.checks(), strict=True):
            within(f"whose {column}", check, values[column])
