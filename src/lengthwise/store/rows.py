"""The rows of the store as dataclasses, and their conversion to canonical JSON.

These classes are the only definition of the columns: the tables (`schema.py`), the checks of what is read (`columns.py`) and the
checks of what is given to be stored (`take`) are derived from their members.
"""

import contextlib
import dataclasses
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from lengthwise.store import checks
from lengthwise.store.checks import COUNT, SIZE, Check, optional, parsed, whole
from lengthwise.store.errors import Unstorable
from lengthwise.store.shapes import CONFIG, OBJECT, PUBLISHED, RUN_FACTS, SCORE_FACTS, question_text

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
STATUSES = ("pending", "running", "done", "failed")


@dataclass(frozen=True)
class Cell:
    """How a member of a row is stored in a column: `Annotated[int, Cell(...)]`. Members without a cell are computed.

    `check`: what a stored cell must pass. A column can be NULL if its check accepts None. Dicts are stored as JSON.
    `given`: the member is passed to the store; otherwise the store writes it.
    `column`: the column's name if it differs from the member's. `small`: the whole number has 32 bits in SQL instead of 64.
    """

    check: Check
    given: bool = False
    column: str = ""
    small: bool = False


def given(check: Check, column: str = "") -> Cell:
    return Cell(check, given=True, column=column)


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run and its status.

    `parent`: the key of the run whose weights it starts from.
    `asked`: the questions of its study, or those of all studies if no study was given. `status`: one of `STATUSES`. A run whose
    worker died is pending, and a run is done when it is trained and every question in `asked` has a score. Times are Unix seconds:
    `started` is the last claim, and `finished` is when the training was stored. `claims`: the number of claims. `failures`: how
    often the run failed since it was last added, with the last `error` if it is not tried again. `deaths`: how many workers in a
    row died with it and made no progress. `facts`: versions, device, backend, seconds, parameters, ...
    """

    key: Annotated[str, given(checks.key)]
    label: Annotated[str, given(checks.name)]
    encoding: Annotated[str, given(checks.name)]
    task: Annotated[str, given(checks.name)]
    metric: Annotated[str, given(checks.word)]
    better: Annotated[str, given(checks.one_of("higher", "lower"))]
    unit: Annotated[str, given(checks.word)]
    seed: Annotated[int, given(whole())]
    train_length: Annotated[int, given(SIZE)]
    config: Annotated[dict[str, Any], given(parsed(CONFIG))]
    parent: Annotated[str | None, Cell(optional(checks.key))] = None
    created: Annotated[float, Cell(checks.time)]
    worker: Annotated[str | None, Cell(optional(checks.text))]
    heartbeat: Annotated[float | None, Cell(optional(checks.time))]
    claims: Annotated[int, Cell(whole(0, 2**31), small=True)]
    failures: Annotated[int, Cell(whole(0, 2**31), small=True)]
    deaths: Annotated[int, Cell(whole(0, 2**31), small=True)]
    step: Annotated[int, Cell(COUNT)]
    steps: Annotated[int, Cell(COUNT)]
    started: Annotated[float | None, Cell(optional(checks.time))]
    finished: Annotated[float | None, Cell(optional(checks.time))]
    error: Annotated[str | None, Cell(optional(checks.name))]
    facts: Annotated[dict[str, Any], Cell(parsed(RUN_FACTS))]
    asked: list[dict[str, Any]]
    status: str


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What a worker does with a run: the columns of `RunRow` that change while it is trained, and those that name the run."""

    key: str
    label: str
    task: str
    seed: int
    train_length: int
    status: str
    worker: str | None
    claims: int
    step: int
    steps: int
    finished: float | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class ScoreRow:
    """The score for one question: the mean over `n` examples and its standard error. NaN if there is none."""

    key: Annotated[str, Cell(checks.key)]
    asked: Annotated[dict[str, Any], given(question_text, "question")]
    length: Annotated[int, given(SIZE)]
    metric: Annotated[str, given(checks.word)]
    better: Annotated[str, given(checks.one_of("higher", "lower"))]
    n: Annotated[int, given(SIZE)]
    mean: Annotated[float, given(checks.real)]
    standard_error: Annotated[float, given(checks.real)]
    out_of_distribution: Annotated[bool, given(checks.flag)]
    seconds: Annotated[float, given(checks.real)]
    facts: Annotated[dict[str, Any], Cell(parsed(SCORE_FACTS))]
    created: Annotated[float, Cell(checks.time)]


