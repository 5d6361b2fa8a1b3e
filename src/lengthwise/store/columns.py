"""The columns of each table, with the check that each cell must pass.

A row with a cell that fails was damaged, or another program wrote it. Such a row is skipped wherever rows are read, with one
`StoreWarning`.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from lengthwise.metrics import Metric
from lengthwise.store.checks import (
    Check,
    Unreadable,
    anything,
    digits,
    each,
    escaped,
    flag,
    key,
    name,
    name_or_number,
    named,
    number,
    one_of,
    optional,
    parsed,
    real,
    record,
    table,
    text,
    time,
    whole,
    word,
)
from lengthwise.store.errors import StoreWarning, Unstorable
from lengthwise.values import ConfigError

Columns = Mapping[str, Check]

_count, _size = whole(low=0), whole(low=1)
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
                "steps": _size,
                "batch_size": _size,
                "train_examples": optional(_size),
                "min_length": optional(_size),
                "curriculum": optional(record({}, {"length": optional(_size)})),
                "positions": optional(_objects),
            },
        ),
    },
)
QUESTION = record(
    {"length": _size}, {"examples": _size, "tokens": _size, "prompt": _size, "seed": whole(), "shift": _objects}
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

_SERIES = record({"mean": table(1)})
_PROMPT = record(
    {"kind": name, "at": name_or_number, "start": _count, "stop": _count, "score": real, "groups": table(1)},
    {"curve": _SERIES, "low": real, "high": real},
)
_IN_CONTEXT = {"length": _size, "points": _size}
RESULTS: dict[str, tuple[Check, Check]] = {
    "attention-distance": (
        record({"against": key, "length": _size, "examples": _size, "variant": name}),
        record({"layers": table(1), "standard_errors": table(1), "n": _size}),
    ),
    "attended-distance": (
        record({"length": _size, "examples": _size}),
        record({"bins": _size, "most": table(3), "mass": table(3), "queries": _size, "n": _size}),
    ),
    "recency": (
        record({**_IN_CONTEXT, "repeats": _size}),
        record({"layers": table(3), "last": named(table(2)), "train_length": _size, "n": _size}),
    ),
    "duplicates": (record(_IN_CONTEXT), record({"prompts": each(_PROMPT, least=1), "n": _size})),
    "lost-in-the-middle": (record(_IN_CONTEXT), record({"prompts": each(_PROMPT, least=1), "n": _size})),
    "induction": (
        record({**_IN_CONTEXT, "repeats": _size, "neighbours": _size}),
        record(
            {
                "induction": table(2),
                "prefix_score": real,
                "nearest_score": real,
                "uniform": named(real),
                "start": _count,
                "n": _size,
            }
        ),
    ),
    "lengths": (
        record({"field": name}, {"examples": _size}),
        record({"train": named(_size, digits), "test": named(_size, digits)}),
    ),
}
"""For each probe, the checks of its question and of its result."""

_METRIC = record({}, {f.name: anything for f in fields(Metric) if f.name not in ("name", "better")}, closed=True)


def _metric(value: Any) -> Any:
    """Check what a run stores about the metric of a user's own task (`Metric.facts`)."""
    try:
        Metric(name="own", better="higher", **_METRIC(value))
    except ConfigError:
        raise Unreadable("is not a metric") from None
    return value


RUNS: Columns = {
    "key": key,
    "label": name,
    "encoding": name,
    "task": name,
    "metric": word,
    "better": one_of("higher", "lower"),
    "unit": word,
    "seed": whole(),
    "train_length": _size,
    "config": parsed(CONFIG),
    "created": time,
    "worker": optional(text),
    "heartbeat": optional(time),
    "claims": whole(0, 2**31),  # one more for each claim
    "step": _count,
    "steps": _count,
    "started": optional(time),
    "finished": optional(time),
    "error": optional(name),
    "facts": parsed(record({}, {"metric": _metric})),
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
    "length": _size,
    "metric": word,
    "better": one_of("higher", "lower"),
    "n": _size,
    "mean": real,
    "standard_error": real,
    "out_of_distribution": flag,
    "seconds": real,
    "facts": parsed(record({}, {"details": optional(DETAILS)})),
    "created": time,
}
CURVE: Columns = {
    "step": _count,
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
    if what == "probes" and (known := RESULTS.get(values["question"]["probe"])) is not None:
        for column, check in zip(("question", "result"), known, strict=True):
            _cell(column, check, values[column])


def _row_name(what: str, cells: Mapping[str, Any]) -> str:
    """Return the cells that identify a row."""
    return " ".join(escaped(cells[column]) for column in NAMES[what])
