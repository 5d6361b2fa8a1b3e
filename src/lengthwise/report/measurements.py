"""The sections of measurements on the page: charts and tables, drawn from what the measurements declare."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from lengthwise.analysis.answers import Summary, in_order, numbers_table, summarize
from lengthwise.analysis.estimates import Interval
from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.numbers import figure, spread
from lengthwise.measurements import MEASUREMENTS
from lengthwise.measurements.base import Chart, Column, Excerpts, Numbers
from lengthwise.metrics import Metric
from lengthwise.report.charts import chart as charts
from lengthwise.report.charts.chart import Range, Row, averaged, curve, curve_chart, short
from lengthwise.report.charts.lines import Line, even_columns, line_chart, zero_to
from lengthwise.report.charts.scales import frame, nice_top, robust_frame, robust_top, top_of_intervals
from lengthwise.report.palette import Look
from lengthwise.values import join_names

MAX_CHARTS = 24  # of one encoding
MAX_BARS = 24  # that fit side by side on a phone; more lengths are put together
SMALL = 0.0005  # numbers below are shown with their first digits
SHOWN_EXCERPTS = 3  # of each encoding
PALE = 0.3  # opacity of the first of several lines, and of the lines of other seeds
Looks = Mapping[str, Look]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Context:
    """What the answers are about: a task, or, of answers in files, no task. `metric`: that of the task."""

    title: str
    unit: str
    metric: Metric | None = None
    metric_label: str = ""

    @staticmethod
    def of(task: TaskFindings) -> "Context":
        return Context(task.title, task.unit, task.metric, task.metric_label)


def chapters(task: TaskFindings, looks: Looks) -> list[dict[str, Any]]:
    """Return the template's data of the task's answers, by chapter, in the order of the list of measurements."""
    all_summaries = [s for name in MEASUREMENTS for s in task.answers.get(name, ())]
    return [
        {
            "title": title,
            "name": title.lower().replace(" ", "-"),
            "legend": [{"label": label, "look": looks[label]} for label in looks if label in _labels(group)],
            "sections": [section(summary, Context.of(task), looks) for summary in group],
        }
        for title, summaries in groupby(all_summaries, key=lambda summary: summary.measurement.chapter)
        for group in [list(summaries)]
    ]


def _labels(summaries: Sequence[Summary]) -> set[str]:
    return {series.label for summary in summaries for series in summary.series}


def section(summary: Summary, context: Context, looks: Looks) -> dict[str, Any]:
    """Return the template's data of one summary."""
    drawing = _Drawing(summary, context, looks)
    answers = {series.name: series.runs[0] for series in summary.series}
    return {
        "charts": [chart for declared in summary.measurement.charts if (chart := drawing.chart(declared))],
        "tables": [drawing.table(declared) for declared in summary.measurement.tables],
        "excerpts": [shown for declared in summary.measurement.excerpts if (shown := _excerpts(summary, declared))],
        "remarks": " ".join(summary.measurement.remarks(answers)),
        "one_seed": summary.one_seed,
        "facts": summary.facts,
    }


def _excerpts(summary: Summary, excerpts: Excerpts) -> dict[str, Any]:
    """Return the first of the rows of each encoding, empty without any."""
    shown = []
    for series in summary.series:
        rows = [row for run in series.runs for row in run if all(row.get(n) == v for n, v in excerpts.where.items())]
        shown += [{"label": series.label, **row} for row in sorted(rows, key=itemgetter("length"))[:SHOWN_EXCERPTS]]
    return {"title": excerpts.title, "rows": shown} if shown else {}


def sequences_text(summary: Summary, unit: str) -> str:
    """Return what was measured, such as `10 test sequences of each length (20 and 40 symbols)`."""
    wanted = summary.question.get("examples", summary.n)
    requested = f" (of {wanted} requested)" if summary.n != wanted else ""
    lengths = f"{join_names([f'{n:,}' for n in summary.lengths])} {unit}"
    of = lengths if len(summary.lengths) == 1 else f"each length ({lengths})"
    return f"{summary.n}{requested} test sequence{'s' if summary.n != 1 else ''} of {of}"


def cell(interval: Interval | str | None, column: Column) -> dict[str, str]:
    """Return a cell of a table: the mean or the text, the interval, and what the table is sorted by."""
    if interval is None:
        return {"mean": "–", "spread": "", "sort": ""}
    if isinstance(interval, str):
        return {"mean": interval, "spread": "", "sort": interval}
    if not math.isfinite(interval.mean):
        return {"mean": "not finite", "spread": "", "sort": ""}
    if column.percent:
        ends = "" if interval.basis == "none" else f"{interval.low:.1%} … {interval.high:.1%}"
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": f"{interval.mean:.6g}"}
    if column.whole and interval.basis == "none":
        return {"mean": f"{interval.mean:,.0f}", "spread": "", "sort": f"{interval.mean:.6g}"}
    ends = spread(interval)
    if ends and 0 < abs(interval.mean) < SMALL:
        ends = f"{number(interval.low)} … {number(interval.high)}"
    return {"mean": number(interval.mean), "spread": ends, "sort": f"{interval.mean:.6g}"}


