"""Reading and writing rows whose cells pass the checks of their columns (`rows.py`).

A row with a cell that fails was damaged, or another program wrote it. Such a row is skipped wherever rows are read, with one
`StoreWarning`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Table

from lengthwise.store.checks import (
    Check,
    Unreadable,
    digits,
    each,
    escaped,
    key,
    name,
    name_or_number,
    named,
    real,
    record,
    table,
)
from lengthwise.store.errors import StoreWarning, Unstorable
from lengthwise.store.shapes import COUNT, GENERATED, SIZE

_SERIES = record({"mean": table(1)})
_PROMPT = record(
    {"kind": name, "at": name_or_number, "start": COUNT, "stop": COUNT, "score": real, "groups": table(1)},
    {"curve": _SERIES, "low": real, "high": real},
)
_IN_CONTEXT = {"length": SIZE, "points": SIZE}
RESULTS: dict[str, tuple[Check, Check]] = {
    "attention-distance": (
        record({"against": key, "length": SIZE, "examples": SIZE, "variant": name}),
        record({"layers": table(1), "standard_errors": table(1), "n": SIZE}),
    ),
    "attended-distance": (
        record({"length": SIZE, "examples": SIZE}),
        record({"bins": SIZE, "most": table(3), "mass": table(3), "queries": SIZE, "n": SIZE}),
    ),
    "recency": (
        record({**_IN_CONTEXT, "repeats": SIZE}),
        record({"layers": table(3), "last": named(table(2)), "train_length": SIZE, "n": SIZE}),
    ),
    "duplicates": (record(_IN_CONTEXT), record({"prompts": each(_PROMPT, least=1), "n": SIZE})),
    "lost-in-the-middle": (record(_IN_CONTEXT), record({"prompts": each(_PROMPT, least=1), "n": SIZE})),
    "induction": (
        record({**_IN_CONTEXT, "repeats": SIZE, "neighbours": SIZE}),
        record(
            {
                "induction": table(2),
                "prefix_score": real,
                "nearest_score": real,
                "uniform": named(real),
                "start": COUNT,
                "n": SIZE,
            }
        ),
    ),
    "lengths": (
        record({"field": name}, {"examples": SIZE}),
        record({"train": named(SIZE, digits), "test": named(SIZE, digits)}),
    ),
}
"""For each probe, the checks of its question and of its result."""

NAMES = {
    "runs": ("key",),
    "studies": ("name",),
    "asked": ("key", "question"),
    "scores": ("key", "question"),
    "probes": ("key", "question"),
    "curve": ("key", "step"),
}
"""The columns that identify a row of each table."""


def readable(table: Table, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the readable rows of a table with their cells as Python values, and warn about the others."""
    for row in rows:
        cells = row._mapping
        try:
            values = _checked(table, cells)
        except Unreadable as error:
            name = _row_name(table.name, cells)
            warnings.warn(StoreWarning(f"{table.name}: skipped the row {name}, {error}"), stacklevel=2)
        else:
            yield values


def require_readable(table: Table, cells: Mapping[str, Any], described: str) -> None:
    """Raise `Unstorable` for a row that could not be read back after it was stored."""
    try:
        _checked(table, cells)
    except Unreadable as error:
        raise Unstorable(f"{described} cannot be stored, {error}") from None


def _checked(table: Table, cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked cells. Columns without a check are left out."""
    checks = {name: table.c[name].info["check"] for name in cells if name in table.c and table.c[name].info}
    values = {name: _cell(name, check, cells[name]) for name, check in checks.items()}
    _check_row(table.name, values)
    return values


def is_readable(table: Table, row: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        return any(True for _ in readable(table, [row]))


def _cell(column: str, check: Check, value: Any) -> Any:
    try:
        return check(value)
    except Unreadable as error:
        raise Unreadable(f"whose {column} {error}") from None


def _check_row(what: str, values: Mapping[str, Any]) -> None:
    """Check what depends on several cells."""
    if what == "runs" and values.get("worker") is not None and values.get("heartbeat") is None:
        raise Unreadable("which has a worker but no heartbeat")
    if what == "scores" and "unreadable" in (details := values.get("facts", {}).get("details") or {}):
        GENERATED(details)  # decoded answers have both members
    if what == "probes" and (known := RESULTS.get(values["question"]["probe"])) is not None:
        for column, check in zip(("question", "result"), known, strict=True):
            _cell(column, check, values[column])


def _row_name(what: str, cells: Mapping[str, Any]) -> str:
    """Return the cells that identify a row."""
    return " ".join(escaped(cells[column]) for column in NAMES[what])
