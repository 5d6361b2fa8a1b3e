"""The chart of the parts of logits by layer, and the tables of their shares."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.logit_parts import PARTS
from lengthwise.probes.logit_parts.summary import PartsSeries
from lengthwise.report.charts.scales import nice_top
from lengthwise.report.charts.small import bar_chart
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, sequences_text, table_row

COLOURS = ("var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)")  # of the parts


def section(group: ProbeSummary[PartsSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    layers, heads = len(group.series[0].shares), len(group.series[0].heads[0])
    sizes = [size for s in group.series for layer in s.deviations for size in layer if math.isfinite(size)]
    top = nice_top(max(sizes, default=0.0))
    return {
        "sequences": sequences_text(group, task),
        "colours": list(zip(COLOURS, PARTS, strict=True)),
        "multiples": [_chart(s, top, task, looks[s.label]) for s in group.series],
        "heads": [f"layer {n + 1}: {part}" for n in range(layers) for part in PARTS],
        "rows": [
            table_row(s, looks, (interval_cell(share, as_percent=True) for layer in s.shares for share in layer))
            for s in group.series
        ],
        "size_heads": [f"layer {n + 1}: {name}" for n in range(layers) for name in ("logit", *PARTS)],
        "sizes": [table_row(s, looks, map(_size_cell, _sizes(s))) for s in group.series],
        "head_heads": [f"{part}, head {n + 1}" for part in PARTS for n in range(heads)],
        "head_rows": [
            {**table_row(s, looks, map(_share_cell, _by_part(layer))), "name": f"{s.label}, layer {n + 1}", "seeds": 1}
            for s in group.series
            for n, layer in enumerate(s.heads)
        ],
    }


def _chart(series: PartsSeries, top: float, task: TaskFindings, look: Look) -> dict[str, Any]:
    layers = len(series.deviations)
    by_part = dict(zip(COLOURS, zip(*series.deviations, strict=True), strict=True))
    first = ", ".join(f"{part} {figure(size)}" for part, size in zip(PARTS, series.deviations[0], strict=True))
    described = (
        f"{task.title}, {series.label}: bar chart of the sizes of the parts of the attention logits. Horizontal axis: layers 1 to "
        f"{layers}. Vertical axis: standard deviation over a query's keys, from 0 to {top:g} nats. Four bars in each layer. Layer "
        f"1: {first}. A table below has all numbers."
    )
    chart = bar_chart(described, by_part, (top, f"{top:g}"), {n + 0.5: f"{n + 1}" for n in range(layers)})
    keys = dict(zip(COLOURS, PARTS, strict=True))
    chart = chart.named(
        f"words and positions in the logits, {series.label}", "layer", "standard deviation (nats)", keys=keys
    )
    return {"label": series.label, "look": look, "chart": chart, "note": f"layers 1 to {layers}"}


def _sizes(series: PartsSeries) -> list[float]:
    layers = zip(series.logit_deviations, series.deviations, strict=True)
    return [size for total, parts in layers for size in (total, *parts)]


def _by_part(heads: tuple[tuple[float, ...], ...]) -> list[float]:
    return [share for part in zip(*heads, strict=True) for share in part]


def _size_cell(size: float) -> dict[str, str]:
    return {"mean": figure(size), "spread": "", "sort": repr(size)} if math.isfinite(size) else _EMPTY


def _share_cell(share: float) -> dict[str, str]:
    return {"mean": f"{share:.1%}", "spread": "", "sort": repr(share)} if math.isfinite(share) else _EMPTY


_EMPTY = {"mean": "–", "spread": "", "sort": ""}
