"""The chart of a task: score against length, with extrapolation shaded and intervals as bands."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lengthwise.analysis import Baseline, Estimate, Point, TaskFindings
from lengthwise.analysis.numbers import figure, times
from lengthwise.report.charts.chart import Chart, Mark, Range, Row, short
from lengthwise.report.charts.lines import Line, length_columns, line_chart
from lengthwise.report.palette import Look

EXTRAPOLATION = ("longer than training (extrapolation) →", "extrapolation →")
SHORT_NAMES = {  # of baselines, beside the chart, where a phone has little room
    "nearest neighbour": "1 neighbour",
    "3 nearest neighbours": "3 neighbours",
    "best constant label": "best constant",
    "constant answer": "constant",
    "most frequent value": "frequent value",
}
HEIGHT = 360


def ranges(task: TaskFindings) -> list[Range]:
    """Return the vertical axes to choose from, widest first. The page starts with `first`.

    Shares of correct answers have one range, their whole scale. Other metrics may have three: "all" contains all
    encodings and baselines. If a few encodings have far larger means, "most" contains the others: it reaches at most
    four times as far above the best mean as the upper quartile does. If not, "encodings" contains all encodings without
    baselines far above them. "best" contains the better half of the encodings. A range that leaves out little is not
    offered.
    """
    if task.metric.share:
        return [Range("all", -0.03, 1.03)]
    points = [p for s in task.series for p in s.points if math.isfinite(p.mean)]
    if not points:
        return [Range("all", 0.0, 1.0)]
    means = sorted(p.mean for p in points)
    baselines = [value for b in task.baselines for value in b.scores.values() if math.isfinite(value)]
    lowest, limits = min([means[0], *baselines]), {"all": max([means[-1], *baselines])}
    if task.metric.from_zero:
        lowest = 0.0
    if task.metric.better == "lower" and len(means) > 1:
        upper = statistics.quantiles(means, n=4, method="inclusive")[2]
        by_series = [[p.mean for p in s.points if p in points] for s in task.series]
        worst = sorted(max(means) for means in by_series if means)
        most = lowest + 4 * (upper - lowest)
        if task.metric.from_zero:  # include the scores at the shortest length, where models have seen few examples
            most = max(most, *(p.mean for p in points if p.length == task.lengths[0]))
        wide = {"encodings": means[-1]} if most >= means[-1] else {"most": most}
        candidates = wide | {"best": worst[(len(worst) - 1) // 2]}
        for name, limit in candidates.items():
            if lowest < limit and (limit - lowest) * 1.5 < min(limits.values()) - lowest:
                limits[name] = limit
    axes = [_range(name, [p for p in points if p.mean <= limit], lowest, limit) for name, limit in limits.items()]
    return [Range(axis.name, -0.03 * axis.high, axis.high) for axis in axes] if task.metric.from_zero else axes


def axis_choices(choices: list[Range], baselines: bool) -> str:
    """Return a list of what the ranges show, one item for each button."""
    texts = {
        "all": "all scores and baselines" if baselines else "all scores",
        "encodings": "the encodings without the baselines",
        "most": "most of the scores",
        "best": "the better half of the encodings",
    }
    items = [texts[choice.name] for choice in choices]
    return f"{', '.join(items[:-1])} or {items[-1]}" if len(items) > 1 else items[0]


def describe(task: TaskFindings) -> str:
    """Describe the chart for screen readers: axes, ranges, lines, and the scores at the longest length."""
    longest = max(task.lengths)
    means = [p.mean for s in task.series for p in s.points if math.isfinite(p.mean)]
    scores = f", from {figure(min(means))} to {figure(max(means))}" if means else ""
    dashed = f" Dashed lines for baselines: {', '.join(b.label for b in task.baselines)}." if task.baselines else ""
    ends = [f"{s.label} {figure(p.mean)}" for s in task.ranked(longest) if (p := s.point_at(longest)) is not None]
    last = f" Scores at {longest:,} {task.unit}, best first: {', '.join(ends)}." if ends else ""
    return (
        f"{task.title}: line chart. Horizontal axis: length in {task.unit}, from {min(task.lengths):,} to {longest:,}, "
        f"{trained(task)}. Vertical axis: {task.metric_label}, {task.metric.better} is better{scores}. "
        f"One line per encoding: {', '.join(s.label for s in task.series)}.{dashed}{last} "
        "The table below has all numbers. The left and right arrow keys move through the lengths."
    )


def first(choices: list[Range]) -> int:
    """Return the index of the range to show first: "most", "encodings", or otherwise "all"."""
    return next((n for n, choice in enumerate(choices) if choice.name in ("most", "encodings")), 0)


def _range(name: str, points: list[Point], lowest: float, limit: float) -> Range:
    """Return a range around the means. Intervals may extend it by 35 % at each end."""
    reach = max(limit - lowest, 1e-3 * abs(limit), 1e-6)
    ends = [p.interval for p in points if p.interval.basis != "none"]
    low = max(min((i.low for i in ends), default=lowest), lowest - 0.35 * reach)
    high = max(limit, min(max((i.high for i in ends), default=limit), limit + 0.35 * reach))
    pad = 0.07 * (high - low) or reach
    return Range(name, min(low, lowest) - pad, high + pad)


def score_chart(task: TaskFindings, looks: Mapping[str, Look]) -> Chart:
    """Return the chart of a task's scores."""
    choices = ranges(task)
    columns = replace(
        length_columns(task.lengths, task.unit, task.train_length),
        ticks=[[f"{n:,}", times(n / task.train_length)] for n in task.lengths],
        heads=[(f"{n:,} {task.unit}", _relation(task, n)) for n in task.lengths],
    )
    has_longer = task.is_new(max(*task.lengths, task.train_length))
    shaded: list[tuple[float, float]] = [(task.train_length, columns.high)] if has_longer else []
    shaded += [(columns.low, task.shortest)] if task.of_kind("shorter") else []
    chart = line_chart(
        describe(task),
        lines(task, looks),
        columns,
        choices,
        baselines=[row for baseline in task.baselines for row in _baseline_rows(baseline)],
        height=HEIGHT,
        start=first(choices),
        better=task.metric.better,
        shaded=shaded,
        mark=Mark(task.train_length, trained(task), EXTRAPOLATION) if has_longer else None,
    )
    across = f"length in {task.unit}, and as a multiple of the training length"
    return chart.named(f"{task.metric.name} by length", across, f"{task.metric_label}, {task.metric.better} is better")


