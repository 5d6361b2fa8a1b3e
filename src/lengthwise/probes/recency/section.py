"""The charts of recency: what the last question attends to, by layer and by head."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.recency.summary import RecencySeries
from lengthwise.report.charts.scales import robust_top
from lengthwise.report.charts.small import curve_chart, ramp
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, table_row

ABOUT = "line chart of the last question's attention weights on"


def section(group: ProbeSummary[RecencySeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    top = robust_top(weight for s in group.series for layer in s.layers for weight in layer)
    length, points, repeats = (group.asked[name] for name in ("length", "points", "repeats"))
    titles = {
        "trained": f"prompts of {group.result['train_length']:,} examples, the training length",
        "long": f"prompts of {length:,} examples",
        "repeated": f"prompts of {points:,} examples, repeated {repeats} times",
    }
    return {
        "uniform": f"{1 / (2 * length - 1):.2g}",
        "series": [
            {
                **table_row(s, looks, (interval_cell(i, as_percent=True) for i in (*s.recent, s.best))),
                "chart": curve_chart(
                    f"{task.title}, {s.label}: {ABOUT} labels. Horizontal axis: the {length:,} labels, from the farthest to the "
                    f"latest. Vertical axis: weight, from 0 to {top:g}. One line per layer. The most recent tenth has "
                    f"{_share(s.recent[0])} of the weights in layer 1 and {_share(s.recent[-1])} in the last layer.",
                    ramp(s.layers, looks[s.label]),
                    top,
                    ("0, farthest", "1, latest"),
                ).named(
                    f"what the last question attends to, {s.label}",
                    "label",
                    "attention weight",
                    note="one line for each layer; the first ones are pale",
                ),
            }
            for s in group.series
        ],
        "layers": len(group.series[0].recent),
        "heads": [
            {"title": title, "series": _heads(group, kind, title, task, looks)} for kind, title in titles.items()
        ],
    }


def _heads(
    group: ProbeSummary[RecencySeries], kind: str, title: str, task: TaskFindings, looks: Mapping[str, Look]
) -> list[dict[str, Any]]:
    """Return the charts of one kind of prompt: for each encoding, a line for each head of the last layer."""
    top = robust_top(weight for s in group.series for head in s.heads[kind] for weight in head)
    return [
        {
            "label": s.label,
            "look": looks[s.label],
            "chart": curve_chart(
                f"{task.title}, {s.label}: {ABOUT} inputs, {title}. Horizontal axis: inputs, from the farthest to the question "
                f"itself. Vertical axis: weight, from 0 to {top:g}. One line per head of the last layer. The highest weight is "
                f"{figure(max(map(max, s.heads[kind])))}.",
                ramp(s.heads[kind], looks[s.label]),
                top,
                ("0, farthest", "1, itself"),
            ).named(f"heads of the last layer, {s.label}", "input", "attention weight", note=title),
        }
        for s in group.series
    ]


def _share(interval: Interval) -> str:
    return f"{interval.mean:.0%}" if math.isfinite(interval.mean) else "unknown"
