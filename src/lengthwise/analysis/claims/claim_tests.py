"""The tests of claims. Each compares scores of the same seeds, and states what it found in a sentence.

Differences between encodings are tested with the paired t test, whose p values are corrected for all claims together
(`judge`). What an encoding loses at longer lengths, and whether two encodings are equal, is judged by 95 % intervals.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lengthwise.analysis.claims.evidence import Evidence, Rows
from lengthwise.analysis.claims.scores import (
    CONTRADICTED,
    HOLDS,
    UNDECIDED,
    Scores,
    Verdict,
    find,
    find_learned,
    in_common,
    needed_of_a_seed,
    not_learned,
    quantity,
    reaches,
)
from lengthwise.analysis.estimates import Interval, over_seeds
from lengthwise.analysis.numbers import figure, times
from lengthwise.analysis.ranks import overall, reciprocal_ranks
from lengthwise.analysis.reading import margin
from lengthwise.analysis.statistics.paired import Comparison, compare_all

AllEvidence = Mapping[str, Evidence]  # by study


@dataclass(frozen=True)
class Outcome:
    """What a test found. `p`: of a comparison; None if the verdict follows from an interval or from missing scores."""

    verdict: Verdict
    sentence: str
    p: float | None = None


class Test(ABC):
    """A test of stored scores."""

    __test__ = False  # for pytest

    @property
    def all_rows(self) -> tuple[Rows, ...]:
        """Return the scores that decide."""
        rows: Rows = vars(self)["rows"]
        return (rows,)

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the encodings that are compared."""
        return tuple(vars(self)[name] for name in ("label", "than") if name in vars(self))

    @property
    def task(self) -> str:
        """Return the tasks that decide, in words."""
        return " and ".join(dict.fromkeys(rows.text for rows in self.all_rows))

    @property
    def text(self) -> str:
        """Return the statement with its tasks: `FIRE is better than RoPE at 2× the training length (on Copy)`."""
        return f"{self.statement} (on {self.task})"

    @property
    @abstractmethod
    def statement(self) -> str:
        """Return what the scores must show for the claim to hold, without a full stop."""

    @abstractmethod
    def outcome(self, evidence: AllEvidence) -> Outcome:
        """Compare the scores. Raises `NoDecision` if they decide nothing."""


@dataclass(frozen=True)
class Better(Test):
    """`label` has better scores than `than`, at `at` times the training length, or over all longer lengths without it.

    `than_rows`: the scores of `than`, at the same length, if they are others than those of `label`. `by`: the
    difference must be larger than this, in the units of the metric.
    """

    label: str
    than: str
    rows: Rows
    at: float | None = None
    than_rows: Rows | None = None
    by: float = 0.0

    @property
    def all_rows(self) -> tuple[Rows, ...]:
        return (self.rows,) if self.than_rows is None else (self.rows, self.than_rows)

    @property
    def names(self) -> tuple[str, str]:
        if self.than_rows is None or self.than_rows.words == self.rows.words:
            return self.label, self.than
        return f"{self.label} ({self.rows.words})", f"{self.than} ({self.than_rows.words})"

    @property
    def statement(self) -> str:
        first, second = self.names
        by = f" by more than {self.by:g}" if self.by else ""
        return f"{first} is better than {second}{by} {at_text(self.at)}"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        ours, theirs = in_common(*self.scores(evidence))
        better = ours.task.metric.better
        _, difference = compared(ours.by_seed, theirs.by_seed, better)
        needed = -self.by if better == "lower" else self.by
        comparison, _ = compared(ours.by_seed, {seed: value + needed for seed, value in theirs.by_seed.items()}, better)
        first, second = self.names
        means = f"{first} has {figure(ours.mean)} and {second} {figure(theirs.mean)} {quantity(ours.task)}"
        verdict: Verdict = HOLDS if comparison.first == "ours" else CONTRADICTED
        claimed = f", compared with {figure(needed)}" if self.by else ""
        sentence = f"{capital(ours.where)}, {means}: {of_difference(difference)}{claimed}, {ours.counts}"
        if comparison.p is None:
            ends_apart = ours.interval and theirs.interval and ours.interval.differs_from(theirs.interval)
            return Outcome(
                verdict if ends_apart else UNDECIDED,
                f"{sentence}; the difference is the same for every seed, and the intervals of the two scores "
                f"{'do not overlap' if ends_apart else 'overlap'}",
            )
        return Outcome(verdict, sentence, comparison.p)

    def scores(self, evidence: AllEvidence) -> tuple[Scores, Scores]:
        ours = find_learned(evidence, self.rows, self.label, self.at)
        if self.than_rows is None:
            return ours, find_learned(evidence, self.rows, self.than, self.at)
        theirs = find(evidence, self.than_rows, self.than, 1)
        at = None if ours.length is None else ours.length / theirs.task.train_length
        return ours, find_learned(evidence, self.than_rows, self.than, at)


