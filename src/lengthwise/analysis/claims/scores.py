"""The scores that a test compares, and the reasons why they decide nothing."""

import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

from lengthwise.analysis.claims.evidence import Evidence, Rows
from lengthwise.analysis.estimates import Interval
from lengthwise.analysis.findings import Point, Series, TaskFindings
from lengthwise.analysis.numbers import figure, times
from lengthwise.analysis.ranks import over_lengths, overall
from lengthwise.analysis.reading import margin
from lengthwise.metrics import ENTITY_F1, EXACT_MATCH, TOKEN_ACCURACY

Verdict = Literal["holds here", "contradicted at this scale", "cannot tell", "not tested"]
HOLDS: Verdict = "holds here"
CONTRADICTED: Verdict = "contradicted at this scale"
UNDECIDED: Verdict = "cannot tell"
UNTESTED: Verdict = "not tested"
VERDICTS = (HOLDS, CONTRADICTED, UNDECIDED, UNTESTED)

SEEDS = 3  # fewer say too little about other seeds
LEARNED = 0.95  # a smaller score at the training length means that the task was not learned
PERFECTIBLE = (EXACT_MATCH.name, TOKEN_ACCURACY.name, ENTITY_F1.name)  # the question determines the answer


class NoDecision(Exception):
    """A test cannot be decided. The message is the reason."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


@dataclass(frozen=True)
class Scores:
    """The scores of an encoding at one length, or over all lengths longer than training (`length` is None).

    `seeds`: those that count; None for all.
    """

    task: TaskFindings
    series: Series
    length: int | None
    seeds: Set[int] | None = None

    @property
    def points(self) -> tuple[Point, ...]:
        return tuple(
            point
            for point in self.series.points
            if point.length == self.length or (self.length is None and self.task.is_new(point.length))
        )

    @property
    def by_seed(self) -> dict[int, float]:
        if self.length is None:
            scores = overall(self.task, self.series, "longer")
        else:
            scores = {s.seed: s.mean for point in self.points for s in point.seeds if math.isfinite(s.mean)}
        return {seed: score for seed, score in scores.items() if self.seeds is None or seed in self.seeds}

    @property
    def mean(self) -> float:
        return math.fsum(self.by_seed.values()) / len(self.by_seed)

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the score, which contains the uncertainty of its examples."""
        if self.length is None:
            return over_lengths(self.task, self.series, "longer")
        return next((point.interval for point in self.points), None)

    @property
    def is_longer(self) -> bool:
        """Return whether these are scores at lengths longer than training."""
        return self.length is None or self.task.is_new(self.length)

    @property
    def where(self) -> str:
        """Return the lengths in words: `at 1,024 bytes (4× the training length)`."""
        if self.length is None:
            return "over all longer lengths"
        ratio = self.length / self.task.train_length
        of_training = "the training length" if ratio == 1 else f"{times(ratio)} the training length"
        return f"at {counted(self.length, self.task.unit)} ({of_training})"

    @property
    def counts(self) -> str:
        """Return the numbers of seeds and examples in words: `3 seeds, 64 examples each`."""
        examples = int(sum(point.seeds[0].n for point in self.points))
        return f"{len(self.by_seed)} seeds, {counted(examples, 'examples')} each"


def find(evidence: Mapping[str, Evidence], rows: Rows, label: str, at: float | None) -> Scores:
    """Return the scores of an encoding at `at` times the training length; None: over all longer lengths.

    Raises `NoDecision` if there are none, or if they are of an older version of a class.
    """
    study = evidence.get(rows.study)
    tasks = rows.select(study.tasks) if study is not None else []
    matches = [(task, series) for task in tasks for series in task.series if series.label == label]
    if study is None or not matches:
        lacking = f"no scores of {label} on {rows.task}" if study is not None else "no scores of this study"
        raise NoDecision(UNTESTED, f"there are {lacking}; `{rows.command}` produces them")
    older = [study.outdated_class(task, series) for task, series in matches]
    if None not in older:
        name, version = next(filter(None, older))
        raise NoDecision(
            UNTESTED,
            f"these scores are of version {version} of {name}, which has changed since; `{rows.command}` produces "
            "new ones",
        )
    current = [pair for pair, outdated in zip(matches, older, strict=True) if outdated is None]
    task, series = current[0]
    if len(current) > 1:
        raise NoDecision(
            UNDECIDED,
            f"{rows.study} has {len(current)} evaluations of {label} on {rows.task}, so it is unclear which decides",
        )
    scores = Scores(task, series, None if at is None else round(at * task.train_length))
    if not scores.by_seed:
        unfinished = (
            f"; {study.unfinished} runs are not done, and the command continues them" if study.unfinished else ""
        )
        raise NoDecision(
            UNTESTED, f"{label} has no score {scores.where} on {rows.task}; `{rows.command}` produces it{unfinished}"
        )
    if len(scores.by_seed) < SEEDS:
        unfinished = f" ({study.unfinished} runs of {rows.study} are not done)" if study.unfinished else ""
        raise NoDecision(
            UNDECIDED,
            f"too few seeds: {label} on {rows.task} has {len(scores.by_seed)}, and {SEEDS} are needed{unfinished}",
        )
    return scores


