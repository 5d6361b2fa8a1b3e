"""The statistics of a study's findings: one table for each statistic, with sentences where there are too few seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lengthwise.analysis.estimates import Interval
from lengthwise.analysis.findings import Findings, Series, TaskFindings
from lengthwise.analysis.ranks import Ranking, overall, ranking
from lengthwise.analysis.reading import margin
from lengthwise.analysis.statistics.area import area
from lengthwise.analysis.statistics.curves import curves, relative
from lengthwise.analysis.statistics.effective_length import EffectiveLength, effective_length
from lengthwise.analysis.statistics.interquartile import interquartile
from lengthwise.analysis.statistics.paired import Comparison, compare_all
from lengthwise.analysis.statistics.seeds import POWER, NeededSeeds, detectable_effect, needed_seeds
from lengthwise.metrics import Metric
from lengthwise.values import ConfigError, join_names

THRESHOLD = 0.8  # the share of correct answers that passes, as in `lengthwise reach`
NAMED_PAIRS = 6  # in a sentence
ENOUGH = 5  # seeds; fewer give a sentence on what they cannot show


@dataclass(frozen=True, kw_only=True)
class Options:
    """`threshold`: the score that passes (τ). None: 0.8 for shares of correct answers; otherwise a score passes if it
    is at most the report's limit for "no significant loss" worse than the same seed's score at the training length.
    `difference`: the one that seeds are counted for. None: that limit. `length`: the length at which encodings are
    compared. None: all lengths that are longer than training."""

    threshold: float | None = None
    difference: float | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ConfigError(f"--threshold must be a finite number, got {self.threshold}")
        if self.difference is not None and not (math.isfinite(self.difference) and self.difference > 0):
            raise ConfigError(f"--difference must be a finite number above 0, got {self.difference:g}")
        if self.length is not None and self.length < 1:
            raise ConfigError(f"--length must be at least 1, got {self.length}")


DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, kw_only=True)
class EncodingStatistics:
    """The effective length of an encoding and the area under its score. `seeds`: that have all of these scores."""

    label: str
    seeds: int
    effective: EffectiveLength | None
    area: Interval | None


@dataclass(frozen=True, kw_only=True)
class TaskStatistics:
    """The statistics of one task. `rule`: when a score passes, in words. `lengths`: those of the area. `where`: the
    lengths at which encodings are compared, in words. `needed`: by the two labels of a comparison, the seeds that
    `difference` needs. `notes`: sentences on what there are too few seeds for."""

    title: str
    metric: str
    better: str
    unit: str
    lengths: tuple[int, ...]
    rule: str
    encodings: tuple[EncodingStatistics, ...]
    where: str
    comparisons: tuple[Comparison, ...]
    difference: float
    needed: Mapping[tuple[str, str], NeededSeeds]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class OverTasks:
    """Statistics over all tasks with the same metric: interquartile means, and comparisons of means over the tasks."""

    metric: str
    tasks: tuple[str, ...]
    interquartile: Mapping[str, Interval]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The statistics of all tasks, those over several tasks, and mean reciprocal ranks (None for a single task)."""

    tasks: tuple[TaskStatistics, ...]
    over_tasks: tuple[OverTasks, ...]
    ranking: Ranking | None


def statistics_of(findings: Findings, options: Options = DEFAULT_OPTIONS) -> Statistics:
    """Return the statistics. Raises `ConfigError` for a length without scores, and for an impossible threshold."""
    if options.length is not None and not any(options.length in task.lengths for task in findings.tasks):
        tested = sorted({length for task in findings.tasks for length in task.lengths})
        raise ConfigError(
            f"--length must be an evaluated length, got {options.length}; evaluated: "
            f"{', '.join(map(str, tested)) or 'none'}"
        )
    outside = [task for task in findings.tasks if not _is_possible(options.threshold, task.metric)]
    if outside and len(outside) == len(findings.tasks):
        low, high = outside[0].metric.limits or (-math.inf, math.inf)
        limits = f"from {low:g} to {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise ConfigError(f"--threshold must be {limits} for {outside[0].metric.name}, got {options.threshold:g}")
    return Statistics(
        tasks=tuple(of_task(task, options) for task in findings.tasks if any(s.points for s in task.series)),
        over_tasks=over_tasks([task for task in findings.tasks if not task.shifted]),
        ranking=ranking(findings.tasks),
    )


def _is_possible(threshold: float | None, metric: Metric) -> bool:
    """Return whether scores of a metric can be equal to the threshold."""
    return threshold is None or metric.limits is None or metric.limits[0] <= threshold <= metric.limits[1]


def of_task(task: TaskFindings, options: Options = DEFAULT_OPTIONS) -> TaskStatistics:
    """Return the statistics of one task."""
    threshold, rule = _rule(task, options)
    scores = {series.label: _compared(task, series, options.length) for series in task.series}
    comparisons = compare_all(scores, task.metric.better)
    difference = options.difference or margin(task, task.reference_length or 0)
    needed_counts = [(c, needed_seeds(c.deviation, len(c.seeds), difference)) for c in comparisons]
    lengths = tuple(length for length in task.lengths if task.kind(length) != "shorter")
    kind = "longer" if task.of_kind("longer") else "trained"
    where = (
        f"{options.length:,} {task.unit}"
        if options.length
        else "all longer lengths"
        if kind == "longer"
        else "training lengths"
    )
    return TaskStatistics(
        title=task.title,
        metric=task.metric_label,
        better=task.metric.better,
        unit=task.unit,
        lengths=lengths,
        rule=rule,
        encodings=tuple(_of_series(task, series, threshold, lengths) for series in task.series),
        where=where,
        comparisons=comparisons,
        difference=difference,
        needed={(c.first, c.second): count for c, count in needed_counts if count is not None},
        notes=tuple(_notes(scores, comparisons)),
    )


