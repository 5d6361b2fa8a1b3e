"""The overview at the top of a page: a heat map of encodings against lengths for each task."""

import math
from collections.abc import Sequence
from typing import Any

from lengthwise.analysis import Point, TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.report.charts.chart import Chart, Mark

ROW = 18  # pixels


def overview(tasks: Sequence[TaskFindings]) -> list[dict[str, Any]]:
    """Return the template's data: a heat map for each task with scores of two encodings and lengths or more."""
    return [
        {"label": task.title, "number": number, "note": _ends(task), "chart": _map(task)}
        for number, task in enumerate(tasks)
        if len(task.series) > 1 and len(task.lengths) > 1 and _finite(task)
    ]


def _map(task: TaskFindings) -> Chart:
    longest = max(task.lengths)
    worst, best = ends(task)
    ranked = task.ranked(longest)
    rows = [
        {"label": series.label, "x": f"{length:,}", "y": _strength(series.point_at(length), worst, best)}
        for series in ranked
        for length in task.lengths
    ]
    longer = next((n for n in task.lengths if task.is_new(n)), task.lengths[0])
    described = (
        f"{task.title}: heat map of {task.metric_label}, {task.metric.better} is better. Rows: {len(ranked)} "
        f"encodings, best at {longest:,} {task.unit} first: {', '.join(s.label for s in ranked)}. Columns: lengths "
        f"from {min(task.lengths):,} to "
        f"{longest:,}. The section of the task has all numbers in a table."
    )
    return Chart(
        kind="heat map",
        described=described,
        rows=rows,
        height=ROW * len(ranked),
        mark=Mark(f"{longer:,}") if longer > task.lengths[0] else None,
        title=f"{task.metric.name} by encoding and length",
        across=f"length in {task.unit}",
        upwards="encoding",
        note=_ends(task),
    )


def ends(task: TaskFindings) -> tuple[float, float]:
    """Return the scores of the palest cell and of the one with the strongest colour.

    Shares reach from 0 to 1. Other scores reach from the best one to the worst one, or to twice the distance between
    the best one and the median, if that is nearer: one model that fails would otherwise make all others look equal.
    """
    if task.metric.share:
        return (0.0, 1.0) if task.metric.better == "higher" else (1.0, 0.0)
    means = sorted(_finite(task), reverse=task.metric.better == "higher")  # the best one first
    best, worst = means[0], means[-1]
    limit = best + 2 * (means[len(means) // 2] - best)
    return (limit if abs(limit - best) < abs(worst - best) and limit != best else worst), best


def _strength(point: Point | None, worst: float, best: float) -> float | None:
    """Return how strong the colour of a score is, from 0 to 1; None without one."""
    if point is None or not math.isfinite(point.mean):
        return None
    return 1.0 if best == worst else round(min(max((point.mean - worst) / (best - worst), 0.0), 1.0), 2)


def _finite(task: TaskFindings) -> list[float]:
    return [point.mean for series in task.series for point in series.points if math.isfinite(point.mean)]


def _ends(task: TaskFindings) -> str:
    worst, best = ends(task)
    beyond = any((mean > worst) if worst > best else (mean < worst) for mean in _finite(task))
    return f"{task.metric_label}: pale {figure(worst)}{' or worse' if beyond else ''}, strong {figure(best)}"
