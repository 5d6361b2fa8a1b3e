"""What an execution tells whoever watches it."""

from dataclasses import dataclass
from typing import Literal

from lengthwise.studies.cost import Cost


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a run, or (key "") to the whole study."""

    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Begun(Event):
    """The study is in the store. `counts` of its `total` runs by status; `costs` of those that are still to do; `seconds` that
    they will take, where that was estimated."""

    total: int
    counts: dict[str, int]
    workers: int
    costs: dict[str, Cost]
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """A worker took the run: `train` it, or only `evaluate` a trained one."""

    what: Literal["train", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Advanced(Event):
    """How far a run is: `step` of `steps`; while evaluating, `length` is asked, the `nth` of `lengths`."""

    phase: Literal["train", "evaluate"]
    step: int
    steps: int
    loss: float | None
    steps_per_second: float
    eta_seconds: float
    length: int | None = None
    nth: int = 0
    lengths: int = 0


@dataclass(frozen=True, kw_only=True)
class Done(Event):
    """The run has all its scores: (length, mean) of those that are new, how many are new of shifts, and the seconds that this
    sitting took."""

    scores: tuple[tuple[int, float], ...]
    seconds: float
    of_shifts: int = 0


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """The run was given up; the others go on. `error` is one line."""

    error: str


@dataclass(frozen=True, kw_only=True)
class Released(Event):
    """The run was given back unfinished, to be continued later or elsewhere."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Counted(Event):
    """How many runs have each status now, by whichever call. `waiting`: other calls hold all that are left."""

    counts: dict[str, int]
    waiting: bool


@dataclass(frozen=True, kw_only=True)
class Note(Event):
    """One line that people should see: a damaged checkpoint, a worker that was killed."""

    text: str
