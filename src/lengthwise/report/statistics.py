"""The section of a task's statistics, and the one of statistics over several tasks."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis import Findings, Interval, TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.analysis.statistics import Comparison, of_task
from lengthwise.analysis.statistics.seeds import NeededSeeds
from lengthwise.analysis.statistics.study import over_tasks
from lengthwise.report.palette import Look

Cell = dict[str, str]
PAIRS = 24  # of encodings that are shown without JavaScript
EMPTY: Cell = {"mean": "–", "spread": "", "sort": ""}


def statistics_section(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if it has no scores."""
    if not any(series.points for series in task.series):
        return None
    task_statistics = of_task(task)
    rows = []
    for row in task_statistics.encodings:
        effective: Cell = EMPTY
        if row.effective is not None:
            mean = row.effective.text
            effective = {
                "mean": mean,
                "spread": row.effective.interval_text,
                "sort": f"{min(row.effective.value, 1e15):.6g}",
            }
        rows.append(
            {
                "label": row.label,
                "look": looks[row.label],
                "seeds": row.seeds,
                "cells": [effective, _interval_cell(row.area)],
            }
        )
    return {
        "heads": [f"effective length ({task.unit})", "area under the score"],
        "rows": rows,
        "rule": task_statistics.rule,
        "where": f"mean score over {task_statistics.where}"
        if "lengths" in task_statistics.where
        else f"score at {task_statistics.where}",
        "comparisons": _pairs(
            [_comparison(c, task_statistics.needed.get((c.first, c.second))) for c in task_statistics.comparisons]
        ),
        "difference": f"{task_statistics.difference:.3g}",
        "notes": task_statistics.notes,
    }


def over_tasks_sections(findings: Findings, looks: Mapping[str, Look]) -> list[dict[str, Any]]:
    """Return the template's data of the statistics over tasks, for each metric that two tasks or more share."""
    return [
        {
            "metric": group.metric,
            "tasks": group.tasks,
            "rows": [
                {"label": label, "look": looks[label], "cell": _interval_cell(interval)}
                for label, interval in group.interquartile.items()
            ],
            "comparisons": _pairs([_comparison(c, None, needs_seeds=False) for c in group.comparisons]),
        }
        for group in over_tasks([task for task in findings.tasks if not task.shifted])
    ]


def _pairs(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows in the page's text, and the compressed `rest`: twenty encodings have 190 pairs."""
    rest = [
        [row["first"], row["second"], row["resolved"], [[c["sort"], c["mean"], c["spread"]] for c in row["cells"]]]
        for row in rows[PAIRS:]
    ]
    return {"shown": rows[:PAIRS], "rest": rest, "count": len(rows)}


def _comparison(c: Comparison, needed: NeededSeeds | None, needs_seeds: bool = True) -> dict[str, Any]:
    """Return a row of the table of pairs. `needs_seeds`: whether its last cell has the needed seeds."""
    effect, ends = c.effect, c.effect_interval
    cells: list[Cell] = [
        {"mean": str(len(c.seeds)), "spread": "", "sort": str(len(c.seeds))},
        _interval_cell(c.difference),
        {"mean": "–", "spread": "no test", "sort": ""}
        if c.p_holm is None or c.p is None
        else {"mean": _p(c.p_holm), "spread": f"alone {_p(c.p)}", "sort": f"{c.p_holm:.6g}"},
        EMPTY
        if effect is None or ends is None
        else {"mean": f"{effect:.2f}", "spread": f"{ends[0]:.2f} … {ends[1]:.2f}", "sort": f"{effect:.6g}"},
    ]
    if needs_seeds:
        cells.append(
            EMPTY
            if needed is None
            else {
                "mean": _count(needed.seeds),
                "spread": f"{_count(needed.low)} … {_count(needed.high)}",
                "sort": str(needed.seeds or 10**9),
            }
        )
    return {"first": c.first, "second": c.second, "resolved": c.resolved, "cells": cells}


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _count(seeds: int | None) -> str:
    return "> 100,000" if seeds is None else f"{seeds:,}"


def _interval_cell(interval: Interval | None) -> Cell:
    """Return a mean with its interval over seeds. One over examples says nothing about seeds and is not shown."""
    if interval is None or not math.isfinite(interval.mean):
        return EMPTY
    over_seeds = interval.basis in ("seeds", "seeds and prompts")
    spread = f"{figure(interval.low)} … {figure(interval.high)}" if over_seeds else "one seed: no interval"
    return {"mean": figure(interval.mean), "spread": spread, "sort": f"{interval.mean:.6g}"}