@dataclass(frozen=True)
class RanksHigher(Test):
    """`label` has a higher mean reciprocal rank than `than` over several tasks, by scores over all longer lengths."""

    label: str
    than: str
    tasks: tuple[Rows, ...]

    @property
    def all_rows(self) -> tuple[Rows, ...]:
        return self.tasks

    @property
    def statement(self) -> str:
        return f"{self.label} has a higher mean reciprocal rank than {self.than} over {len(self.tasks)} tasks"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        ranks: dict[str, dict[int, list[float]]] = {self.label: {}, self.than: {}}
        for rows in self.tasks:
            ours, theirs = (find_learned(evidence, rows, label, None) for label in ranks)
            scores = {series.label: overall(ours.task, series, "longer") for series in ours.task.series}
            for seed in ours.by_seed.keys() & theirs.by_seed.keys():
                of_seed = {label: values[seed] for label, values in scores.items() if seed in values}
                ranks_of_seed = reciprocal_ranks(of_seed, better=ours.task.metric.better)
                for label, values in ranks.items():
                    values.setdefault(seed, []).append(ranks_of_seed[label])
        mean_ranks = [{seed: math.fsum(row) / len(row) for seed, row in by_seed.items()} for by_seed in ranks.values()]
        comparison, difference = compared(mean_ranks[0], mean_ranks[1], "higher")
        means = [math.fsum(by_seed.values()) / len(by_seed) for by_seed in mean_ranks]
        sentence = (
            f"Over {len(self.tasks)} tasks, {self.label} has a mean reciprocal rank of {figure(means[0])} and "
            f"{self.than} {figure(means[1])}: {of_difference(difference)}, {len(comparison.seeds)} seeds"
        )
        if comparison.p is None:
            return Outcome(UNDECIDED, f"{sentence}; the difference is the same for every seed")
        return Outcome(HOLDS if comparison.first == "ours" else CONTRADICTED, sentence, comparison.p)


@dataclass(frozen=True)
class SameAs(Test):
    """The scores of two encodings differ by at most `within`, in the units of the metric."""

    label: str
    than: str
    rows: Rows
    at: float | None = None
    within: float = 0.05

    @property
    def statement(self) -> str:
        return f"{self.label} and {self.than} differ by at most {self.within:g} {at_text(self.at)}"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        ours, theirs = in_common(*(find_learned(evidence, self.rows, label, self.at) for label in self.labels))
        _, difference = compared(ours.by_seed, theirs.by_seed, ours.task.metric.better)
        means = f"{self.label} has {figure(ours.mean)} and {self.than} {figure(theirs.mean)} {quantity(ours.task)}"
        sentence = f"{capital(ours.where)}, {means}: {of_difference(difference)}, {ours.counts}"
        if -self.within <= difference.low and difference.high <= self.within:
            return Outcome(HOLDS, sentence)
        if difference.low > self.within or difference.high < -self.within:
            return Outcome(CONTRADICTED, sentence)
        return Outcome(UNDECIDED, f"{sentence}; the interval ends beyond {self.within:g}")


@dataclass(frozen=True)
class Keeps(Test):
    """An encoding keeps its score at `at` times the training length: the loss is at most the report's limit.

    `least`: if it is given, the score there must be at least that.
    """

    label: str
    rows: Rows
    at: float
    least: float | None = None

    @property
    def statement(self) -> str:
        if self.least is not None:
            return f"{self.label} has at least {self.least:g} {at_text(self.at)}"
        return f"{self.label} has no significant loss {at_text(self.at)}"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        scores = find_learned(evidence, self.rows, self.label, self.at)
        if self.least is not None:
            return bounded(scores, self.least)
        return loss_outcome(scores, HOLDS, CONTRADICTED)


