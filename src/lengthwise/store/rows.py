"""The rows of the store as dataclasses, and their conversion to canonical JSON."""

import dataclasses
import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.store.errors import Unstorable

STATUSES = ("pending", "running", "done", "failed")


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run and its status.

    `asked`: the questions of its study, or those of all studies if no study was given. `status`: one of `STATUSES`. A run whose
    worker died is pending, and a run is done when it is trained and every question in `asked` has a score. Times are Unix seconds:
    `started` is the last claim, and `finished` is when the training was stored. `claims`: the number of claims. `facts`: versions,
    device, backend, seconds, parameters, ...
    """

    key: str
    label: str
    encoding: str
    task: str
    metric: str
    better: str
    unit: str
    seed: int
    train_length: int
    config: dict[str, Any]
    asked: list[dict[str, Any]]
    status: str
    worker: str | None
    heartbeat: float | None
    step: int
    steps: int
    claims: int
    error: str | None
    facts: dict[str, Any]
    created: float
    started: float | None
    finished: float | None


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """The score for one question: the mean over `n` examples and its standard error. NaN if there is none."""

    key: str
    asked: dict[str, Any]
    length: int
    metric: str
    better: str
    n: int
    mean: float
    standard_error: float
    out_of_distribution: bool
    seconds: float
    facts: dict[str, Any]
    created: float


@dataclass(frozen=True, kw_only=True)
class ProbeRow:
    """The result of one probe of a trained model. `asked`: the question, `{"probe": ..., ...}`."""

    key: str
    asked: dict[str, Any]
    result: dict[str, Any]
    facts: dict[str, Any]
    created: float


@dataclass(frozen=True)
class CurveRow:
    """The training curve at one step. `loss`: in nats per scored token. NaN if nothing was measured or it was not a number."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study as its file describes it, and the number of its runs with each status (`progress`).

    `published`: published numbers for the same question, by task and encoding; None if there are none.
    """

    name: str
    question: str
    expectation: str
    cost: str
    command: str
    evaluation: dict[str, Any]
    created: float
    updated: float
    progress: dict[str, int]
    published: dict[str, Any] | None = None


def canonical(value: Any, what: str) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII. Raises `Unstorable` for values such as NaN."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unstorable(
            f"{what} cannot be stored as JSON ({error}); use finite numbers, text, lists and objects"
        ) from None


def plain_text(text: str) -> str:
    """Return text that every database accepts: escape bytes of file names that are not UTF-8, and NUL, for PostgreSQL."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def take(row: Any, what: str, needed: Mapping[str, type], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the listed columns of a dict or dataclass, each converted to its type. Raises `Unstorable` for other columns."""
    data: Mapping[str, Any] = row if isinstance(row, Mapping) else _fields(row, what)
    optional = optional or {}
    if lacking := [name for name in needed if name not in data]:
        raise Unstorable(f"{what} lacks {', '.join(lacking)}; it has {', '.join(map(str, data)) or 'nothing'}")
    if unknown := [str(name) for name in data if name not in needed and name not in optional]:
        raise Unstorable(
            f"{what} has unknown columns: {', '.join(unknown)}; the columns are {', '.join([*needed, *optional])}"
        )
    taken = {name: _as(data[name], kind, f"{what}, {name}") for name, kind in needed.items()}
    return taken | {name: data.get(name, default) for name, default in optional.items()}


def _fields(row: Any, what: str) -> dict[str, Any]:
    if not dataclasses.is_dataclass(row) or isinstance(row, type):
        raise Unstorable(f"{what} must be a dict or a dataclass, got {type(row).__name__}")
    return {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}


def _as(value: Any, kind: type, what: str) -> Any:
    try:
        if isinstance(value, str) and kind is str:
            return plain_text(value)
        if kind is float and not isinstance(value, str):
            number = math.nan if value is None else float(value)
            return None if math.isnan(number) else number  # SQL has no NaN, so it is stored as NULL
        if kind is int:
            whole = operator.index(value)
            if not -(2**63) <= whole < 2**63:
                raise Unstorable(f"{what} must fit in 64 bits, got {whole}; choose a smaller number")
            return whole
        if kind is bool and value in (True, False):
            return bool(value)
        if kind in (dict, list) and isinstance(value, kind):
            return value
    except Unstorable:
        raise
    except (TypeError, ValueError, OverflowError):
        pass
    raise Unstorable(f"{what} must be of type {kind.__name__}, got {value!r}")