def lines(task: TaskFindings, looks: Mapping[str, Look]) -> list[Line]:
    """Return the lines of the encodings."""
    chart_lines = []
    for series in task.series:
        points = [series.point_at(length) for length in task.lengths]
        scores, counts = [p.interval if p else None for p in points], [count_text(p) if p else "" for p in points]
        chart_lines.append(Line(series.label, looks[series.label], scores, counts))
    return chart_lines


def _baseline_rows(baseline: Baseline) -> list[Row]:
    name = SHORT_NAMES.get(baseline.label, baseline.label)
    about = {"label": baseline.label, "name": name, "baseline": baseline.kind}
    return [
        about | {"x": length, "y": short(value), "mean": figure(value)} for length, value in baseline.scores.items()
    ]


def _relation(task: TaskFindings, length: int) -> str:
    ratio = f"{times(length / task.train_length)} the training length"
    if task.is_new(length):
        return f"{ratio} (extrapolation)"
    if task.kind(length) == "shorter":
        return f"{ratio}, shorter than training"
    return "the training length" if length == task.train_length else ratio


def count_text(point: Point) -> str:
    """Return what a score is a mean of, such as `3 seeds × 512 examples`."""
    seeds = "1 seed" if point.n_seeds == 1 else f"{point.n_seeds} seeds"
    noun = example_noun(point.seeds)
    counts = {s.n for s in point.seeds}
    if len(counts) == 1:
        return f"{seeds} × {counts.pop():,} {noun}"
    return f"{seeds}, {point.n_examples:,} {noun}"


def example_noun(scores: Iterable[Estimate]) -> str:
    """Return `prompts` for scores that are stored in groups of prompts, otherwise `examples`."""
    return "prompts" if all(s.groups for s in scores) else "examples"


def trained(task: TaskFindings) -> str:
    """Return the label of the rule at the training length."""
    if task.shortest < task.train_length:
        return f"trained on {task.shortest:,}–{task.train_length:,}"
    return f"trained at {task.train_length:,}"
