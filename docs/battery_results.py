"""What the stored rows of studies/battery/ show about each task: who has learned it, who is best, who is as good."""

import math
import re
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from stored_rows import stored_studies, tasks_of

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.claims.scores import Scores, needed_of_a_seed, not_learned, quantity, reaches
from lengthwise.analysis.findings import Point, Series
from lengthwise.analysis.ranks import baseline_over_lengths, over_lengths, overall, reciprocal_ranks
from lengthwise.analysis.reading import MARGIN, margin
from lengthwise.analysis.statistics.effective_length import EffectiveLength
from lengthwise.analysis.statistics.paired import LEVEL, Comparison, compare_all, holm
from lengthwise.analysis.statistics.study import of_task
from lengthwise.measurements.answer_file import read

ROOT = Path(__file__).resolve().parents[1]
CORE, OTHERS = "battery: core", "battery: others"
COST_FILE = ROOT / "benchmarks" / "results" / "battery-cost.jsonl"  # lengthwise bench ENCODINGS --out
COST_LENGTH = 2048  # tokens
MEASURED_COSTS = {"training_ratio": "training step", "memory_ratio": "memory", "decoding_ratio": "decoded token"}
EQUALLY_GOOD = 0.02  # nats per byte, a share of correct answers, or a share of the error of always answering 0
LIMIT = (
    f"{EQUALLY_GOOD:g} nats per byte of text, {100 * EQUALLY_GOOD:g} percentage points, or {100 * EQUALLY_GOOD:g} % of "
    "the squared error of always answering 0"
)
NOT_KEPT = "no encoding is clearly better than guessing beyond the training length"
STOP = "training.stop.score"  # the setting that ends trainings
TASKS = {  # by the text or the class: the name of a task on the pages, and what it asks
    "python:docstrings": ("prose", "predict the next byte of docstrings of Python's standard library"),
    "python:source": ("code", "predict the next byte of the source of Python's standard library"),
    "Copy": ("copying", "copy random symbols"),
    "Reverse": ("reversing", "write random symbols in reverse order"),
    "Recall": ("recall", "recall the values of eight keys among pairs of a key and a value"),
    "Addition": ("addition", "add two numbers, written from the last digit on and padded with zeros to one length"),
    "Sorting": ("sorting", "sort random symbols"),
    "Parity": ("parity", "decide whether the number of ones is even, after writing the steps (a scratchpad)"),
    "LinearRegression": ("linear regression", "predict a linear function of two numbers from examples of it"),
    "Conjunction": ("conjunctions", "predict a conjunction of Boolean variables from examples of it"),
    "EvenPairs": ("even pairs", "decide whether the first and the last bit are equal (a regular task)"),
    "StackManipulation": ("stack manipulation", "apply pushes and pops to a stack of bits (a context-free task)"),
    "BucketSort": ("bucket sort", "sort five kinds of symbols (a context-sensitive task)"),
}

BySeed = Mapping[int, float]


class BestRun(NamedTuple):
    """A run with its mean scores at the training length and at all longer ones."""

    label: str
    seed: int
    steps: int
    at_training_length: float
    longer: float


