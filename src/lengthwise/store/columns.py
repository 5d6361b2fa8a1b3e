"""Reading and writing rows whose cells pass the checks of their columns (`rows.py`).

A row with a cell that fails was damaged, or another program wrote it. Such a row is skipped wherever rows are read, with one
`StoreWarning`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
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
    # Many rows at once: fetching and checking 100,000 rows one by one takes a third longer.
    for part in rows.partitions(1000) if isinstance(rows, Result) else [list(rows)]:
        names = part[0]._fields if part else ()
        try:
            checked = _checked(table, names, part)
        except Unreadable:
            for row in part:
                try:
                    yield _checked(table, names, [row])[0], row
                except Unreadable as error:
                    cells = row._mapping
                    named = [column.name for column in table.primary_key if column.name in cells]
                    key = " ".join(escaped(cells[name]) for name in named if name != "study")
                    which = f"the row {key}" if key else "a row"
                    warnings.warn(StoreWarning(f"{table.name}: skipped {which}, {error}"), stacklevel=3)
        else:
            yield from zip(checked, part, strict=True)


def require_readable(table: Table, cells: Mapping[str, Any], described: str) -> None:
    """Raise `Unstorable` for a row that could not be read back after it was stored."""
    try:
        check_cells(table, cells)
    except Unreadable as error:
        raise Unstorable(f"{described} cannot be stored, {error}") from None


def check_cells(table: Table, cells: Mapping[str, Any]) -> None:
    """Raise `Unreadable` for a row that could not be read back after it was stored."""
    _checked(table, tuple(cells), [tuple(cells.values())])


def _checked(table: Table, names: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the checked cells of each row. Columns without a check are left out."""
    checks = _checks(table, names)
    if not (rows and checks):
        return [{} for _ in rows]
    columns = list(zip(*rows, strict=True))
    try:
        checked = [list(map(check, columns[place])) for _, place, check in checks]
    except Unreadable:
        for name, place, check in checks:
            for cell in columns[place]:
                within(f"whose {name}", check, cell)
        raise
    known = [name for name, _, _ in checks]
    values = [dict(zip(known, cells, strict=True)) for cells in zip(*checked, strict=True)]
    if table.name in _OF_SEVERAL:
        for row in values:
            _OF_SEVERAL[table.name](row)
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


def _check_run(values: Mapping[str, Any]) -> None:
    if values.get("worker") is not None and values.get("heartbeat") is None:
        raise Unreadable("which has a worker but no heartbeat")


def _check_score(values: Mapping[str, Any]) -> None:
    if "unreadable" in (details := values.get("facts", {}).get("details") or {}):
        GENERATED(details)  # decoded answers have both members


def _check_probe(values: Mapping[str, Any]) -> None:
    if (probe := KNOWN_PROBES.get(values["question"]["probe"])) is not None:
        for column, check in zip(("question", "result"), probe.checks(), strict=True):
            within(f"whose {column}", check, values[column])


_OF_SEVERAL = {"runs": _check_run, "scores": _check_score, "probes": _check_probe}  # what depends on several cells
