"""The overview at the top of a page: a heat map of encodings against lengths for each task."""

import math
from collections.abc import Sequence
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.report.charts.heat import heat_map

LONGEST_NAME = 24  # characters of an encoding beside a heat map


def overview(tasks: Sequence[TaskFindings]) -> list[dict[str, Any]]:
    """Return the template's data: one heat map for each task with at least two encodings and two lengths that have scores."""
    return [
        {"label": task.title, "number": number, "note": _ends(task), "chart": _map(task)}
        for number, task in enumerate(tasks)
        if len(task.series) > 1 and len(task.lengths) > 1 and _finite(task)
    ]


def _map(task: TaskFindings) -> Any:
    longest = max(task.lengths)
    worst, best = ends(task)
    ranked = task.ranked(longest)
    means = [[p.mean if (p := s.point_at(length)) is not None else math.nan for length in task.lengths] for s in ranked]
    described = (
        f"{task.title}: heat map of {task.metric_label}, {task.metric.better} is better. Rows: {len(ranked)} encodings, best at "
        f"{longest:,} {task.unit} first: {', '.join(s.label for s in ranked)}. Columns: lengths from {min(task.lengths):,} to "
        f"{longest:,}. The section of the task has all numbers in a table."
    )
    chart = heat_map(
        described,
        [[_shade(mean, worst, best) for mean in line] for line in means],
        [_short(s.label) for s in ranked],
        [f"{length:,}" for length in task.lengths],
        next((n for n, length in enumerate(task.lengths) if task.is_new(length)), len(task.lengths)),
    )
    return chart.named(
        f"{task.metric.name} by encoding and length", f"length in {task.unit}", "encoding", note=_ends(task)
    )


def ends(task: TaskFindings) -> tuple[float, float]:
    """Return the scores of the palest cell and of the one with the strongest colour.

    Shares reach from 0 to 1. Other scores reach from the best one to the worst one, or to twice the distance between the best one
    and the median, if that is nearer: one model that fails would otherwise make all others look equal.
    """
    if task.metric.share:
        return (0.0, 1.0) if task.metric.better == "higher" else (1.0, 0.0)
    means = sorted(_finite(task), reverse=task.metric.better == "higher")  # the best one first
    best, worst = means[0], means[-1]
    limit = best + 2 * (means[len(means) // 2] - best)
    return (limit if abs(limit - best) < abs(worst - best) and limit != best else worst), best


def _shade(mean: float, worst: float, best: float) -> float:
    if not math.isfinite(mean):
        return math.nan
    return 1.0 if best == worst else min(max((mean - worst) / (best - worst), 0.0), 1.0)


def _finite(task: TaskFindings) -> list[float]:
    return [point.mean for series in task.series for point in series.points if math.isfinite(point.mean)]


def _ends(task: TaskFindings) -> str:
    worst, best = ends(task)
    beyond = any((mean > worst) if worst > best else (mean < worst) for mean in _finite(task))
    return f"{task.metric_label}: pale {figure(worst)}{' or worse' if beyond else ''}, strong {figure(best)}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