def number(value: float) -> str:
    """Format a number as `figure` does, but a small one, such as 1.2e-06, with its first digits."""
    return f"{value:.1e}" if 0 < abs(value) < SMALL else figure(value)


class _Drawing:
    """Draws the charts and tables of one summary."""

    def __init__(self, summary: Summary, context: Context, looks: Looks) -> None:
        self.summary, self.context, self.looks = summary, context, looks
        self.measurement = summary.measurement
        self.texts = summary.texts() | {"sequences": sequences_text(summary, context.unit)}

    def table(self, table: Numbers) -> dict[str, Any]:
        heads, rows = numbers_table(self.summary, table)
        return {
            "title": table.title,
            "about": table.about.format(**self.texts),
            "heads": [head for head, _ in heads],
            "rows": [
                {
                    "label": row.series.label,
                    "name": row.name,
                    "look": self.looks[row.series.label],
                    "seeds": 1 if table.first_seed else len(row.series.runs),
                    "cells": [cell(i, column) for i, (_, column) in zip(row.cells, heads, strict=True)],
                }
                for row in rows
            ],
        }

    def chart(self, chart: Chart) -> dict[str, Any] | None:
        """Return the template's data of a chart, None if no row belongs to it."""
        draw = {"lines": self._lines, "curves": self._curves, "bars": self._bars}
        drawn = draw[chart.kind](chart)
        title = chart.title.format(**self.texts)
        across, upwards = self._across(chart), self._upwards(chart)
        about = {"title": title, "upwards": upwards, "across": across, "about": chart.about.format(**self.texts)}
        empty = {"colours": [], "multiples": [], "over": False, "cut": "", "interval": chart.kind == "lines"}
        return about | empty | drawn if drawn else None

    def _across(self, chart: Chart) -> str:
        return chart.across or self.measurement.column(chart.x).title

    def _upwards(self, chart: Chart) -> str:
        column, metric = self.measurement.column(chart.y), self._metric(chart)
        return column.title if metric is None else f"{self.context.metric_label}, {metric.better} is better"

    def _metric(self, chart: Chart) -> Metric | None:
        """Return the metric of the task if the chart has its scores."""
        return self.context.metric if self.measurement.column(chart.y).bounds == "metric" else None

    def _described(self, kind: str, chart: Chart, ends: str, top: str, lines: str) -> str:
        return (
            f"{self.context.title}, {chart.title.format(**self.texts)}: {kind} chart. Horizontal axis: "
            f"{self._across(chart)}, {ends}. Vertical axis: {self._upwards(chart)}, {top}. {lines}. "
            "A table below has the numbers."
        )

    # ---- lines with intervals ----------------------------------------------------------------------------------------

    def _lines(self, chart: Chart) -> dict[str, Any]:
        of_all_series = summarize(self.summary, chart.y, (chart.x,), chart.where, chart.how)
        xs = [x for (x,) in in_order(key for values in of_all_series for key in values)]
        xs = [x for x in xs if isinstance(x, int)] if chart.to_scale else xs
        if not xs:
            return {}
        ticks = [f"{x:,}" if isinstance(x, int) else str(x) for x in xs]
        columns = even_columns(ticks, chart.x if chart.x == "layer" else "")
        if chart.to_scale:
            columns = replace(columns, at=xs, low=0, high=max(xs))
        noun = self.measurement.counted if self.summary.n != 1 else self.measurement.counted.removesuffix("s")
        lines = []
        for series, values in zip(self.summary.series, of_all_series, strict=True):
            counts = f"{self.summary.n:,} {noun}" if self.summary.n else ""
            if series.seeds:
                counts = f"{len(series.runs)} seed{'s' if len(series.runs) != 1 else ''} × {counts}"
            lines.append(
                Line(series.label, self.looks[series.label], [values.get((x,)) for x in xs], counts, series.name)
            )
        metric, bottom = self._metric(chart), 0.0
        better = "lower" if metric is None else metric.better
        if metric is not None:
            top = 1.0 if metric.share else robust_top((mean for line in lines for mean in line.means), 3)
        else:
            intervals = [i for line in lines for i in line.scores if i is not None]
            bottom, top = (0.0, top_of_intervals(intervals)) if chart.from_zero else robust_frame(intervals)
        names = f"Lines: {join_names([line.name for line in lines])}"
        ends = f"from {ticks[0]} to {ticks[-1]}", f"from {bottom:g} to {top:g}"
        axis = zero_to(top) if bottom == 0 else Range("all", bottom, top)
        drawn = line_chart(self._described("line", chart, *ends, names), lines, columns, [axis], better=better)
        title, across = chart.title.format(**self.texts), self._across(chart)
        over = any(mean > axis.high for line in lines for mean in line.means)
        are_cut = any(i is not None and i.high > axis.high for line in lines for i in line.scores)
        cut = " Bands are cut at the upper edge." if are_cut else ""
        return {"chart": drawn.named(title, across, self._upwards(chart)), "over": over, "cut": cut}

    # ---- small charts ------------------------------------------------------------------------------------------------

    def _curves(self, chart: Chart) -> dict[str, Any]:
        """Return a small chart for each value of the facets. Neighbouring layers with the same lines share one."""
        facets = [name for name in chart.facet if name != "encoding"]
        places: dict[Key, dict[Key, dict[Any, float]]] = {}  # facets to lines to points
        for n, run, values in self._values(chart):
            for key, y in values.items():
                place = (n if "encoding" in chart.facet else -1, *key[: len(facets)])
                places.setdefault(place, {}).setdefault((n, run, *key[len(facets) : -1]), {})[key[-1]] = y
        shared: list[tuple[list[Key], dict[Key, dict[Any, float]]]] = []
        for place, lines in places.items():
            if facets == ["layer"] and shared and shared[-1][0][-1][0] == place[0] and shared[-1][1] == lines:
                shared[-1][0].append(place)
            else:
                shared.append(([place], lines))
        top = self._top([y for lines in places.values() for line in lines.values() for y in line.values()], chart)
        counts: dict[int, int] = {}
        multiples = []
        for same, lines in shared:
            n = same[0][0]
            counts[n] = counts.get(n, 0) + 1
            if counts[n] <= MAX_CHARTS:
                multiples.append(self._curve_chart(chart, facets, same, lines, top))
        cut = "".join(
            f" {self._label(n)}: the first {MAX_CHARTS} of {k} charts." for n, k in counts.items() if k > MAX_CHARTS
        )
        return {"multiples": multiples, "cut": cut} if multiples else {}

    def _values(self, chart: Chart) -> Iterator[tuple[int, int, Mapping[Key, float]]]:
        """Yield the number of a series, that of the run (0 for the first, and for means), and its points."""
        if chart.seeds == "each":
            for n, series in enumerate(self.summary.series):
                for number, run in reversed(list(enumerate(series.runs))):
                    yield n, number, run.combined(chart.y, chart.by, chart.where, chart.how)
            return
        first = chart.seeds == "first"
        for n, values in enumerate(
            summarize(self.summary, chart.y, chart.by, chart.where, chart.how, first_seed=first)
        ):
            yield n, 0, {key: interval.mean for key, interval in values.items()}

    def _top(self, values: Sequence[float], chart: Chart) -> float | None:
        """Return the common upper end of the axes from 0; None if each chart has its own axis."""
        if (metric := self._metric(chart)) is not None and metric.share:
            return 1.0
        return robust_top(values) if self.measurement.column(chart.y).bounds is not None else None

    def _label(self, n: int) -> str:
        return self.summary.series[n].name if n >= 0 else "all encodings"

    def _curve_chart(
        self,
        chart: Chart,
        facets: Sequence[str],
        same: Sequence[Key],
        lines: Mapping[Key, Mapping[Any, float]],
        top: float | None,
    ) -> dict[str, Any]:
        place, bottom = same[0], 0.0
        values = [y for line in lines.values() for y in line.values() if math.isfinite(y)]
        if top is None:
            bottom, top = frame(min(max(y, -chart.cut), chart.cut) for y in values)
        xs = sorted({x for line in lines.values() for x in line})
        facet_names = [_named(name, value) for name, value in zip(facets, place[1:], strict=True)]
        if len(same) > 1:
            facet_names = [f"layers {place[1]} to {same[-1][1]}"]
        name = ", ".join(([self._label(place[0])] if place[0] >= 0 else []) + facet_names)
        described = self._described(
            "line",
            chart,
            f"from {xs[0]:,} to {xs[-1]:,}",
            f"from {bottom:g} to {top:g}",
            f"{name}{'. ' if name else ''}Lines: {len(lines)}, one for each {chart.colour}"
            f"{' and seed' if chart.seeds == 'each' else ''}",
        )
        rows = self._curve_rows(chart, lines)
        looks = {row["label"]: self.looks[row["label"]] for row in rows}
        shaded = self._shaded(chart, facets, place[1:], xs)
        drawn = curve_chart(described, rows, looks, (xs[0], xs[-1]), (bottom, top), shaded=shaded)
        title = chart.title.format(**self.texts)
        title = f"{title}, {name}" if name else title
        about = {"name": name, "chart": drawn.named(title, self._across(chart), self._upwards(chart))}
        if place[0] < 0:
            return about | {"label": name}
        label = self.summary.series[place[0]].label
        return about | {"label": label, "look": self.looks[label]}

    def _curve_rows(self, chart: Chart, lines: Mapping[Key, Mapping[Any, float]]) -> list[Row]:
        """Return the rows of the lines. Those of an encoding get darker from first to last; other seeds are pale."""
        last = max(sum(run == 0 for _, run, *_ in lines) - 1, 0)
        rows: list[Row] = []
        first_seed = 0
        for number, ((n, run, *_), line) in enumerate(lines.items()):
            opacity = 1.0 if chart.colour == "encoding" else PALE
            if run == 0 and chart.colour != "encoding":
                opacity = round(PALE + (1 - PALE) * first_seed / last, 2) if last else 1.0
                first_seed += 1
            points = averaged(sorted(line.items()))
            rows += curve(self.summary.series[n].label, points, number, opacity)
        return rows

    def _shaded(
        self, chart: Chart, facets: Sequence[str], place: Sequence[Any], xs: Sequence[float]
    ) -> list[tuple[float, float]]:
        if chart.shaded is None:
            return []
        run = self.summary.series[0].runs[0]
        where = dict(zip(facets, place, strict=True))
        first, stop = (run.grid(name, **where) for name in chart.shaded)
        return [(xs[first] - 0.5, xs[stop - 1] + 0.5)]

    def _bars(self, chart: Chart) -> dict[str, Any]:
        """Return a bar chart for each encoding, or one of the first run if the bars are not of an encoding."""
        column, first = self.measurement.column(chart.y), chart.seeds == "first"
        of_all_series = summarize(self.summary, chart.y, chart.by, chart.where, chart.how, first_seed=first)
        steps = (
            summarize(self.summary, chart.steps, chart.by, chart.where) if chart.steps else [{} for _ in of_all_series]
        )
        shown_series = list(zip(self.summary.series, of_all_series, steps, strict=True))
        shown_series = shown_series if "encoding" in chart.facet else shown_series[:1]
        highest = top_of_intervals(i for _, values, more in shown_series for i in (*values.values(), *more.values()))
        xs = sorted({key[-1] for _, values, _ in shown_series for key in values})
        if not xs:
            return {}
        size = -(-(xs[-1] - xs[0] + 1) // MAX_BARS) if len(xs) > MAX_BARS else 1
        bins = list(range(xs[0], xs[-1] + 1, size)) if len(xs) > MAX_BARS else xs
        groups = list(dict.fromkeys(key[:-1] for _, values, _ in shown_series for key in values))
        names = {group: ", ".join(map(str, group)) for group in groups}
        group_looks = {name: Look(n, 0) for n, name in enumerate(names.values())}
        has_groups = chart.colour != "encoding"
        multiples = []
        for series, values, more in shown_series:
            rows: list[Row] = []
            for group, low in itertools.product(groups, bins):
                inside = [values[*group, x] for x in xs if _in_bin(x, low, size) and (*group, x) in values]
                row: Row = {"label": names[group] if has_groups else series.label, "x": f"{low:,}"}
                row["y"] = short(math.fsum(interval.mean for interval in inside))
                if not has_groups and size == 1 and inside and inside[0].basis != "none":
                    row |= {"low": short(inside[0].low), "high": short(inside[0].high)}
                rows.append(row | ({"step": short(more[low,].mean)} if (low,) in more else {}))
            top = highest if size == 1 else nice_top(max(row["y"] for row in rows))
            text = f"{top:.0%}" if column.percent else f"{top:g}"
            title = chart.title.format(**self.texts) + (f", {series.name}" if "encoding" in chart.facet else "")
            look = self.looks[series.label]
            drawn = charts.Chart(
                kind="bars",
                described=self._described(
                    "bar", chart, f"from {xs[0]} to {xs[-1]}", f"from 0 to {text}", f"Bars of {series.name}"
                ),
                rows=rows,
                looks=group_looks if has_groups else {series.label: look},
                ranges=[Range("all", 0.0, top)],
                percent=column.percent,
            ).named(title, self._across(chart), column.title)
            own = {"label": series.label, "look": look, "name": series.name} if "encoding" in chart.facet else {}
            multiples.append({"chart": drawn, "label": "", "name": ""} | own)
        return {"multiples": multiples, "colours": [(look.colour, n) for n, look in group_looks.items()] * has_groups}


def _in_bin(x: Any, low: Any, size: int) -> bool:
    return bool(low <= x < low + size) if size > 1 else bool(x == low)


def _named(name: str, value: Any) -> str:
    return f"{name} {value:,}" if isinstance(value, int) else str(value)