def find_learned(evidence: Mapping[str, Evidence], rows: Rows, label: str, at: float | None) -> Scores:
    """Return the scores as `find` does. Raises `NoDecision` for longer lengths if the task was not learned."""
    scores = find(evidence, rows, label, at)
    if scores.is_longer and (reason := not_learned(scores)) is not None:
        raise NoDecision(UNDECIDED, f"not learned: {reason}")
    return scores


def in_common(ours: Scores, theirs: Scores) -> tuple[Scores, Scores]:
    """Return the scores of the seeds that both have. Raises `NoDecision` if these are too few."""
    seeds = ours.by_seed.keys() & theirs.by_seed.keys()
    if len(seeds) < SEEDS:
        both = f"{ours.series.label} and {theirs.series.label}"
        raise NoDecision(
            UNDECIDED, f"too few seeds: {both} on {ours.task.name} have {len(seeds)} in common, and {SEEDS} are needed"
        )
    return replace(ours, seeds=seeds), replace(theirs, seeds=seeds)


def not_learned(scores: Scores) -> str | None:
    """Return why a task does not count as learned, judged by the score at the training length; None if it does.

    An encoding that was put into the weights of another one is judged by that one if it was not trained at the training
    length: `PI from RoPE` and `PI from RoPE (100 steps at 1024)` by RoPE, and `NoPE from RoPE (20 steps)` by itself.
    """
    task, series = scores.task, scores.series
    if origin := re.fullmatch(r".+ from (.+?)( \(\d+ steps? at .+\))?", series.label):
        series = next((one for one in task.series if one.label == origin[1]), series)
    point = series.point_at(task.reference_length) if task.reference_length is not None else None
    if point is None or not math.isfinite(point.mean):
        return f"{series.label} has no score at the training length"
    length = counted(point.length, task.unit)
    where = f"{series.label} has {figure(point.mean)} {quantity(task)} at {length}, the training length"
    if (needed := needed_score(task)) is not None:
        least = "" if task.metric.better == "higher" else "at most "
        return None if reaches(task, point.mean, needed) else f"{where}, and {least}{needed:.3g} are needed"
    floor = task.unbeaten_floor(point, by_interval=True)
    if floor is None:
        return None
    return f"{where}, not clearly better than the baseline “{floor.label}” ({figure(floor.scores[point.length])})"


def needed_score(task: TaskFindings) -> float | None:
    """Return the mean score at the training length from which a task counts as learned; None where floors decide.

    Where the question determines the answer, it is `LEARNED`. Otherwise it is the score that ends the trainings
    (`StopWhenLearned`), made worse by the report's limit for "no significant loss", because the examples that ended a
    training are not those of the test. Trainings that do not end early have no such score.
    """
    if task.metric.name in PERFECTIBLE:
        return LEARNED
    stop: float | None = task.settings.get("training.stop.score")
    if stop is None or task.reference_length is None:
        return None
    tolerance = margin(task, task.reference_length)
    return stop + tolerance if task.metric.better == "lower" else stop - tolerance


def needed_of_a_seed(task: TaskFindings) -> float | None:
    """Return the score at the training length from which a single seed has learned a task; None without floors.

    Where floors decide, it is the best of them made better by the report's limit for "no significant loss".
    """
    if (needed := needed_score(task)) is not None or (length := task.reference_length) is None:
        return needed
    floors = [baseline.scores[length] for baseline in task.baselines if baseline.floor and length in baseline.scores]
    if not floors:
        return None
    tolerance = margin(task, length)
    return min(floors) - tolerance if task.metric.better == "lower" else max(floors) + tolerance


def reaches(task: TaskFindings, score: float, needed: float) -> bool:
    """Return whether a score is at least as good as the needed one."""
    return score <= needed if task.metric.better == "lower" else score >= needed


def quantity(task: TaskFindings) -> str:
    """Return what a score is, to follow a number: `nats per byte` or `(exact match)`."""
    return task.metric.unit_text(task.unit) or f"({task.metric.name})"


def counted(number: int, noun: str) -> str:
    """Return `1 symbol`, or `1,024 symbols`. `noun`: in the plural."""
    return f"{number:,} {noun.removesuffix('s') if number == 1 else noun}"
