"""What the sections of probes share: line charts with their texts, cells of tables, and the origin of numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure, spread
from lengthwise.report import provenance
from lengthwise.report.charts.lines import Columns, Line, line_chart, zero_to
from lengthwise.values import join_names


def line_panel(
    title: str, about: str, metric: str, below: str, lines: Sequence[Line], columns: Columns, top: float, better: str
) -> dict[str, Any]:
    """Return a line chart from 0 to `top` with its texts, for the macro `panel`. `about`: its title for screen readers.

    `below`: what the columns are. `better`: "lower" or "higher".
    """
    ends = f"from {columns.ticks[0]} to {columns.ticks[-1]}" if columns.ticks else "empty"
    described = (
        f"{about}: line chart. Horizontal axis: {below}, {ends}. Vertical axis: {metric}, from 0 to {top:g}. "
        f"Lines: {join_names([line.label for line in lines])}. A table below has the same numbers."
    )
    axis = zero_to(top)
    return {
        "title": title,
        "metric": metric,
        "below": below,
        "chart": line_chart(described, lines, columns, [axis], better=better),
        "over": any(mean > axis.high for line in lines for mean in line.means),
    }


def count_text(seeds: int, number: int, noun: str) -> str:
    """Return what a score is a mean of: `3 seeds × 64 prompts`."""
    return f"{seeds} seed{'s' if seeds != 1 else ''} × {number:,} {noun}{'s' if number != 1 else ''}"


def interval_cell(interval: Interval | None, *, as_percent: bool = False) -> dict[str, str]:
    """Return a cell of a table: the mean, the interval, and what the table is sorted by. `as_percent`: with one decimal."""
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    if as_percent:
        known = interval.basis != "none"
        ends = f"{interval.low:.1%} … {interval.high:.1%}" if known else ""
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": repr(interval.mean)}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}


def sequences_text(count: int, requested: int, lengths: Sequence[int], task: TaskFindings) -> str:
    """Return what a probe measured: `10 test sequences of 20 symbols`, `10 test sequences of each length (20 and 40 symbols)`."""
    sequences = f"test sequence{'s' if count != 1 else ''} of"
    measured = f"{join_names([f'{n:,}' for n in lengths])} {task.unit}"
    measured = measured if len(lengths) == 1 else f"each length ({measured})"
    return f"{count}{f' (of {requested} requested)' if count != requested else ''} {sequences} {measured}"


def facts_table(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the origin of numbers as names and values."""
    return [(provenance.readable(name), provenance.value_text(value)) for name, value in facts.items()]
