"""The charts of scores on prompts with repeated examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.probes.repeated_examples.summary import Panel, Places, RepeatedExamplesSummary
from lengthwise.report.drawing import (
    Line,
    described_lines,
    facts_table,
    interval_cell,
    percent,
    plane,
    smooth_path,
    top_tick,
)
from lengthwise.report.palette import Look

POSITIONS = {"begin": "at the beginning", "middle": "in the middle", "end": "at the end"}


@dataclass(frozen=True, kw_only=True)
class KindTexts:
    """What the section says about prompts of one kind.

    In a text, {at} is what differs between the prompts, {where} the same as a place, and {start} the number of the first scored
    example. `title` and `below`: of the chart of scores, and its horizontal axis; without a title, there is no chart. `mark`: of a
    prompt on this axis. `to_scale`: whether it is an axis of numbers. `curve`: the title of the chart of the scores at each
    example; without it, there is no such chart. `column`: of the table; without it, the prompts have a table of their own.
    """

    title: str = ""
    below: str = ""
    mark: str = "{at}"
    to_scale: bool = False
    curve: str = ""
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What the section of a probe says: its `title`, an `explanation` of the prompts, and the texts for each kind of prompt."""

    title: str
    explanation: str
    kinds: Mapping[str, KindTexts]


def section(
    group: RepeatedExamplesSummary, texts: Texts, task: TaskFindings, known: Mapping[str, Look]
) -> dict[str, Any]:
    """Return the template's data for one question."""
    values = [value for curves in group.places for line in curves.series.values() for value in line]
    top = 1.0 if task.metric.share else top_tick(values)
    kinds = texts.kinds
    table_panels = [panel for panel in group.panels if kinds[panel.kind].column]
    return {
        "group": group,
        "texts": texts,
        "top": f"{top:g}",
        "panels": [
            _panel(panel, kinds[panel.kind], group, task, known) for panel in group.panels if kinds[panel.kind].title
        ],
        "curves": [
            _curves(curves, kinds[curves.kind], task, known, top) for curves in group.places if kinds[curves.kind].curve
        ],
        "heads": [
            _text(kinds[panel.kind].column, at, start)
            for panel in table_panels
            for at, start in zip(panel.at, panel.starts, strict=True)
        ],
        "rows": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "cells": [interval_cell(i) for panel in table_panels for i in panel.series[n].scores],
            }
            for n, s in enumerate(table_panels[0].series)
        ],
        "own_tables": [_own_table(panel, known) for panel in group.panels if not kinds[panel.kind].column],
        "one_seed": any(s.seeds == 1 for panel in group.panels for s in panel.series),
        "facts": facts_table(group.facts),
    }


def _text(text: str, at: int | str, start: int) -> str:
    return text.format(at=at, where=POSITIONS.get(str(at), ""), start=f"{start + 1:,}")


def _panel(
    panel: Panel, texts: KindTexts, group: RepeatedExamplesSummary, task: TaskFindings, known: Mapping[str, Look]
) -> dict[str, Any]:
    """Return the chart of the scores on the prompts of one kind."""
    columns = [n for n, value in enumerate(panel.at) if value != "none"]
    lines: list[Line] = [(s.label, [s.scores[n] for n in columns]) for s in panel.series]
    if texts.to_scale:
        last = group.length - 2
        xs = [2 + 96 * int(panel.at[n]) / last for n in columns]
        marks = [
            {"text": f"{n:,}", "x": percent((2 + 96 * n / last) / 100)}
            for n in _some_of([int(panel.at[m]) for m in columns])
        ]
    else:
        xs = [100 * (n + 0.5) / len(columns) for n in range(len(columns))]
        names = [_text(texts.mark, panel.at[n], panel.starts[n]) for n in columns]
        marks = [{"text": name, "x": percent(x / 100)} for name, x in zip(names, xs, strict=True)]
    metric = f"{task.metric_label}, {task.metric.better} is better"
    drawn = plane(lines, xs, known, highest=1.0 if task.metric.share else None)
    return {
        "title": texts.title,
        "below": texts.below,
        "metric": metric,
        **drawn,
        "marks": marks,
        "described": described_lines(f"{task.title}, {texts.title}", texts.below, marks, metric, drawn),
    }


def _some_of(values: Sequence[int]) -> list[int]:
    """Return at most five of the values, with the first and the last."""
    count = min(5, len(values))
    return [values[round(n * (len(values) - 1) / max(1, count - 1))] for n in range(count)]


def _curves(
    curves: Places, texts: KindTexts, task: TaskFindings, known: Mapping[str, Look], top: float
) -> dict[str, Any]:
    """Return the chart of the scores at every example of one prompt."""
    length = len(next(iter(curves.series.values())))
    title = _text(texts.curve, curves.at, curves.start)
    ends = "; ".join(
        f"{label} {figure(means[0])} at the first, {figure(means[-1])} at the last"
        for label, means in curves.series.items()
    )
    return {
        "title": title,
        "length": f"{length:,}",
        "x": percent(curves.start / length),
        "width": percent((curves.stop - curves.start) / length),
        "lines": [
            {"label": label, "look": known[label], "path": smooth_path(m, top)} for label, m in curves.series.items()
        ],
        "described": (
            f"{task.title}, {title}: line chart of the score at each example. Horizontal axis: examples 1 to {length:,}. Vertical "
            f"axis: {task.metric_label}, from 0 to {top:g}. One line per encoding: {ends}."
        ),
    }


def _own_table(panel: Panel, known: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "heads": ["no duplicate" if at == "none" else f"{at:,}" for at in panel.at],
        "rows": [
            {"label": s.label, "look": known[s.label], "seeds": s.seeds, "cells": [interval_cell(i) for i in s.scores]}
            for s in panel.series
        ],
    }
