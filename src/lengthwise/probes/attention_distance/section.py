"""The chart of attention distances, by layer, and their table in the terminal."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.probes.attention_distance.summary import AttentionDistanceSummary
from lengthwise.report.charts.lines import Line, even_columns, line_chart, zero_to
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.palette import Look
from lengthwise.report.sections import count_text, facts_table, sequences_text
from lengthwise.values import join_names

if TYPE_CHECKING:
    from rich.table import Table

MEASURES = {
    "jensen-shannon": "the Jensen–Shannon divergence, from 0 to ln 2",
    "published": "the published code’s divergence",
}


def section(group: AttentionDistanceSummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    top = top_of_intervals(i for s in group.series for i in s.layers)
    count = max(len(s.layers) for s in group.series)
    order = sorted(group.series, key=lambda s: (s.mean if math.isfinite(s.mean) else math.inf, s.label))
    names = [f"{s.label} (another seed)" if s.baseline else s.label for s in order]
    layers = [str(n + 1) for n in range(count)]
    described = (
        f"{task.title}: line chart of the attention distance from {group.reference} by layer. Horizontal axis: layers 1 to "
        f"{count}. Vertical axis: distance in nats, from 0 to {top:g}. Lines: {join_names(names)}. The table below has the same "
        "numbers."
    )
    lines = [
        Line(s.label, known[s.label], s.layers, count_text(s.seeds, group.n, "example"), name)
        for s, name in zip(order, names, strict=True)
    ]
    return {
        "group": group,
        "chart": line_chart(described, lines, even_columns(layers, "layer"), [zero_to(top)]),
        "measure": MEASURES.get(group.variant, group.variant),
        "sequences": sequences_text(group.n, group.examples, group.lengths, task),
        "heads": ["mean", *(f"layer {layer}" for layer in layers)],
        "series": [
            {
                "label": s.label,
                "name": name,
                "look": known[s.label],
                "seeds": s.seeds,
                "cells": [_cell(s.mean), *(_cell(i.mean, i) for i in s.layers)],
            }
            for s, name in zip(order, names, strict=True)
        ],
        "baseline": any(s.baseline for s in group.series),
        "others": any(not s.baseline for s in group.series),
        "one_seed": any(s.seeds == 1 for s in group.series),
        "facts": facts_table(group.facts),
    }


def _cell(mean: float, interval: Interval | None = None) -> dict[str, str]:
    ends = f"{nats(interval.low)} … {nats(interval.high)}" if interval and interval.basis != "none" else ""
    return {"mean": nats(mean), "sort": nats(mean), "spread": ends}


def nats(value: float) -> str:
    """Format a distance with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "not finite"


def report_table(group: AttentionDistanceSummary, task: TaskFindings) -> "Table":
    """Return a table of attention distances: the mean over all layers, the first layer and the last one."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    pairing = f"{'different seeds' if group.across else 'same seed'}, {group.variant}, in nats"
    about = f"  {pairing}\n{sequences_text(group.n, group.examples, group.lengths, task)}"
    shown = Table(
        title=Text.assemble((f"Attention distance from {group.reference}", "bold"), about),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
    )
    shown.add_column("", overflow="fold", max_width=34)
    for head in ("seeds", "all layers", "first", "last"):
        shown.add_column(head, justify="right", no_wrap=True)
    for series in group.series:
        ends = (series.mean, series.layers[0].mean, series.layers[-1].mean)
        name = f"{series.label} (another seed)" if series.baseline else series.label
        shown.add_row(Text(name), f"{series.seeds}", *map(nats, ends))
    return shown