def _rule(task: TaskFindings, options: Options) -> tuple[float | None, str]:
    """Return the threshold of scores, or None for one of losses, and the rule in words."""
    threshold = options.threshold if options.threshold is not None else THRESHOLD if task.metric.share else None
    if threshold is not None:
        return threshold, f"a score of at {'least' if task.metric.better == 'higher' else 'most'} {threshold:g}"
    if task.reference_length is None:
        return None, "no rule, because no training length was evaluated; set --threshold"
    limit = f"{margin(task, task.reference_length):.3g} {task.metric.unit_text(task.unit)}".strip()
    return None, f"a score at most {limit} worse than the same seed's at {task.reference_length:,} {task.unit}"


def _of_series(
    task: TaskFindings, series: Series, threshold: float | None, all_lengths: Sequence[int]
) -> EncodingStatistics:
    lengths, seed_curves = curves(task, series)
    effective = None
    if threshold is not None:
        effective = effective_length(lengths, seed_curves, threshold, task.metric)
    elif task.reference_length in lengths:
        start = lengths.index(task.reference_length)
        sign = 1 if task.metric.better == "lower" else -1
        loss = Metric(name=task.metric.name, better=task.metric.better)
        changes = [curve[start:] for curve in relative(seed_curves, start)]
        effective = effective_length(lengths[start:], changes, sign * margin(task, lengths[start]), loss)
    whole = lengths == tuple(all_lengths)  # areas over other lengths are not comparable
    return EncodingStatistics(
        label=series.label,
        seeds=len(seed_curves),
        effective=effective,
        area=area(lengths, seed_curves, task.metric) if whole else None,
    )


def _compared(task: TaskFindings, series: Series, length: int | None) -> dict[int, float]:
    """Return the score of each seed by which encodings are compared."""
    if length is None:
        return overall(task, series, "longer" if task.of_kind("longer") else "trained")
    point = series.point_at(length)
    return {s.seed: s.mean for s in point.seeds if math.isfinite(s.mean)} if point else {}


def _notes(scores: Mapping[str, Mapping[int, float]], comparisons: Sequence[Comparison]) -> list[str]:
    """Return sentences on what there are too few seeds for."""
    notes = []
    single = [label for label, values in scores.items() if len(values) == 1]
    if single:
        has = "has one seed" if len(single) == 1 else "have one seed each"
        notes.append(
            f"{join_names(single)} {has}: there is no interval between seeds, no comparison and no effect size."
        )
    counts = sorted({len(c.seeds) for c in comparisons if len(c.seeds) > 1})
    if counts and counts[0] < ENOUGH:
        notes.append(
            f"With {counts[0]} seeds, a comparison finds a difference with a probability of {100 * POWER:g} % only if "
            f"it is at least {detectable_effect(counts[0]):.1f} standard deviations of the differences, before Holm's "
            "correction; the effect sizes and the numbers of needed seeds are rough."
        )
    constant = [f"{c.first} and {c.second}" for c in comparisons if len(c.seeds) > 1 and c.p is None]
    if constant:
        listed = "; ".join(constant[:NAMED_PAIRS])
        rest = len(constant) - NAMED_PAIRS
        more = f"; and {rest:,} more pair{'s' if rest > 1 else ''}" if rest > 0 else ""
        notes.append(f"The difference is the same for every seed, so there is no test: {listed}{more}.")
    return notes


def over_tasks(tasks: Sequence[TaskFindings]) -> tuple[OverTasks, ...]:
    """Return the statistics over tasks of each metric that at least two tasks share."""
    by_metric: dict[str, list[TaskFindings]] = {}
    for task in tasks:
        if task.of_kind("longer"):
            by_metric.setdefault(task.metric_label, []).append(task)
    of_metrics = []
    for metric, group in by_metric.items():
        labels = [s.label for s in group[0].series if all(any(o.label == s.label for o in t.series) for t in group)]
        if len(group) < 2 or not labels:
            continue
        scores = {label: [_of_label(task, label) for task in group] for label in labels}
        limits = group[0].metric.limits
        means = {label: _mean_over_tasks(by_task) for label, by_task in scores.items()}
        of_metrics.append(
            OverTasks(
                metric=metric,
                tasks=tuple(task.title for task in group),
                interquartile={
                    label: interquartile([list(by_seed.values()) for by_seed in by_task], limits)
                    for label, by_task in scores.items()
                    if all(by_task)
                },
                comparisons=compare_all(means, group[0].metric.better),
            )
        )
    return tuple(of_metrics)


def _of_label(task: TaskFindings, label: str) -> dict[int, float]:
    return overall(task, next(s for s in task.series if s.label == label), "longer")


def _mean_over_tasks(by_task: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return each seed's mean over the tasks, for seeds that have a score in all of them."""
    common = set(by_task[0]).intersection(*by_task[1:])
    return {seed: math.fsum(by_seed[seed] for by_seed in by_task) / len(by_task) for seed in sorted(common)}
