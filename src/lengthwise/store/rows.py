"""What goes into the store and what comes out: plain data, canonical JSON."""

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
    """One training and where it stands. `asked`: what its study asks of it (without a study: what all studies ask).

    `status` is one of `STATUSES`; a run whose worker died is pending. It is done when it is trained and everything in
    `asked` has a score. Times are Unix seconds; `started` is when it was last claimed, `finished` when it was trained
    and stored; `claims` counts how often it was claimed. `facts`: versions, device, backend, seconds, parameters, ...
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
    """The answer to one question: the mean over `n` examples and its standard error; NaN where there is none."""

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
    """What was found inside a trained model: the answer to one question about it, `{"probe": ..., ...}`."""

    key: str
    asked: dict[str, Any]
    result: dict[str, Any]
    facts: dict[str, Any]
    created: float


@dataclass(frozen=True)
class CurveRow:
    """Training at one step. `loss` in nats per scored place; NaN where nothing was measured or it was not a number."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study as its file describes it, and how many of its runs have each status.

    `published`: numbers that others published for what it asks, by task and encoding; None where there are none.
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
    """The one JSON text of a value: sorted keys, no spaces, ASCII. `Unstorable` when JSON has no word for it (NaN)."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unstorable(
            f"{what} cannot be stored as JSON ({error}); keep to finite numbers, text, lists and objects"
        ) from None


def plain_text(text: str) -> str:
    """Text that every database takes: file names may hold bytes that are no UTF-8, and PostgreSQL takes no NUL."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def take(row: Any, what: str, needed: Mapping[str, type], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The named columns of a dict or dataclass, each as its type (NumPy numbers become plain). Others are refused."""
    data: Mapping[str, Any] = row if isinstance(row, Mapping) else _fields(row, what)
    optional = optional or {}
    if lacking := [name for name in needed if name not in data]:
        raise Unstorable(f"{what} lacks {', '.join(lacking)}; it has {', '.join(map(str, data)) or 'nothing'}")
    if unknown := [str(name) for name in data if name not in needed and name not in optional]:
        raise Unstorable(f"{what} has no place for {', '.join(unknown)}; it takes {', '.join([*needed, *optional])}")
    taken = {name: _as(data[name], kind, f"{what}, {name}") for name, kind in needed.items()}
    return taken | {name: data.get(name, default) for name, default in optional.items()}


def _fields(row: Any, what: str) -> dict[str, Any]:
    if not dataclasses.is_dataclass(row) or isinstance(row, type):
        raise Unstorable(f"{what} is a {type(row).__name__}; give a dict or a dataclass")
    return {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}


def _as(value: Any, kind: type, what: str) -> Any:
    try:
        if isinstance(value, str) and kind is str:
            return plain_text(value)
        if kind is float and not isinstance(value, str):
            number = math.nan if value is None else float(value)
            return None if math.isnan(number) else number  # databases have no NaN, but they have NULL
        if kind is int:
            whole = operator.index(value)
            if not -(2**63) <= whole < 2**63:
                raise Unstorable(f"{what} is {whole}; whole numbers are stored in 64 bits, choose a smaller one")
            return whole
        if kind is bool and value in (True, False):
            return bool(value)
        if kind in (dict, list) and isinstance(value, kind):
            return value
    except Unstorable:
        raise
    except (TypeError, ValueError, OverflowError):
        pass
    raise Unstorable(f"{what} is {value!r}; it has to be of type {kind.__name__}")
