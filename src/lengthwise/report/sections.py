"""What sections of the page share: line charts with their texts, and cells of tables."""

import math
from collections.abc import Sequence
from typing import Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure, spread
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
        "chart": line_chart(described, lines, columns, [axis], better=better).named(title, below, metric),
        "over": any(mean > axis.high for line in lines for mean in line.means),
    }


def interval_cell(interval: Interval | None) -> dict[str, str]:
    """Return a cell of a table: the mean, the interval, and what the table is sorted by."""
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}
