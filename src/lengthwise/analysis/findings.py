"""What a study found, as plain data: everything that a page or a table shows, and nothing about how it is shown."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.analysis.attention import AttendedDistances, Distances
from lengthwise.analysis.generated_answers import GeneratedAnswers
from lengthwise.analysis.in_context import InContext
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.kinds import Kind, kind_of
from lengthwise.analysis.lengths import ExampleLengths
from lengthwise.analysis.numbers import figure

SHIFTED = "question.shift."  # how the settings of a test begin in which it differs from the training


# A model that is right in fewer than half of the cases at the trained length has nothing that it could hold.
LEARNED = 0.5


@dataclass(frozen=True, kw_only=True)
class SeedScore:
    """One trained model's score at one length: the mean over its `n` examples and its standard error (NaN: unknown).

    `groups`: its means over equal groups of the examples, the same ones for every seed, where they were kept.
    """

    key: str
    seed: int
    mean: float
    standard_error: float
    n: int
    groups: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Point:
    """An encoding at one length, over its seeds. `length` in the task's unit."""

    length: int
    out_of_distribution: bool
    interval: Interval
    seeds: tuple[SeedScore, ...]

    @property
    def mean(self) -> float:
        return self.interval.mean

    @property
    def n_seeds(self) -> int:
        return len(self.seeds)

    @property
    def n_examples(self) -> int:
        """Of all seeds together."""
        return sum(s.n for s in self.seeds)