@dataclass(frozen=True)
class TaskResult:
    """What one task shows about the encodings that were trained on it.

    `title` and `question`: its name on the pages, and what it asks. `runs`: by key, the stored facts of each run, such
    as its `steps` and its `learning_rate`.
    """

    title: str
    question: str
    task: TaskFindings
    runs: Mapping[str, Mapping[str, Any]]

    @cached_property
    def reasons(self) -> dict[str, str | None]:
        """Return, for each encoding, why it has not learned the task, or None if it has."""
        return {s.label: not_learned(Scores(self.task, s, None)) for s in self.task.series}

    @cached_property
    def learned(self) -> list[Series]:
        return [s for s in self.task.series if self.reasons[s.label] is None]

    @property
    def is_judged(self) -> bool:
        """Return whether at least half of the encodings have learned the task."""
        return len(self.learned) >= len(self.task.series) / 2

    @cached_property
    def scores(self) -> dict[str, dict[int, float]]:
        """Return the scores over all longer lengths of the encodings that have learned the task, by seed.

        Encodings with a seed whose score is not finite are left out: the mean of the other seeds would be too good.
        """
        scores = {s.label: overall(self.task, s, "longer") for s in self.learned}
        seeds = {s.label: max(point.n_seeds for point in s.points) for s in self.learned}
        return {label: by_seed for label, by_seed in scores.items() if len(by_seed) == seeds[label]}

    @cached_property
    def order(self) -> list[str]:
        """Return the encodings that have learned the task, the one with the best mean over all longer lengths first."""
        return sorted(self.scores, key=lambda label: self.sign * statistics.fmean(self.scores[label].values()))

    @cached_property
    def is_kept(self) -> bool:
        """Return whether the best encoding is clearly better than guessing beyond the training length.

        Its mean over all longer lengths has to be better than every floor by more than `small_loss`. Of shares of
        correct answers, it has to be above 0 and every floor by more than `MARGIN` of what is missing to 1 there.
        """
        if not self.order:
            return False
        best = statistics.fmean(self.scores[self.order[0]].values())
        floors = [baseline_over_lengths(self.task, b, "longer") for b in self.task.baselines if b.floor]
        known = [floor for floor in floors if floor is not None]
        if self.task.metric.better == "lower":
            return all(floor - best > self.small_loss for floor in known)
        return all(best - floor > MARGIN * (1 - floor) for floor in (0.0, *known))

    @cached_property
    def reciprocal_ranks(self) -> dict[str, float]:
        """Return 1 / rank by the mean over all longer lengths. Equal means share the mean of their ranks."""
        means = {label: statistics.fmean(by_seed.values()) for label, by_seed in self.scores.items()}
        return reciprocal_ranks(means, better=self.task.metric.better)

    def best_baseline(self, floors: bool = False) -> tuple[str, float] | None:
        """Return the baseline, or the floor, with the best score over all longer lengths, and that score."""
        baselines = [b for b in self.task.baselines if b.floor or not floors]
        scores = {b.label: baseline_over_lengths(self.task, b, "longer") for b in baselines}
        known = {label: score for label, score in scores.items() if score is not None}
        return min(known.items(), key=lambda item: self.sign * item[1], default=None)

    def worse_than(self, score: float) -> list[str]:
        """Return the encodings that have learned the task, and whose mean over all longer lengths is worse."""
        return [n for n in self.order if self.sign * statistics.fmean(self.scores[n].values()) > self.sign * score]

    @property
    def small_loss(self) -> float:
        """Return the limit for "no significant loss", in the units of the metric."""
        return margin(self.task, self.task.reference_length or self.task.train_length)

    @property
    def sign(self) -> int:
        return 1 if self.task.metric.better == "lower" else -1

    @cached_property
    def not_worse(self) -> list[str]:
        """Return the encoding with the best mean over all longer lengths, and those that are not significantly worse.

        The correction is for the comparisons with the best one. Because the same scores say which one that is, one of
        several equally good encodings is called worse with a probability above 0.05. For each of them alone it is less,
        so this list seldom lacks the encoding that is truly the best.
        """
        verdicts = self.compared_with_best(0.0)
        return [label for label in self.order if verdicts.get(label, 0) >= 0]

    @cached_property
    def as_good(self) -> list[str]:
        """Return the encoding with the best mean over all longer lengths, and those shown to be at most `limit` worse.

        Their scores plus the limit are significantly better than those of the best one (a test of non-inferiority).
        """
        verdicts = self.compared_with_best(self.limit)
        return [label for label in self.order if label == self.order[0] or verdicts[label] > 0]

    @property
    def limit(self) -> float:
        """Return the loss, in the units of the metric, up to which an encoding counts as equally good."""
        return EQUALLY_GOOD / MARGIN * self.small_loss

    def compared_with_best(self, handicap: float) -> dict[str, int]:
        """Compare all others with the best one, after its scores were made worse by `handicap` (`compare_with`)."""
        if not self.order:
            return {}
        best, *others = self.order
        reference = {seed: score + self.sign * handicap for seed, score in self.scores[best].items()}
        return compare_with(reference, {label: self.scores[label] for label in others}, self.task.metric.better)

    @cached_property
    def effective_lengths(self) -> dict[str, EffectiveLength | None]:
        return {encoding.label: encoding.effective for encoding in of_task(self.task).encodings}

    def length_text(self, label: str) -> str:
        """Return the effective length of an encoding in multiples of the training length, with its 95 % interval."""
        reason = self.reasons.get(label)
        if reason is not None or label not in self.reasons:
            return "not learned" if reason is not None else ""
        effective = self.effective_lengths[label]
        if effective is None:
            return ""
        value, low, high = (self.multiple(length) for length in (effective.value, effective.low, effective.high))
        return value if math.isnan(effective.low) or low == value == high else f"{value} ({low} to {high})"

    def multiple(self, length: float) -> str:
        """Return a length in multiples of the training length. Below the first longer evaluated one, it is a bound."""
        trained, *longer = self.task.lengths
        if math.isnan(length):
            return ""
        if math.isinf(length):
            return f"≥ {longer[-1] / trained:.3g}"
        bound = next((n for n in (trained, longer[0]) if length < n), None)
        return f"< {bound / trained:.3g}" if bound else f"{length / trained:.2f}".rstrip("0").rstrip(".")

    def best_run(self) -> BestRun:
        """Return the run with the best score at the training length and, of equal ones, beyond it."""
        runs = []
        for series in self.task.series:
            point, longer = self.point_at_training_length(series.label), overall(self.task, series, "longer")
            for seed in point.seeds if point else ():
                steps = self.runs[seed.key]["steps"]
                runs.append(BestRun(series.label, seed.seed, steps, seed.mean, longer.get(seed.seed, math.nan)))
        return min(runs, key=lambda run: (self.sign * run.at_training_length, self.sign * run.longer))

    def runs_of(self, label: str) -> list[Mapping[str, Any]]:
        """Return the runs of an encoding."""
        series = next((s for s in self.task.series if s.label == label), None)
        keys = dict.fromkeys(seed.key for point in series.points for seed in point.seeds) if series else {}
        return [self.runs[key] for key in keys]

    def steps_text(self, label: str) -> str:
        """Return the median of an encoding's training steps: `≥ 2,500` if that many runs did not end early."""
        steps = [run["steps"] for run in self.runs_of(label)]
        if not any(steps):
            return ""
        all_used = STOP in self.task.settings and statistics.median_high(steps) >= self.task.settings["training.steps"]
        return f"{'≥ ' if all_used else ''}{statistics.median(steps):,.0f}"

    def point_at_training_length(self, label: str) -> Point | None:
        """Return the scores of an encoding at the training length."""
        series = next((s for s in self.task.series if s.label == label), None)
        if series is None or self.task.reference_length is None:
            return None
        return series.point_at(self.task.reference_length)

    def mean_at_training_length(self, label: str) -> float | None:
        point = self.point_at_training_length(label)
        return None if point is None else point.mean

    def learning_text(self, label: str) -> str:
        """Return the median of the steps in which an encoding learned the task.

        For one that has not learned it: the mean score at the training length, and how many seeds reach what is needed.
        """
        point = self.point_at_training_length(label)
        if point is None:
            return ""
        if self.reasons[label] is None:
            return self.steps_text(label)
        needed = needed_of_a_seed(self.task)
        able = [s for s in point.seeds if needed is not None and reaches(self.task, s.mean, needed)]
        return f"*{point.mean:.3f}* ({len(able)} of {point.n_seeds})"

    def rate_text(self, label: str) -> str:
        """Return the learning rate of an encoding and the median of its training steps: `0.003, 850 steps`."""
        rates = dict.fromkeys(f"{run['learning_rate']:g}" for run in self.runs_of(label))
        steps = self.steps_text(label)
        return f"{' and '.join(rates)}, {steps} steps" if steps else ""

    def mean_text(self, label: str) -> str:
        """Return an encoding's mean score over all longer lengths with its 95 % interval: `0.52 [0.44, 0.59]`."""
        series = next((s for s in self.task.series if s.label == label), None)
        if series is None or self.reasons[label] is not None:
            return "" if series is None else "not learned"
        if label not in self.scores:
            return "not finite"
        interval = over_lengths(self.task, series, "longer")
        assert interval is not None, "an encoding with scores has an interval"
        return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"

    def score_text(self, label: str) -> str:
        """Return an encoding's effective length, and its mean over all longer lengths with interval and unit."""
        if label not in self.scores:
            return self.length_text(label) or "no scores"
        return f"{self.length_text(label)} ×, {self.mean_text(label)} {quantity(self.task)}"


