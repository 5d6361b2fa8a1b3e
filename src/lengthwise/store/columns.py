"""The columns of each table, with the check that each cell must pass.

A row with a cell that fails was damaged, or another program wrote it. Such a row is skipped wherever rows are read, with one
`StoreWarning`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from lengthwise.probes import PROBES as KNOWN_PROBES
from lengthwise.store.checks import (
    Check,
    Unreadable,
    count,
    each,
    escaped,
    flag,
    key,
    name,
    named,
    number,
    one_of,
    optional,
    parsed,
    real,
    record,
    size,
    text,
    time,
    whole,
    word,
)
from lengthwise.store.errors import StoreWarning, Unstorable

Columns = Mapping[str, Check]

_objects = record()

CONFIG = record(
    {},
    {
        "encoding": _objects,
        "task": _objects,
        "model": record({}, {"mixer": optional(name)}),
        "training": record(
            {},
            {
                "steps": size,
                "batch_size": size,
                "train_examples": optional(size),
                "min_length": optional(size),
                "curriculum": optional(record({}, {"length": optional(size)})),
                "positions": optional(_objects),
            },
        ),
    },
)
QUESTION = record(
    {"length": size}, {"examples": size, "tokens": size, "prompt": size, "seed": whole(), "shift": _objects}
)
_ANSWER = record({"question": text, "generated": text}, closed=True)
_GENERATED = record({"unreadable": number, "means": named(number)})
DETAILS = record(
    {},
    {
        "means": named(number),
        "order": each(name),
        "unreadable": number,
        "kept": each(_ANSWER),
        "broken": each(_ANSWER),
        "groups": each(number),
        "baselines": each(record({"name": name, "score": number, "floor": flag}, closed=True)),
    },
)
PUBLISHED = record(
    {"source": name}, {"about": text, "scores": named(named(number)), "ranks": named(number)}, closed=True
)

RUNS: Columns = {
    "key": key,
    "label": name,
    "encoding": name,
    "task": name,
    "metric": word,
    "better": one_of("higher", "lower"),
    "unit": word,
    "seed": whole(),
    "train_length": size,
    "config": parsed(CONFIG),
    "created": time,
    "worker": optional(text),
    "heartbeat": optional(time),
    "claims": whole(0, 2**31),  # one more for each claim
    "step": count,
    "steps": count,
    "started": optional(time),
    "finished": optional(time),
    "error": optional(name),
    "facts": parsed(_objects),
}
STUDIES: Columns = {
    "name": word,
    "question": text,
    "expectation": text,
    "cost": text,
    "command": text,
    "evaluation": parsed(_objects),
    "created": time,
    "updated": time,
    "published": optional(parsed(PUBLISHED)),
}
_question = lru_cache(4096)(parsed(QUESTION))  # all runs of a study have the same few questions
ASKED: Columns = {"key": key, "question": lambda value: dict(_question(value))}
SCORES: Columns = {
    "key": key,
    "question": parsed(QUESTION),
    "length": size,
    "metric": word,
    "better": one_of("higher", "lower"),
    "n": size,
    "mean": real,
    "standard_error": real,
    "out_of_distribution": flag,
    "seconds": real,
    "facts": parsed(record({}, {"details": optional(DETAILS)})),
    "created": time,
}
CURVE: Columns = {
    "step": count,
    "loss": real,
    "learning_rate": real,
    "gradient_norm": real,
    "tokens_per_second": real,
}
PROBES: Columns = {
    "key": key,
    "question": parsed(record({"probe": name})),
    "result": parsed(_objects),
    "created": time,
    "facts": parsed(_objects),
}


NAMES = {
    "runs": ("key",),
    "studies": ("name",),
    "asked": ("key", "question"),
    "scores": ("key", "question"),
    "probes": ("key", "question"),
    "curve": ("key", "step"),
}
"""The columns that identify a row of each table."""


def readable(what: str, columns: Columns, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the readable rows of a table with their cells as Python values, and warn about the others. `what`: the table's name."""
    for row in rows:
        cells = row._mapping
        try:
            values = _checked(what, columns, cells)
        except Unreadable as error:
            warnings.warn(StoreWarning(f"{what}: skipped the row {_row_name(what, cells)}, {error}"), stacklevel=2)
        else:
            yield values


def require_readable(what: str, columns: Columns, cells: Mapping[str, Any], described: str) -> None:
    """Raise `Unstorable` for a row that could not be read back after it was stored."""
    try:
        _checked(what, columns, cells)
    except Unreadable as error:
        raise Unstorable(f"{described} cannot be stored, {error}") from None


def _checked(what: str, columns: Columns, cells: Mapping[str, Any]) -> dict[str, Any]:
    values = {column: _cell(column, columns[column], cells[column]) for column in cells if column in columns}
    _check_row(what, values)
    return values


def is_readable(what: str, columns: Columns, row: Any) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StoreWarning)
        return any(True for _ in readable(what, columns, [row]))


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
        _GENERATED(details)  # decoded answers have both members
    if what == "probes" and (probe := KNOWN_PROBES.get(values["question"]["probe"])) is not None:
        for column, check in zip(("question", "result"), probe.checks(), strict=True):
            _cell(column, check, values[column])


def _row_name(what: str, cells: Mapping[str, Any]) -> str:
    """Return the cells that identify a row."""
    return " ".join(escaped(cells[column]) for column in NAMES[what])
