"""The findings of a study as plain data: everything that a page or a table shows, without its presentation."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.estimates import Estimate, Interval
from lengthwise.analysis.kinds import Kind, kind_of
from lengthwise.analysis.numbers import figure
from lengthwise.metrics import Metric

if TYPE_CHECKING:
    from lengthwise.analysis.answers import Summary

SHIFTED = "question.shift."  # prefix of the settings in which a test differs from training

# A model with a smaller share of correct answers at the training length has not learned the task.
LEARNED = 0.5


@dataclass(frozen=True, kw_only=True)
class Point:
    """An encoding's score at one length, over its seeds. `length` is in the task's unit."""

    length: int
    interval: Interval
    seeds: tuple[Estimate, ...]

    @property
    def mean(self) -> float:
        return self.interval.mean

    @property
    def n_seeds(self) -> int:
        return len(self.seeds)

    @property
    def n_examples(self) -> int:
        """Return the number of examples of all seeds together."""
        return int(sum(s.n for s in self.seeds))


@dataclass(frozen=True, kw_only=True)
class Series:
    """One encoding's points, by length. A length without a score is left out."""

    label: str
    encoding: str
    points: tuple[Point, ...]

    @cached_property
    def _by_length(self) -> dict[int, Point]:
        return {point.length: point for point in self.points}

    def point_at(self, length: int) -> Point | None:
        return self._by_length.get(length)

    def by_seed(self, lengths: Collection[int]) -> dict[int, list[Estimate]]:
        """Return the scores at these lengths of each seed that has a finite score at all of them."""
        scores: dict[int, list[Estimate]] = {}
        for length in lengths:
            for score in point.seeds if (point := self.point_at(length)) else ():
                if math.isfinite(score.mean):
                    scores.setdefault(score.seed, []).append(score)
        return {seed: of_seed for seed, of_seed in scores.items() if len(of_seed) == len(lengths)}


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A prediction without a model: its mean score over the same test examples, by length.

    `floor`: a model that is no better at the training length has not learned the task.
    """

    label: str
    scores: Mapping[int, float]
    floor: bool = False

    @property
    def kind(self) -> str:
        """Return its name in tables: `floor` or `baseline`."""
        return "floor" if self.floor else "baseline"


@dataclass(frozen=True, kw_only=True)
class TaskFindings:
    """The scores that may be compared with each other: one task, one protocol and one kind of question.

    `title`: the task's name, followed by the settings that differ where a study has the same task twice. `settings`:
    the settings that all runs share (model, training, task, question), flat: {"model.d_model": 128, ...}.
    `shortest`: the shortest training length; it equals `train_length` unless training drew lengths. `trained`: the
    shortest and the longest length that count as trained, see `trained_lengths`. `keys`: the keys of its runs.
    `reading`: the conclusion in plain sentences. `notes`: remarks of the task on its scores, for example that
    training and test share examples. `answers`: by the name of a measurement, the summaries of its answers, if there
    are any. `baselines`: in the task's order, the simplest floor first; they are not ranked.
    """

    title: str
    name: str
    metric: Metric
    unit: str
    train_length: int
    shortest: int
    lengths: tuple[int, ...]
    series: tuple[Series, ...]
    settings: Mapping[str, Any]
    keys: tuple[str, ...]
    reading: str = ""
    notes: tuple[str, ...] = ()
    answers: "Mapping[str, tuple[Summary, ...]]" = field(default_factory=dict)
    baselines: tuple[Baseline, ...] = ()
    trained: tuple[int, int] | None = None

    @property
    def metric_label(self) -> str:
        """Return the metric with its unit, for headings and axes: `cross-entropy (nats per byte)`."""
        return self.metric.label(self.unit)

    @property
    def training_lengths(self) -> str:
        """Return the training lengths without their unit: `8`, or `5 to 6` if training drew lengths."""
        longest = f"{self.train_length:,}"
        return longest if self.shortest == self.train_length else f"{self.shortest:,} to {longest}"

    @property
    def shifted(self) -> bool:
        """Return whether the test differs from training in more than its length (`EvaluationConfig.shifts`)."""
        return any(name.startswith(SHIFTED) for name in self.settings)

    def kind(self, length: int) -> Kind:
        """Return whether a length is shorter than training, trained, or longer than training (`kind_of`)."""
        return kind_of(length, self.trained or (self.shortest, self.train_length))

    def of_kind(self, kind: Kind) -> tuple[int, ...]:
        """Return the lengths of one kind."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> dict[Kind, tuple[int, ...]]:
        kinds = {length: self.kind(length) for length in self.lengths}
        return {kind: tuple(n for n in self.lengths if kinds[n] == kind) for kind in set(kinds.values())}

    def is_new(self, length: int) -> bool:
        """Return whether the length is longer than every training example."""
        return self.kind(length) == "longer"

    @cached_property
    def most_seeds(self) -> int:
        """Return the largest number of seeds of a point."""
        return max((point.n_seeds for series in self.series for point in series.points), default=0)

    @property
    def reference_length(self) -> int | None:
        """Return the length that others are compared with: the longest evaluated one that was trained, or None."""
        return max(self.of_kind("trained"), default=None)

    def has_failed(self, series: Series) -> bool:
        """Return whether an encoding has not learned the task.

        That is so if, at `reference_length`, it is no better than a floor or its share of correct answers is below
        `LEARNED`.
        """
        point = series.point_at(self.reference_length) if self.reference_length is not None else None
        if point is None or not math.isfinite(point.mean):
            return False
        return self.unbeaten_floor(point) is not None or (self.metric.share and point.mean < LEARNED)

    def leader(self, length: int) -> Point | None:
        """Return the point with the best mean at a length, even if it is no better than a floor."""
        point = self.ranked(length)[0].point_at(length) if self.series else None
        return point if point is not None and math.isfinite(point.mean) else None

    def best(self, length: int) -> Point | None:
        """Return the leader at a length if it may be called the best, otherwise None.

        Nobody is the best where all printed scores are equal, where the leader is no better than a floor or has not
        learned the task, or where every score is zero.
        """
        leader = self.leader(length)
        if leader is None or self.unbeaten_floor(leader) is not None or self.has_failed(self.ranked(length)[0]):
            return None
        if self.metric.share and figure(leader.mean) == figure(0.0):
            return None
        means = [p.mean for s in self.series if (p := s.point_at(length)) is not None]
        return None if len(means) > 1 and {figure(mean) for mean in means} == {figure(leader.mean)} else leader

    def unbeaten_floor(self, point: Point, *, by_interval: bool = False) -> Baseline | None:
        """Return the first floor that the mean at a point does not beat; None if it beats all of them.

        `by_interval`: return the first floor that the interval reaches instead.
        """
        lower, value = self.metric.better == "lower", point.mean
        if by_interval and point.interval.basis != "none":
            value = point.interval.high if lower else point.interval.low
        value = float(f"{value:.6g}")  # baselines are stored with six digits
        floors = ((b, b.scores[point.length]) for b in self.baselines if b.floor and point.length in b.scores)
        return next((b for b, floor in floors if (value >= floor if lower else value <= floor)), None)

    def ranked(self, length: int) -> list[Series]:
        """Return the encodings by their mean at a length, best first. Those without a finite score come last."""

        def rank(series: Series) -> float:
            point = series.point_at(length)
            if point is None or not math.isfinite(point.mean):
                return math.inf
            return point.mean if self.metric.better == "lower" else -point.mean

        return sorted(self.series, key=rank)


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """One run and the origin of its numbers. `facts` is flat: {"versions.torch": "2.13.0", ...}."""

    key: str
    label: str
    task: str
    seed: int
    status: str
    parent: str | None = None
    step: int = 0
    steps: int = 0
    error: str | None = None
    finished: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyInfo:
    """A study as its author described it before it ran. `published`: published numbers to compare with."""

    name: str
    question: str = ""
    expectation: str = ""
    cost: str = ""
    command: str = ""
    published: "Published | None" = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published numbers, shown beside the measured ones.

    `scores`: by task and by encoding label, over all lengths longer than training. `ranks`: mean reciprocal ranks by
    encoding. `about`: how the numbers were obtained.
    """

    source: str
    about: str = ""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Findings:
    """The findings of one study, or of all in a store. `unlisted`: the number of runs that belong to no study."""

    studies: tuple[StudyInfo, ...] = ()
    tasks: tuple[TaskFindings, ...] = ()
    runs: tuple[RunInfo, ...] = ()
    unlisted: int = 0

    @property
    def title(self) -> str:
        names = [s.name for s in self.studies]
        return names[0] if len(names) == 1 else f"{len(names)} studies" if names else "No results yet"

    @property
    def unfinished(self) -> tuple[RunInfo, ...]:
        """Return the runs that are pending or running."""
        return tuple(r for r in self.runs if r.status in ("pending", "running"))

    @property
    def failed(self) -> tuple[RunInfo, ...]:
        return tuple(r for r in self.runs if r.status == "failed")

    @property
    def finished(self) -> float | None:
        """Return when the last run finished, in Unix seconds; None if none has."""
        return max((r.finished for r in self.runs if r.finished is not None), default=None)

    @property
    def published(self) -> Published | None:
        """Return the published numbers if all studies that cite any cite the same ones, otherwise None."""
        cited = [s.published for s in self.studies if s.published is not None]
        return cited[0] if cited and all(c == cited[0] for c in cited) else None

    @property
    def labels(self) -> tuple[str, ...]:
        """Return every encoding's label once, in the order of the runs."""
        return tuple(dict.fromkeys(s.label for t in self.tasks for s in t.series))