def compare_with(reference: BySeed, others: Mapping[str, BySeed], better: str, level: float = LEVEL) -> dict[str, int]:
    """Return for each label 1 if its scores are significantly better than `reference`, −1 if worse, otherwise 0.

    The test is the paired t test over seeds, corrected by Holm's method for these comparisons. A difference that is the
    same for every seed cannot be tested and counts as significant.
    """
    comparisons: dict[str, Comparison] = {}
    for label, scores in others.items():
        for comparison in compare_all({"": reference, label: scores}, better):  # none without a common seed
            comparisons[label] = comparison
    p_values = {label: c.p for label, c in comparisons.items() if c.p is not None}
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    verdicts = dict.fromkeys(others, 0)
    for label, comparison in comparisons.items():
        is_constant = comparison.deviation == 0 and comparison.difference.mean != 0
        if is_constant or corrected.get(label, 1.0) < level:
            verdicts[label] = 1 if comparison.first == label else -1
    return verdicts


def results_of(study: str) -> list[TaskResult]:
    """Return the results of a stored study; none if it is not stored."""
    figures = stored_studies().get(study)
    return [] if figures is None else results_from(figures)


def results_from(figures: Mapping[str, Any]) -> list[TaskResult]:
    """Return the results of a study's rows. Text has the same targets at every length."""
    runs = {run["key"]: run for run in figures["runs"]}
    tasks = tasks_of(dict(figures))
    same_targets = {task.name for task in tasks if task.shifted}
    names = [panel["settings"].get("task.path") or panel["task"].partition("(")[0] for panel in figures["panels"]]
    return [
        TaskResult(*TASKS[name], with_short_labels(task), runs)
        for name, task in zip(names, tasks, strict=True)
        if task.shifted or task.name not in same_targets
    ]