@dataclass(frozen=True, kw_only=True)
class ProbeRow:
    """The result of one probe of a trained model. `asked`: the question, `{"probe": ..., ...}`."""

    key: Annotated[str, Cell(checks.key)]
    asked: Annotated[dict[str, Any], given(parsed(checks.record({"probe": checks.name})), "question")]
    result: Annotated[dict[str, Any], given(parsed(OBJECT))]
    created: Annotated[float, Cell(checks.time)]
    facts: Annotated[dict[str, Any], given(parsed(OBJECT))]


@dataclass(frozen=True)
class CurveRow:
    """The training curve at one step. `loss`: in nats per scored token. NaN if nothing was measured or it was not a number."""

    step: Annotated[int, given(COUNT)]
    loss: Annotated[float, given(checks.real)]
    learning_rate: Annotated[float, given(checks.real)]
    gradient_norm: Annotated[float, given(checks.real)]
    tokens_per_second: Annotated[float, given(checks.real)]


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study as its file describes it, and the number of its runs with each status (`progress`).

    `published`: published numbers for the same question, by task and encoding; None if there are none.
    """

    name: Annotated[str, given(checks.printable_word)]
    question: Annotated[str, given(checks.text)]
    expectation: Annotated[str, given(checks.text)]
    cost: Annotated[str, given(checks.text)]
    command: Annotated[str, given(checks.text)]
    evaluation: Annotated[dict[str, Any], given(parsed(OBJECT))]
    created: Annotated[float, Cell(checks.time)]
    updated: Annotated[float, Cell(checks.time)]
    published: Annotated[dict[str, Any] | None, given(optional(parsed(PUBLISHED)))] = None
    progress: dict[str, int]


@cache
def cells(row: type) -> dict[str, tuple[type, Cell]]:
    """Return the members of a class of rows that are stored: by name, the type (without None) and the cell."""
    found = {}
    for member, hint in get_type_hints(row, include_extras=True).items():
        if get_origin(hint) is Annotated:
            declared, cell = get_args(hint)
            kind = get_args(declared)[0] if isinstance(declared, UnionType) else declared  # `float | None`
            found[member] = (get_origin(kind) or kind, cell)
    return found


@cache
def given_types(row: type) -> dict[str, type]:
    """Return the members of a class of rows that are given to the store, with their types, for `take`."""
    return {member: kind for member, (kind, cell) in cells(row).items() if cell.given}


def canonical(value: Any, what: str) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII. Raises `Unstorable` for values such as NaN."""
    try:
        return _CANONICAL(value)
    except (TypeError, ValueError) as error:
        raise Unstorable(
            f"{what} cannot be stored as JSON ({error}); use finite numbers, text, lists and objects"
        ) from None


class Texts:
    """Texts of questions, such as their canonical JSON. It is computed once for each dict, because rows share them."""

    def __init__(self, encode: Callable[[Any], str]) -> None:
        self._encode, self._known = encode, dict[int, tuple[Any, str]]()

    def __call__(self, question: Any) -> str:
        known = self._known.get(id(question))  # of an object that is kept, so no other one has this id
        if known is None:
            known = self._known[id(question)] = (question, self._encode(question))
        return known[1]


def question_texts(asked: Sequence[Any], what: str) -> list[str]:
    """Return the canonical JSON of each question, each once. Raises `Unstorable` for what is not a question."""
    for question in asked:
        if not isinstance(question, dict) or not isinstance(question.get("length"), int):
            raise Unstorable(f'{what} must be an object with at least {{"length": N}}, got {question!r}')
    return list(dict.fromkeys(canonical(question, what) for question in asked))


def plain_text(text: str) -> str:
    """Return text that every database accepts: escape bytes of file names that are not UTF-8, and NUL, for PostgreSQL."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def take(row: Any, what: str, needed: Mapping[str, type], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the members `needed` of a dict or dataclass, each converted to its type. Raises `Unstorable` for other members."""
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
    problem = ""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, str) and kind is str:
            return plain_text(value)
        if kind is float and not isinstance(value, str):
            number = math.nan if value is None else float(value)
            return None if math.isnan(number) else number  # SQL has no NaN, so it is stored as NULL
        if kind is int:
            whole = operator.index(value)
            if -(2**63) <= whole < 2**63:
                return whole
            problem = f"must fit in 64 bits, got {whole}; choose a smaller number"
        if kind is bool and value in (True, False):
            return bool(value)
        if kind in (dict, list) and isinstance(value, kind):
            return value
    raise Unstorable(f"{what} {problem or f'must be of type {kind.__name__}, got {value!r}'}")
