"""The curves of biases, by layer and head, and the numbers of local, flat and anti-local heads."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.learned_bias.summary import KINDS, TOLERANCE, BiasSeries
from lengthwise.report.charts.scales import nice_top
from lengthwise.report.charts.small import curve_chart, ramp, shown
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, table_row

FRAME = 10.0  # nats: a key with a bias this much lower has e^-10 of the weight


def section(group: ProbeSummary[BiasSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    layers = len(group.series[0].curves)
    return {
        "query": f"{group.asked['query']:,}",
        "tolerance": f"{TOLERANCE:.0%}".replace("%", "\u00a0%"),
        "low": shown(1 - TOLERANCE),
        "high": shown(1 + TOLERANCE),
        "variation": shown(TOLERANCE),
        "multiples": [item for s in group.series for item in _charts(s, group.asked["query"], task, looks[s.label])],
        "heads": [f"layer {n + 1}" for n in range(layers)],
        "kinds": [table_row(s, looks, map(_count_cell, s.kinds)) for s in group.series],
        "relative": [table_row(s, looks, map(interval_cell, s.relative)) for s in group.series],
    }


def _charts(series: BiasSeries, query: int, task: TaskFindings, look: Look) -> list[dict[str, Any]]:
    """Return a chart for each layer with a bias; one for all of them if they share it."""
    known = [n for n, kinds in enumerate(series.kinds) if kinds is not None]
    shared = len(known) > 1 and len({series.curves[n] for n in known}) == 1
    bottom, top = frame(value for n in known for head in series.curves[n] for value in head)
    charts = []
    for layer in known[:1] if shared else known:
        where = f"layers {known[0] + 1} to {known[-1] + 1}" if shared else f"layer {layer + 1}"
        counts = _counts(series.kinds[layer] or {})
        described = (
            f"{task.title}, {series.label}, {where}: line chart of the bias for the query at position {query:,}, minus its bias "
            f"at distance 0. Horizontal axis: distance, from 0, the query itself, to {query:,}, the first key. Vertical axis: "
            f"nats, from {shown(bottom)} to {shown(top)}. One line per head, of the first seed. Heads of all seeds: {counts}. "
            "A table below has the numbers of heads of all layers."
        )
        chart = curve_chart(
            described, ramp(series.curves[layer], look), top, ("0, itself", f"{query:,}"), bottom=bottom
        )
        name = f"{series.label}, {where}"
        chart = chart.named(f"bias of {name}", "distance", "nats", note=f"heads: {counts}")
        charts.append({"label": series.label, "name": name, "look": look, "chart": chart, "note": counts})
    return charts


def frame(values: Iterable[float]) -> tuple[float, float]:
    """Return the ends of the vertical axis: around 0 and all values, but at most `FRAME` nats in each direction."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    bottom = -nice_top(min(-low, FRAME)) if low < 0 else 0.0
    top = nice_top(min(high, FRAME)) if high > 0 or bottom == 0 else 0.0
    return bottom, top


def _counts(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kinds.get(kind, 0)} {kind}" for kind in KINDS if kinds.get(kind, 0)) or "none"


def _count_cell(kinds: Mapping[str, int] | None) -> dict[str, str]:
    if kinds is None:
        return {"mean": "–", "spread": "no bias", "sort": ""}
    return {"mean": " / ".join(str(kinds[kind]) for kind in KINDS), "spread": "", "sort": str(kinds["local"])}
