"""The chart and the table of scores by position."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis import TaskFindings
from lengthwise.report.charts.lines import Line, even_columns
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, line_panel


def position_scores(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if no scores by position are stored."""
    if (found := task.position_scores) is None:
        return None
    names = [f"{first:,}" if first == last else f"{first:,}–{last:,}" for first, last in found.ranges]
    seeds = {s.label: f"{s.seeds} seed{'s' if s.seeds != 1 else ''}" for s in found.series}
    lines = [
        Line(s.label, looks[s.label], s.scores, [f"{seeds[s.label]} × {n:,} targets" for n in found.targets])
        for s in found.series
    ]
    return {
        "length": f"{found.length:,}",
        "panel": line_panel(
            f"Pieces with {found.length:,} {task.unit}",
            f"{task.title}, score by position at length {found.length:,}",
            f"{task.metric_label}, {task.metric.better} is better",
            f"{task.unit} before the target",
            lines,
            even_columns(names),
            robust_top((mean for line in lines for mean in line.means), 3),
            task.metric.better,
        ),
        "heads": names,
        "rows": [
            {"label": s.label, "look": looks[s.label], "seeds": s.seeds, "cells": list(map(interval_cell, s.scores))}
            for s in found.series
        ],
    }
