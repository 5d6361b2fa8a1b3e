"""What the sections of probes share: line charts with their texts, and rows and cells of tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure, spread
from lengthwise.analysis.probe_rows import ProbeSeries, ProbeSummary
from lengthwise.report.charts.lines import Columns, Line, line_chart, zero_to
from lengthwise.report.palette import Look
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


def line(
    series: ProbeSeries,
    looks: Mapping[str, Look],
    scores: Sequence[Interval | None],
    number: int,
    noun: str,
    name: str = "",
) -> Line:
    """Return an encoding's line, whose tooltip says what a score is a mean of: `3 seeds × 64 prompts`."""
    seeds = f"{series.seeds} seed{'s' if series.seeds != 1 else ''}"
    counts = f"{seeds} × {number:,} {noun}{'s' if number != 1 else ''}"
    return Line(series.label, looks[series.label], scores, counts, name)


def table_row(series: ProbeSeries, looks: Mapping[str, Look], cells: Iterable[Mapping[str, str]]) -> dict[str, Any]:
    """Return an encoding's row of a table, for the macro `numbers`."""
    return {"label": series.label, "look": looks[series.label], "seeds": series.seeds, "cells": list(cells)}


def interval_cell(interval: Interval | None, *, as_percent: bool = False) -> dict[str, str]:
    """Return a cell of a table: the mean, the interval, and what the table is sorted by. `as_percent`: with one decimal."""
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    if as_percent:
        known = interval.basis != "none"
        ends = f"{interval.low:.1%} … {interval.high:.1%}" if known else ""
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": repr(interval.mean)}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}


def sequences_text(summary: ProbeSummary[Any], task: TaskFindings) -> str:
    """Return what a probe measured: `10 test sequences of 20 symbols`, `10 test sequences of each length (20 and 40 symbols)`."""
    requested = f" (of {summary.asked['examples']} requested)" if summary.n != summary.asked["examples"] else ""
    lengths = f"{join_names([f'{n:,}' for n in summary.lengths])} {task.unit}"
    of = lengths if len(summary.lengths) == 1 else f"each length ({lengths})"
    return f"{summary.n}{requested} test sequence{'s' if summary.n != 1 else ''} of {of}"
