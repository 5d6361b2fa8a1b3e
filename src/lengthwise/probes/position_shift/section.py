"""The chart of scores by position shift, and the table of differences from shift 0."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.position_shift.summary import ShiftSeries
from lengthwise.report.charts.lines import even_columns
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, line, line_panel, sequences_text, table_row
from lengthwise.values import join_names


def section(group: ProbeSummary[ShiftSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    shifts = group.result["shifts"]
    lines = [line(s, looks, s.scores, group.n, "example") for s in group.series]
    means = [mean for one in lines for mean in one.means]
    limited = [s for s in group.series if any(score is None for score in s.scores) and s.max_length is not None]
    invariant = [s for s in group.series if s.invariant]
    return {
        "panel": line_panel(
            "Score by position shift",
            f"{task.title}, score by position shift",
            f"{task.metric_label}, {task.metric.better} is better",
            "number added to all position IDs",
            lines,
            even_columns([f"{shift:,}" for shift in shifts]),
            1.0 if task.metric.share else robust_top(means, 3),
            task.metric.better,
        ),
        "sequences": sequences_text(group, task),
        "heads": ["declared", "score at 0", *(f"change at {shift:,}" for shift in shifts[1:])],
        "rows": [table_row(s, looks, _cells(s)) for s in group.series],
        "change_heads": [f"{shift:,}" for shift in shifts[1:]],
        "changes": [table_row(s, looks, map(_change_cell, s.changes[1:])) for s in group.series],
        "exact": join_names([s.label for s in invariant if s.exact]),
        "rounded": join_names([s.label for s in invariant if not s.exact]),
        "limited": join_names([f"{s.label} ({s.max_length:,} positions)" for s in limited]),
    }


def _cells(series: ShiftSeries) -> list[Mapping[str, str]]:
    declared = "invariant" if series.invariant else "not invariant"
    score, *_ = series.scores
    return [
        {"mean": declared, "spread": "", "sort": declared},
        interval_cell(score),
        *map(interval_cell, series.differences[1:]),
    ]


def _change_cell(change: float) -> dict[str, str]:
    if math.isnan(change):
        return {"mean": "–", "spread": "", "sort": ""}
    return {"mean": f"{change:.1e}" if change else "none", "spread": "", "sort": repr(change)}
