"""The charts of recency: what the last question attends to, by layer and by head."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure
from lengthwise.probes.recency.summary import RecencySummary
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.charts.small import curve_chart, ramp
from lengthwise.report.palette import Look
from lengthwise.report.sections import facts_table, interval_cell

KINDS = ("trained", "long", "repeated")  # of prompts


def section(group: RecencySummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    top = robust_top(weight for s in group.series for layer in s.layers for weight in layer)
    return {
        "group": group,
        "uniform": f"{1 / (2 * group.length - 1):.2g}",
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "chart": curve_chart(
                    f"{task.title}, {s.label}: line chart of the last question's attention weights on labels. Horizontal axis: the "
                    f"{group.length:,} labels, from the farthest to the latest. Vertical axis: weight, from 0 to {top:g}. One line "
                    f"per layer. The most recent tenth has {_share(s.recent[0])} of the weights in layer 1 and "
                    f"{_share(s.recent[-1])} in the last layer.",
                    ramp(s.layers, known[s.label]),
                    top,
                    ("0, farthest", "1, latest"),
                ),
                "cells": [interval_cell(i, as_percent=True) for i in (*s.recent, s.best)],
            }
            for s in group.series
        ],
        "layers": max(len(s.recent) for s in group.series),
        "heads": [_heads(group, kind, task, known) for kind in KINDS],
        "facts": facts_table(group.facts),
    }


def _heads(group: RecencySummary, kind: str, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the charts of one kind of prompt: for each encoding, a line for each head of the last layer."""
    top = robust_top(weight for s in group.series for head in s.heads[kind] for weight in head)
    titles = {
        "trained": f"prompts of {group.trained:,} examples, the training length",
        "long": f"prompts of {group.length:,} examples",
        "repeated": f"prompts of {group.points:,} examples, repeated {group.repeats} times",
    }
    return {
        "title": titles[kind],
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "chart": curve_chart(
                    f"{task.title}, {s.label}: line chart of the last question's attention weights on inputs, {titles[kind]}. "
                    f"Horizontal axis: inputs, from the farthest to the question itself. Vertical axis: weight, from 0 to {top:g}. "
                    f"One line per head of the last layer. The highest weight is {figure(max(map(max, s.heads[kind])))}.",
                    ramp(s.heads[kind], known[s.label]),
                    top,
                    ("0, farthest", "1, itself"),
                ),
            }
            for s in group.series
        ],
    }


def _share(interval: Interval) -> str:
    return f"{interval.mean:.0%}" if math.isfinite(interval.mean) else "unknown"
