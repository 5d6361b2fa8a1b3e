"""The chart of attention distances, by layer, and their table in the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.probes.attention_distance.summary import AttentionDistanceSummary
from lengthwise.report.drawing import facts_table, percent, sequences_text, ticks_up_to
from lengthwise.report.palette import Look
from lengthwise.values import join_names

if TYPE_CHECKING:
    from rich.table import Table

MEASURES = {
    "jensen-shannon": "the Jensen–Shannon divergence, from 0 to ln 2",
    "published": "the published code’s divergence",
}


def section(group: AttentionDistanceSummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in s.layers if math.isfinite(i.mean)]
    ticks = ticks_up_to(max(ends, default=0.0))
    top, count = ticks[-1], max(len(s.layers) for s in group.series)
    order = sorted(group.series, key=lambda s: (s.mean if math.isfinite(s.mean) else math.inf, s.label))
    names = join_names([f"{s.label} (another seed)" if s.baseline else s.label for s in order])
    return {
        "group": group,
        "described": (
            f"{task.title}: line chart of the attention distance from {group.reference} by layer. Horizontal axis: layers 1 to "
            f"{count}. Vertical axis: distance in nats, from 0 to {top:g}. Lines: {names}. The table below has the same numbers."
        ),
        "measure": MEASURES.get(group.variant, group.variant),
        "sequences": sequences_text(group.n, group.examples, group.lengths, task),
        "ticks": [{"text": f"{tick:g}", "y": percent(1 - tick / top)} for tick in ticks],
        "layers": [{"text": str(n + 1), "x": percent((n + 0.5) / count)} for n in range(count)],
        "series": [
            {
                "label": s.label,
                "name": f"{s.label} (another seed)" if s.baseline else s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "mean": nats(s.mean),
                "cells": [_layer_cell(i) for i in s.layers],
                **_line(s.layers, top, count),
            }
            for s in order
        ],
        "baseline": any(s.baseline for s in group.series),
        "others": any(not s.baseline for s in group.series),
        "one_seed": any(s.seeds == 1 for s in group.series),
        "facts": facts_table(group.facts),
    }


def _line(layers: Sequence[Interval], top: float, count: int) -> dict[str, Any]:
    """Return the points, and the SVG paths of the means and of the band. A layer without a finite mean interrupts both."""
    points, lines, bands = [], [], []
    for segment in _finite_segments(layers):
        columns = [(percent((n + 0.5) / count), i) for n, i in segment]
        points += [{"x": x, "y": percent(1 - i.mean / top)} for x, i in columns]
        lines.append("M" + "L".join(f"{x},{percent(1 - i.mean / top)}" for x, i in columns))
        intervals = [(x, i) for x, i in columns if i.basis != "none"]
        if len(intervals) > 1:
            upper = [f"{x},{percent(1 - min(i.high / top, 1))}" for x, i in intervals]
            lower = [f"{x},{percent(1 - max(i.low / top, 0))}" for x, i in reversed(intervals)]
            bands.append("M" + "L".join([*upper, *lower]) + "Z")
    return {"points": points, "path": "".join(lines), "band": "".join(bands)}


def _finite_segments(layers: Sequence[Interval]) -> list[list[tuple[int, Interval]]]:
    """Return the maximal sequences of neighbouring layers with finite means, each layer with its number."""
    segments: list[list[tuple[int, Interval]]] = [[]]
    for n, interval in enumerate(layers):
        if math.isfinite(interval.mean):
            segments[-1].append((n, interval))
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def _layer_cell(interval: Interval) -> dict[str, str]:
    known = interval.basis != "none"
    return {"mean": nats(interval.mean), "spread": f"{nats(interval.low)} … {nats(interval.high)}" if known else ""}


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
