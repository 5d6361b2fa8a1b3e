"""Runs of any studies side by side: their scores by length, their curves, and how their configurations differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.differences import flat, plain
from lengthwise.analysis.estimates import Estimate, Interval, interval_of
from lengthwise.analysis.gather import metric_of
from lengthwise.analysis.numbers import figure
from lengthwise.analysis.protocol import canonical
from lengthwise.measurements import Table
from lengthwise.metrics import Metric
from lengthwise.report.charts.chart import Chart, Range, curve, curve_chart
from lengthwise.report.charts.lines import Line, length_columns, line_chart
from lengthwise.report.charts.scales import frame
from lengthwise.report.palette import Look, looks
from lengthwise.store import Activity, RunRow, ScoreRow

MOST = 20  # runs side by side
CURVE_HEIGHT = 220  # pixels
SCORES_HEIGHT = 320


@dataclass(frozen=True)
class Named:
    """A run with the name and the look that it has in all charts and tables of a page."""

    key: str
    name: str
    look: Look


def named(runs: Sequence[RunRow | Activity]) -> list[Named]:
    """Return the runs with different names: encoding and seed, and the task or else the key where needed."""
    tasks = len({run.task for run in runs}) > 1
    names = [", ".join([run.label, *([run.task] if tasks else []), f"seed {run.seed}"]) for run in runs]
    names = [
        f"{name} ({run.key[:8]})" if names.count(name) > 1 else name for name, run in zip(names, runs, strict=True)
    ]
    looks_by_name = looks(names)
    return [Named(run.key, name, looks_by_name[name]) for name, run in zip(names, runs, strict=True)]


def curves_chart(runs: Sequence[Named], curves: Mapping[str, Table]) -> Chart | None:
    """Return the chart of the training losses, or None if there is no loss yet."""
    rows = [
        row
        for run in runs
        if (points := curves.get(run.key))
        for row in curve(run.name, list(zip(points.column("step"), points.column("loss"), strict=True)))
    ]
    if not rows:
        return None
    bottom, top = frame(row["y"] for row in rows)
    last = max(row["x"] for row in rows)
    looks = {run.name: run.look for run in runs if any(row["label"] == run.name for row in rows)}
    described = (
        f"Line chart of the training loss. Horizontal axis: steps 0 to {last:,}. Vertical axis: from {bottom:g} to "
        f"{top:g} nats per scored token. One line for each of {len(looks)} runs."
    )
    return curve_chart(described, rows, looks, (0, last), (bottom, top), unit=" steps", height=CURVE_HEIGHT)


def score_groups(runs: Sequence[RunRow], names: Sequence[Named], scores: Sequence[ScoreRow]) -> list[dict[str, Any]]:
    """Return the template's data: a chart and a table for each question, since only equal ones may be compared."""
    by_key = {run.key: run for run in runs}
    groups: dict[str, dict[str, dict[int, ScoreRow]]] = {}
    titles: dict[str, str] = {}
    for score in scores:
        run = by_key[score.key]
        question = {name: value for name, value in score.question.items() if name != "length"}
        identity = canonical([run.metric, run.better, run.unit, question])
        described = ", ".join(f"{name} {plain(value)}" for name, value in flat(question).items())
        titles[identity] = f"{run.metric}, {run.better} is better" + (f" · {described}" if described else "")
        groups.setdefault(identity, {}).setdefault(score.key, {})[score.length] = score
    return [_score_group(titles[identity], scores_by_run, by_key, names) for identity, scores_by_run in groups.items()]


def _interval(score: ScoreRow, metric: Metric) -> Interval:
    estimate = Estimate(mean=score.mean, standard_error=score.standard_error, n=score.n)
    return interval_of([estimate], metric.limits, share=metric.share)


def _score_group(
    title: str,
    scores_by_run: Mapping[str, Mapping[int, ScoreRow]],
    by_key: Mapping[str, RunRow],
    names: Sequence[Named],
) -> dict[str, Any]:
    present = [name for name in names if name.key in scores_by_run]
    first = by_key[present[0].key]
    metric = metric_of(first)
    lengths = sorted({length for by_length in scores_by_run.values() for length in by_length})
    lines = []
    for name in present:
        by_length = scores_by_run[name.key]
        intervals = [_interval(by_length[n], metric) if n in by_length else None for n in lengths]
        lines.append(
            Line(name.name, name.look, intervals, [f"n = {s.n:,}" if (s := by_length.get(n)) else "" for n in lengths])
        )
    means = [mean for line in lines for mean in line.means]
    chart = None
    if means:
        low, high = (0.0, 1.0) if metric.share else frame(means)
        pad = 0.03 * (high - low)
        columns = length_columns(lengths, first.unit)
        described = (
            f"Line chart of the scores. Horizontal axis: length in {first.unit}, from {lengths[0]:,} to "
            f"{lengths[-1]:,}. Vertical axis: {first.metric}. One line for each of {len(lines)} runs. The table below "
            "has all numbers."
        )
        axis = [Range("all", low - pad, high + pad)]
        chart = line_chart(described, lines, columns, axis, better=first.better, height=SCORES_HEIGHT)
    return {
        "title": title,
        "unit": first.unit,
        "chart": chart,
        "runs": present,
        "lengths": [f"{n:,}" for n in lengths],
        "rows": [
            {
                "run": name,
                "cells": [
                    {"text": figure(s.mean), "title": f"standard error {figure(s.standard_error)}, n = {s.n:,}"}
                    if (s := scores_by_run[name.key].get(n)) is not None
                    else {"text": "–", "title": "no score yet"}
                    for n in lengths
                ],
            }
            for name in present
        ],
    }


def setting_differences(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return the settings in which some runs differ, flat, with each run's value (“–” where it has none)."""
    flattened = [flat(one) for one in settings]
    differing = []
    for name in dict.fromkeys(name for one in flattened for name in one):
        values = [plain(one[name]) if name in one else "–" for one in flattened]
        if len(set(values)) > 1:
            differing.append((name, values))
    return differing
