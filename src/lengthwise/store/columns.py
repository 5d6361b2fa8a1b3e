"""Rows of tables as Python values, with the types of `rows.py`."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from sqlalchemy import Result, Table

from lengthwise.store.cells import escaped
from lengthwise.store.errors import StoreError, Unstorable
from lengthwise.store.rows import StoredMember, canonical, cells, plain_text


def decoded(table: Table, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield rows of a table with their cells as Python values. Raises `StoreError` for a damaged cell.

    Columns that concern only the store, such as the position in a study, are left out.
    """
    # Many rows at once: fetching and checking 100,000 rows one by one takes longer.
    for batch in rows.partitions(1000) if isinstance(rows, Result) else [list(rows)]:
        names = batch[0]._fields if batch else ()
        known, adapter = _types(table, names)
        places = [names.index(name) for name in known]
        try:
            values = adapter.validate_python([tuple(row[place] for place in places) for row in batch])
        except ValidationError as error:
            problem = error.errors()[0]
            place, column = problem["loc"][:2]
            row = escaped(batch[int(place)]._mapping.get("key", ""))
            raise StoreError(
                f"{table.name}: the row {row} is damaged, its {known[int(column)]} {_reason(problem)}; restore a copy "
                "of the database, or move it away and run the study again"
            ) from None
        for row in values:
            yield dict(zip(known, row, strict=True))


def encoded(table: Table, row: type, data: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the cells of a row, from its members, by their columns. Members that are missing are empty.

    Raises `Unstorable` for cells that could not be read back.
    """
    members = {name: member for name, member in cells(row).items() if member.cell.given}
    row_cells = {
        name: _cell(data.get(name, {} if member.plain is dict else None), member, f"{what}: {name}")
        for name, member in members.items()
    }
    known, adapter = _types(table, tuple(row_cells))
    try:
        adapter.validate_python([tuple(row_cells[name] for name in known)])
    except ValidationError as error:
        problem = error.errors()[0]
        raise Unstorable(f"{what} cannot be stored, its {known[int(problem['loc'][1])]} {_reason(problem)}") from None
    return row_cells


def _cell(value: Any, member: StoredMember, what: str) -> Any:
    if member.plain is dict and value is not None:
        return canonical(value, what)
    return plain_text(value) if isinstance(value, str) else value


@cache
def _types(table: Table, names: tuple[str, ...]) -> tuple[list[str], TypeAdapter[Any]]:
    """Return those of the columns that have a type, and what checks a list of their rows."""
    types = {name: table.c[name].info["type"] for name in names if name in table.c and "type" in table.c[name].info}
    row: Any = tuple[tuple(types.values())]  # type: ignore[misc]
    return list(types), TypeAdapter(list[row], config=ConfigDict(strict=True))


def _reason(problem: Any) -> str:
    text = problem["msg"].removeprefix("Value error, ").replace("Input should", "must").replace("String should", "must")
    return f"{text}, got {escaped(problem['input'])}"