@dataclass(frozen=True)
class Falls(Test):
    """An encoding loses more than the report's limit at `at` times the training length.

    `below`: if it is given, the score there must be below that; without `at`, the score over all longer lengths.
    """

    label: str
    rows: Rows
    at: float | None
    below: float | None = None

    @property
    def statement(self) -> str:
        if self.below is not None:
            return f"{self.label} has less than {self.below:g} {at_text(self.at)}"
        return f"{self.label} gets worse {at_text(self.at)}"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        scores = find_learned(evidence, self.rows, self.label, self.at)
        if self.below is not None:
            outcome_below = bounded(scores, self.below)
            opposite = {HOLDS: CONTRADICTED, CONTRADICTED: HOLDS}
            return Outcome(opposite.get(outcome_below.verdict, outcome_below.verdict), outcome_below.sentence)
        return loss_outcome(scores, CONTRADICTED, HOLDS)


@dataclass(frozen=True)
class Learns(Test):
    """An encoding learns a task at the training length. `is_learned`: False for the claim that it does not.

    A model that has not learned a task might do so with more training, so it does not contradict the claim that it can.
    """

    label: str
    rows: Rows
    is_learned: bool = True

    @property
    def statement(self) -> str:
        return f"{self.label} {'has learned' if self.is_learned else 'has not learned'} the task at the training length"

    def outcome(self, evidence: AllEvidence) -> Outcome:
        scores = find(evidence, self.rows, self.label, 1)
        values = scores.by_seed.values()
        sentence = (
            f"{self.label} has {figure(scores.mean)} {quantity(scores.task)} {scores.where}, from "
            f"{figure(min(values))} to {figure(max(values))}, {scores.counts}"
        )
        needed = needed_of_a_seed(scores.task)
        if needed is not None and len({reaches(scores.task, value, needed) for value in values}) == 2:
            return Outcome(UNDECIDED, f"{sentence}; the seeds disagree")
        if (not_learned(scores) is None) == self.is_learned:
            return Outcome(HOLDS, sentence)
        if self.is_learned:
            return Outcome(UNDECIDED, f"not learned: {sentence}")
        return Outcome(CONTRADICTED, sentence)


def compared(ours: Mapping[int, float], theirs: Mapping[int, float], better: str) -> tuple[Comparison, Interval]:
    """Compare two encodings over common seeds. Return the comparison, and the difference ours − theirs."""
    (comparison,) = compare_all({"ours": ours, "theirs": theirs}, better)
    difference = comparison.difference
    if comparison.first == "ours":
        return comparison, difference
    return comparison, replace(difference, mean=-difference.mean, low=-difference.high, high=-difference.low)


def loss_outcome(scores: Scores, if_small: Verdict, if_large: Verdict) -> Outcome:
    """Compare what an encoding loses at a longer length with the report's limit for a small loss."""
    task = scores.task
    before = Scores(task, scores.series, task.reference_length)
    sign = 1 if task.metric.better == "lower" else -1
    after, start = scores.by_seed, before.by_seed
    loss = over_seeds([sign * (after[seed] - start[seed]) for seed in sorted(after.keys() & start.keys())])
    limit = margin(task, task.reference_length or task.train_length)
    sentence = (
        f"{scores.series.label} has {figure(before.mean)} {quantity(task)} at the training length and "
        f"{figure(scores.mean)} {scores.where}: a loss of {ends(loss)}, of which up to {limit:.3g} counts as none, "
        f"{scores.counts}"
    )
    if loss.high <= limit:
        return Outcome(if_small, sentence)
    return Outcome(if_large if loss.low > limit else UNDECIDED, sentence)


def bounded(scores: Scores, least: float) -> Outcome:
    """Compare a score with the least one that is claimed, by its interval."""
    interval = scores.interval
    assert interval is not None, "scores that were found have an interval"
    sentence = f"{scores.series.label} has {ends(interval)} {quantity(scores.task)} {scores.where}, {scores.counts}"
    if interval.low >= least:
        return Outcome(HOLDS, sentence)
    return Outcome(CONTRADICTED if interval.high < least else UNDECIDED, sentence)


def at_text(at: float | None) -> str:
    """Return a multiple of the training length in words."""
    if at is None:
        return "over all longer lengths"
    return "at the training length" if at == 1 else f"at {times(at)} the training length"


def of_difference(difference: Interval) -> str:
    return f"a difference of {ends(difference)}"


def ends(interval: Interval) -> str:
    """Return a number with its interval: `0.059 (0.021 … 0.097)`."""
    return f"{figure(interval.mean)} ({figure(interval.low)} … {figure(interval.high)})"


def capital(text: str) -> str:
    return text[0].upper() + text[1:]