@dataclass(frozen=True, kw_only=True)
class Series:
    """One encoding's points, by length; a length that has no score yet is left out."""

    label: str
    encoding: str
    points: tuple[Point, ...]

    def at(self, length: int) -> Point | None:
        return next((p for p in self.points if p.length == length), None)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A prediction that needs no model, scored beside the models: the mean over the same examples, by length. `floor`: a model that
    does no better at the trained length has not learned the task."""

    label: str
    scores: Mapping[int, float]
    floor: bool = False

    @property
    def kind(self) -> str:
        """Return what a table calls it."""
        return "floor" if self.floor else "baseline"


@dataclass(frozen=True, kw_only=True)
class TaskFindings:
    """The scores that may be compared with each other: one task, one protocol, one way of asking.

    `title` is the task's name, with what differs where a study has the same task twice. `settings` is what all runs
    share (model, training, task, question), flat: {"model.d_model": 128, ...}. `shortest` is the shortest length
    trained on: `train_length`, unless training drew lengths. `trained`: from which length to which all count as trained, see
    `trained_lengths`; `kind` says of one what it is. `keys`: its runs. `reading`: a plain sentence. `notes`: what
    the task has to say beside its scores (train and test that share examples, say). `distances`, `attended`: what was found
    inside the trained models, if anything was asked; `in_context`: the same of functions learned in context;
    `examples`: how long the examples are, if that was. `baselines`: of a task that has some, in its order (of the floors the
    simplest first); they have no rank. `generated_answers`: what decoded answers say beyond right and wrong, if they were decoded.
    """

    title: str
    name: str
    metric: str
    better: Literal["lower", "higher"]
    unit: str
    train_length: int
    shortest: int
    lengths: tuple[int, ...]
    series: tuple[Series, ...]
    settings: Mapping[str, Any]
    keys: tuple[str, ...]
    reading: str = ""
    notes: tuple[str, ...] = ()
    distances: tuple[Distances, ...] = ()
    attended: tuple[AttendedDistances, ...] = ()
    examples: tuple[ExampleLengths, ...] = ()
    in_context: InContext = field(default_factory=InContext)
    baselines: tuple[Baseline, ...] = ()
    generated_answers: GeneratedAnswers | None = None
    trained: tuple[int, int] | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        return bounds_of(self.metric)

    @property
    def shifted(self) -> bool:
        """Whether the test differs from what was trained in more than its length (`EvaluationConfig.shifts`)."""
        return any(name.startswith(SHIFTED) for name in self.settings)

    def kind(self, length: int) -> Kind:
        """Whether a length was trained, see `kind_of`."""
        return kind_of(length, self.trained or (self.shortest, self.train_length))

    def of_kind(self, kind: Kind) -> tuple[int, ...]:
        """The lengths of that kind."""
        return tuple(length for length in self.lengths if self.kind(length) == kind)

    def is_new(self, length: int) -> bool:
        """Whether the length is longer than anything trained on."""
        return self.kind(length) == "longer"

    @property
    def home(self) -> int | None:
        """The length that others are measured against: the trained one, or the longest one within it that was asked."""
        return max(self.of_kind("trained"), default=None)

    def has_failed(self, series: Series) -> bool:
        """Whether an encoding has not learned the task: at `home` no better than a floor, or right in fewer than `LEARNED`."""
        point = series.at(self.home) if self.home is not None else None
        if point is None or not math.isfinite(point.mean):
            return False
        return self.unbeaten(point) is not None or (self.bounds is not None and point.mean < LEARNED)

    def leader(self, length: int) -> Point | None:
        """The point with the best mean at a length, whatever it is worth."""
        point = self.ranked(length)[0].at(length) if self.series else None
        return point if point is not None and math.isfinite(point.mean) else None

    def best(self, length: int) -> Point | None:
        """The leader at a length, where it may be called the best. None where all encodings have the same score (as it is
        written), where the leader is no better than a floor or has not learned the task, and where every score is zero."""
        leader = self.leader(length)
        if leader is None or self.unbeaten(leader) is not None or self.has_failed(self.ranked(length)[0]):
            return None
        if self.bounds and figure(leader.mean) == figure(0.0):
            return None
        means = [p.mean for s in self.series if (p := s.at(length)) is not None]
        return None if len(means) > 1 and {figure(mean) for mean in means} == {figure(leader.mean)} else leader

    def unbeaten(self, point: Point, *, surely: bool = False) -> Baseline | None:
        """The first floor that an encoding is no better than, at a point. `surely`: the first one that its interval reaches."""
        lower, value = self.better == "lower", point.mean
        if surely and point.interval.basis != "none":
            value = point.interval.high if lower else point.interval.low
        value = float(f"{value:.6g}")  # with as many digits as baselines are kept with
        floors = ((b, b.scores[point.length]) for b in self.baselines if b.floor and point.length in b.scores)
        return next((b for b, floor in floors if (value >= floor if lower else value <= floor)), None)

    def ranked(self, length: int) -> list[Series]:
        """The encodings, best mean at that length first; those without a finite score there stay below, in order."""

        def rank(series: Series) -> float:
            point = series.at(length)
            if point is None or not math.isfinite(point.mean):
                return math.inf
            return point.mean if self.better == "lower" else -point.mean

        return sorted(self.series, key=rank)


def bounds_of(metric: str) -> tuple[float, float] | None:
    """The values that a share of right answers can have; None for another metric."""
    return (0.0, 1.0) if metric in ("exact match", "accuracy") else None


def limits_of(metric: str) -> tuple[float, float] | None:
    """The values that a metric can have, where it has limits; intervals are cut there."""
    return {"squared error": (0.0, math.inf), "total variation": (0.0, 1.0)}.get(metric, bounds_of(metric))


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run and where its numbers come from. `facts` is flat: {"versions.torch": "2.13.0", ...}."""

    key: str
    label: str
    task: str
    seed: int
    status: str
    step: int = 0
    steps: int = 0
    error: str | None = None
    finished: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """What a study's author wrote down before it ran; `published`: what others measured (see `Published`)."""

    name: str
    question: str = ""
    expectation: str = ""
    cost: str = ""
    command: str = ""
    published: "Published | None" = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """Numbers of a publication, to stand beside measured ones. `scores`: by task's and encoding's label, over all lengths beyond
    the trained one; `ranks`: mean reciprocal ranks by encoding. `about`: how they came about."""

    source: str
    about: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that is known about one study, or about all studies in a store. `apart`: how many runs no study lists any more."""

    studies: tuple[StudyInfo, ...] = ()
    tasks: tuple[TaskFindings, ...] = ()
    runs: tuple[RunInfo, ...] = ()
    apart: int = 0

    @property
    def title(self) -> str:
        names = [s.name for s in self.studies]
        return names[0] if len(names) == 1 else f"{len(names)} studies" if names else "No results yet"

    @property
    def unfinished(self) -> tuple[RunInfo, ...]:
        """Runs that are still to do or at work; failed ones are apart."""
        return tuple(r for r in self.runs if r.status in ("pending", "running"))

    @property
    def failed(self) -> tuple[RunInfo, ...]:
        return tuple(r for r in self.runs if r.status == "failed")

    @property
    def finished(self) -> float | None:
        """When the last run was done, Unix seconds."""
        return max((r.finished for r in self.runs if r.finished is not None), default=None)

    @property
    def published(self) -> Published | None:
        """What the studies cite, if they all cite one thing."""
        cited = [s.published for s in self.studies if s.published is not None]
        return cited[0] if cited and all(c == cited[0] for c in cited) else None

    @property
    def labels(self) -> tuple[str, ...]:
        """Every encoding's label once, in the order of the runs."""
        return tuple(dict.fromkeys(s.label for t in self.tasks for s in t.series))
