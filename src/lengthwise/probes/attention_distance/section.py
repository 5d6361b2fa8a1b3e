"""The chart of attention distances, by layer, and their table in the terminal."""

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.probes.attention_distance.summary import AttentionDistanceSummary
from lengthwise.report.charts.lines import even_columns, line_chart, zero_to
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.palette import Look
from lengthwise.report.sections import line, sequences_text, table_row
from lengthwise.report.terminal import empty_table
from lengthwise.values import join_names

MEASURES = {
    "jensen-shannon": "the Jensen–Shannon divergence, from 0 to ln 2",
    "published": "the published code’s divergence",
}


def section(group: AttentionDistanceSummary, task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    top = top_of_intervals(i for s in group.series for i in s.layers)
    order = sorted(group.series, key=lambda s: (s.mean if math.isfinite(s.mean) else math.inf, s.label))
    layers = [str(n + 1) for n in range(len(order[0].layers))]
    described = (
        f"{task.title}: line chart of the attention distance from {group.reference} by layer. Horizontal axis: layers 1 to "
        f"{len(layers)}. Vertical axis: distance in nats, from 0 to {top:g}. Lines: {join_names([s.name for s in order])}. The "
        "table below has the same numbers."
    )
    lines = [line(s, looks, s.layers, group.n, "example", s.name) for s in order]
    chart = line_chart(described, lines, even_columns(layers, "layer"), [zero_to(top)])
    return {
        "chart": chart.named(f"distance from {group.reference}’s attention", "layer", "distance (nats)"),
        "measure": MEASURES.get(group.asked["variant"], group.asked["variant"]),
        "sequences": sequences_text(group, task),
        "heads": ["mean", *(f"layer {layer}" for layer in layers)],
        "series": [
            {**table_row(s, looks, [_cell(s.mean), *(_cell(i.mean, i) for i in s.layers)]), "name": s.name}
            for s in order
        ],
        "baseline": any(s.baseline for s in group.series),
        "others": any(not s.baseline for s in group.series),
    }


def _cell(mean: float, interval: Interval | None = None) -> dict[str, str]:
    ends = f"{nats(interval.low)} … {nats(interval.high)}" if interval and interval.basis != "none" else ""
    return {"mean": nats(mean), "sort": nats(mean), "spread": ends}


def nats(value: float) -> str:
    """Format a distance with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "not finite"


def report_table(group: AttentionDistanceSummary, task: TaskFindings) -> Table:
    """Return a table of attention distances: the mean over all layers, the first layer and the last one."""
    pairing = f"{'different seeds' if group.across else 'same seed'}, {group.asked['variant']}, in nats"
    about = f"  {pairing}\n{sequences_text(group, task)}"
    title = Text.assemble((f"Attention distance from {group.reference}", "bold"), about)
    shown = empty_table(("seeds", "all layers", "first", "last"), title, width=34)
    for series in group.series:
        ends = (series.mean, series.layers[0].mean, series.layers[-1].mean)
        shown.add_row(Text(series.name), f"{series.seeds}", *map(nats, ends))
    return shown
