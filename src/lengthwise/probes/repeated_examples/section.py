"""The charts of scores on prompts with repeated examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.probes.repeated_examples.summary import Panel, Places, RepeatedExamplesSummary
from lengthwise.report.charts.lines import PADDING, Columns, Line, even_columns
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.charts.small import Curve, curve_chart
from lengthwise.report.palette import Look
from lengthwise.report.sections import count_text, facts_table, interval_cell, line_panel

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
    top = 1.0 if task.metric.share else robust_top(values)
    kinds = texts.kinds
    table_panels = [panel for panel in group.panels if kinds[panel.kind].column]
    return {
        "group": group,
        "texts": texts,
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
    lines = [
        Line(s.label, known[s.label], [s.scores[n] for n in columns], count_text(s.seeds, group.prompts, "prompt"))
        for s in panel.series
    ]
    if texts.to_scale:
        at, last = [int(panel.at[n]) for n in columns], group.length - 2
        marks = [f"{n:,}" for n in at]
        axis = Columns(at=at, low=0, high=last, padding=PADDING, ticks=marks, heads=[(mark, "") for mark in marks])
    else:
        axis = even_columns([_text(texts.mark, panel.at[n], panel.starts[n]) for n in columns])
    means = [mean for line in lines for mean in line.means]
    return line_panel(
        texts.title,
        f"{task.title}, {texts.title}",
        f"{task.metric_label}, {task.metric.better} is better",
        texts.below,
        lines,
        axis,
        1.0 if task.metric.share else robust_top(means, 3),
        task.metric.better,
    )


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
    described = (
        f"{task.title}, {title}: line chart of the score at each example. Horizontal axis: examples 1 to {length:,}. Vertical "
        f"axis: {task.metric_label}, from 0 to {top:g}. One line per encoding: {ends}."
    )
    lines = [Curve(means, known[label], label) for label, means in curves.series.items()]
    shaded = (curves.start, curves.stop)
    return {
        "label": title,
        "chart": curve_chart(described, lines, top, ("1", f"{length:,} examples"), shaded),
    }


def _own_table(panel: Panel, known: Mapping[str, Look]) -> dict[str, Any]:
    return {
        "heads": ["no duplicate" if at == "none" else f"{at:,}" for at in panel.at],
        "rows": [
            {"label": s.label, "look": known[s.label], "seeds": s.seeds, "cells": [interval_cell(i) for i in s.scores]}
            for s in panel.series
        ],
    }