def with_short_labels(task: TaskFindings) -> TaskFindings:
    """Return findings whose encodings have labels without settings, such as lengths that depend on the task."""
    return replace(task, series=tuple(replace(s, label=short(s.label)) for s in task.series))


def short(label: str) -> str:
    """Return `PI from RoPE` for `PI(factor=8.0) from RoPE`."""
    return re.sub(r"\(.*?\)", "", label)


def labels_of(results: Sequence[TaskResult]) -> list[str]:
    return list(dict.fromkeys(s.label for result in results for s in result.task.series))


def sizes(results: Sequence[TaskResult]) -> dict[str, int]:
    """Return the numbers that the pages quote."""
    seeds = [point.n_seeds for r in results for s in r.task.series for point in s.points]
    return {
        "tasks": len(results),
        "encodings": len(labels_of(results)),
        "seeds": max(seeds, default=0),
        "fewest_seeds": min(seeds, default=0),
        "runs": len({key for r in results for key in r.task.keys}),
    }


def cost_texts(label: str) -> list[str]:
    """Return the `MEASURED_COSTS` of an encoding, relative to NoPE; empty texts if they were not measured."""
    row = cost(label)
    return [""] * len(MEASURED_COSTS) if row is None else [f"{row[name]:.2f}" for name in MEASURED_COSTS]


def training_cost(label: str) -> float:
    """Return the time of a training step relative to NoPE, to sort by; infinity if it was not measured."""
    row = cost(label)
    return math.inf if row is None else float(row["training_ratio"])


def cost(label: str) -> dict[str, Any] | None:
    return next((row for row in costs() if row["encoding"] == label), None)


@cache
def costs() -> list[dict[str, Any]]:
    """Return the medians over rounds of the stored measurement, at `COST_LENGTH`."""
    answer = read(COST_FILE)
    rows = [row for row in answer.measurement.derive(answer.table, answer.origin) if row["length"] == COST_LENGTH]
    labels = dict.fromkeys(row["encoding"] for row in rows)
    return [
        {"encoding": short(label)}
        | {
            name: statistics.median(row[name] for row in rows if row["encoding"] == label and row.get(name) is not None)
            for name in MEASURED_COSTS
        }
        for label in labels
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str) -> str:
    """Return paragraphs and lists in lines of at most 120 columns. Blocks of code stay as they are."""
    parts = re.split(r"(\n\n|\n(?=- ))", text.strip())
    return "".join(part if part.startswith(("\n", "```")) else filled_block(part) for part in parts)


def filled_block(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    words = " ".join(text.split())
    return textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
