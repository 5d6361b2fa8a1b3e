"""Events that `execute` reports to its `on_event`."""

from dataclasses import dataclass
from typing import Literal

from lengthwise.studies.cost import Cost


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of the run with this key, or of the whole study if the key is empty."""

    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Begun(Event):
    """The study was added to the store.

    `counts`: its runs by status. `costs`: of unfinished runs. `seconds`: the estimated duration, if it was estimated.
    """

    counts: dict[str, int]
    workers: int
    costs: dict[str, Cost]
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """A worker has started to `train` the run, to `continue` its training from a checkpoint, or to `evaluate` it if it
    is already trained. `where`: the name of its machine, or "" for this one."""

    what: Literal["train", "continue", "evaluate"]
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class Advanced(Event):
    """Progress of a run: `step` of `steps`. During evaluation, `length` is the `nth` of `lengths`."""

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
    """The run has all its scores. `scores`: the new ones, as (length, mean). `shift_scores`: the number of new scores
    under shifts. `seconds`: the time since `Started`."""

    scores: tuple[tuple[int, float], ...]
    seconds: float
    shift_scores: int = 0


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """The run failed with an error in one line. `permanent`: its settings are the cause, so it would fail again."""

    error: str
    permanent: bool = False


@dataclass(frozen=True, kw_only=True)
class Released(Event):
    """The run was released unfinished, to be continued later or by another worker."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Counted(Event):
    """The current numbers of runs by status, over all calls. `waiting`: other calls have all unfinished runs."""

    counts: dict[str, int]
    waiting: bool


@dataclass(frozen=True, kw_only=True)
class Note(Event):
    """One line for the user, such as a damaged checkpoint or a killed worker."""

    text: str
