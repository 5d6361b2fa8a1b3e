"""The rows of the store as dataclasses, and their conversion to canonical JSON.

These classes are the only definition of the columns: the tables (`schema.py`), and the types of what is read and
written (`columns.py`) are derived from their members.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from lengthwise.store.cells import Count, Json, Key, Line, Name, Question, Size, Time, Whole
from lengthwise.store.errors import Unstorable

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode
STATUSES = ("pending", "running", "done", "failed")


@dataclass(frozen=True)
class Cell:
    """How a member of a row is stored in a column: `Annotated[int, Cell(...)]`. Members without a cell are computed.

    A column can be NULL if the member can be None. Dicts are stored as JSON. `given`: the member is passed
    to the store; otherwise the store writes it. `small`: the whole number has 32 bits in SQL instead of 64.
    """

    given: bool = False
    small: bool = False


STORED, GIVEN, SMALL = Cell(), Cell(given=True), Cell(small=True)


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run and its status.

    `parent`: the key of the run whose weights it starts from. `questions`: those of its study, or those of all
    studies if no study was given. `status`: one of `STATUSES`. A run whose worker died is pending, and a run is done
    when it is trained and every one of its `questions` has a score. Times are Unix seconds: `started` is the last
    claim, and `finished` is when the training was stored. `claims`: the number of claims. `failures`: how often the
    run failed since it was last added, with the last `error` if it is not tried again. `deaths`: how many workers in
    a row died with it and made no progress. `facts`: versions, device, backend, seconds, parameters, ...
    """

    key: Annotated[Key, GIVEN]
    label: Annotated[Name, GIVEN]
    encoding: Annotated[Name, GIVEN]
    task: Annotated[Name, GIVEN]
    metric: Annotated[Name, GIVEN]
    better: Annotated[Literal["higher", "lower"], GIVEN]
    unit: Annotated[Name, GIVEN]
    seed: Annotated[Whole, GIVEN]
    train_length: Annotated[Size, GIVEN]
    config: Annotated[Json, GIVEN]
    parent: Annotated[Key | None, GIVEN] = None
    created: Annotated[Time, STORED]
    worker: Annotated[str | None, STORED]
    heartbeat: Annotated[Time | None, STORED]
    claims: Annotated[Count, SMALL]
    failures: Annotated[Count, SMALL]
    deaths: Annotated[Count, SMALL]
    step: Annotated[Count, STORED]
    steps: Annotated[Count, STORED]
    started: Annotated[Time | None, STORED]
    finished: Annotated[Time | None, STORED]
    error: Annotated[Name | None, STORED]
    facts: Annotated[Json, GIVEN]
    questions: list[dict[str, Any]]
    status: str


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What a worker does with a run: the columns of `RunRow` that change in training, and those that name it."""

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
class AnswerRow:
    """The answer of a measurement about a run. `question`: its options. `rows`: see `measurements.Table.to_data`."""

    key: Annotated[Key, STORED]
    measurement: Annotated[Name, GIVEN]
    question: Annotated[Question, GIVEN]
    rows: Annotated[Json, GIVEN]
    created: Annotated[Time, STORED]
    facts: Annotated[Json, GIVEN]


class ScoreRow(NamedTuple):
    """The answer of the measurement "scores": the mean over `n` examples and its standard error. NaN if there is none.

    `groups`: the means of groups of examples, and `baselines`: {"name", "score", "floor"}; both may
    be empty. `note`: a remark of the task.
    """

    key: str
    question: dict[str, Any]
    length: int
    n: int
    mean: float
    standard_error: float
    groups: list[float]
    baselines: list[dict[str, Any]]
    note: str

    @staticmethod
    def of(answer: AnswerRow) -> "ScoreRow":
        rows = answer.rows  # a single one, by columns
        return ScoreRow(
            key=answer.key,
            question=answer.question,
            length=answer.question["length"],
            n=rows["n"][0],
            mean=float(rows["mean"][0]),
            standard_error=float(rows["standard_error"][0]),
            groups=rows.get("groups", [[]])[0],
            baselines=rows.get("baselines", [[]])[0],
            note=rows.get("note", [""])[0],
        )


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study as its file describes it, and the number of its runs with each status (`progress`).

    `published`: published numbers for the same question, by task and encoding; None if there are none.
    """

    name: Annotated[Line, GIVEN]
    question: Annotated[str, GIVEN]
    expectation: Annotated[str, GIVEN]
    cost: Annotated[str, GIVEN]
    command: Annotated[str, GIVEN]
    evaluation: Annotated[Json, GIVEN]
    created: Annotated[Time, STORED]
    updated: Annotated[Time, STORED]
    published: Annotated[Json | None, GIVEN] = None
    progress: dict[str, int]


@dataclass(frozen=True)
class StoredMember:
    """A stored member of a row: its cell, its type for pydantic, the plain type, and whether it can be NULL."""

    cell: Cell
    type: Any
    plain: type
    nullable: bool


@cache
def cells(row: type) -> dict[str, StoredMember]:
    """Return the members of a class of rows that are stored, by name."""
    stored_members = {}
    for member, hint in get_type_hints(row, include_extras=True).items():
        cell = next((note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Cell)), None)
        if cell is not None:
            declared = get_args(hint)[0]
            nullable = isinstance(declared, UnionType) or get_origin(declared) is Union  # `Text | None`
            inner = get_args(declared)[0] if nullable else declared
            plain = get_args(inner)[0] if get_origin(inner) is Annotated else inner
            plain = str if get_origin(plain) is Literal else plain
            stored_members[member] = StoredMember(cell, hint, plain, nullable)
    return stored_members


def canonical(value: Any, what: str) -> str:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII. Raise `Unstorable` for NaN and such."""
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
        known = self._known.get(id(question))  # of an object that stays in memory, so no other one has this id
        if known is None:
            known = self._known[id(question)] = (question, self._encode(question))
        return known[1]


def plain_text(text: str) -> str:
    """Return text that every database accepts: escape NUL, and bytes of file names that are not UTF-8."""
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
