"""The charts of developments: a quantity's values by training step, the first seed's lines in full colour."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.development import layers_text
from lengthwise.probes.development.summary import DevelopmentSeries, QuantitySeries
from lengthwise.report.charts.scales import frame
from lengthwise.report.charts.small import Curve, curve_chart, ramp, shown
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, table_row

PALE = 0.3  # opacity of the lines of other seeds
MAX_CHARTS = 24  # of one encoding


def section(group: ProbeSummary[DevelopmentSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    charts = {s.label: _charts(s, task, looks[s.label]) for s in group.series}
    return {
        "multiples": [chart for of_series in charts.values() for chart in of_series[:MAX_CHARTS]],
        "cut": [(label, len(found)) for label, found in charts.items() if len(found) > MAX_CHARTS],
        "most": MAX_CHARTS,
        "tables": any(len(quantity.shape) == 2 for s in group.series for quantity in s.quantities),
        "heads": ["before training", "after training", "change"],
        "rows": [
            {
                **table_row(s, looks, map(interval_cell, (quantity.first, quantity.last, quantity.change))),
                "name": f"{s.label}, {_title(quantity)}",
            }
            for s in group.series
            for quantity in s.quantities
        ],
    }


def _title(quantity: QuantitySeries) -> str:
    return f"{quantity.name}, {layers_text(quantity.layers)}"


def _charts(series: DevelopmentSeries, task: TaskFindings, look: Look) -> list[dict[str, Any]]:
    """Return a chart for each quantity; one for each head of a table."""
    charts = []
    for quantity in series.quantities:
        title, seeds = _title(quantity), quantity.values
        if len(quantity.shape) == 2:
            heads, entries = quantity.shape
            for head in range(heads):
                lines = seeds[0][head * entries : (head + 1) * entries]
                of_lines = f"one line for each of {entries} entries, of the first seed"
                charts.append(_chart(series, f"{title}, head {head + 1}", of_lines, ramp(lines, look), task, look))
            continue
        others = [Curve(line, look, opacity=PALE) for of_seed in seeds[1:] for line in of_seed]
        of_lines = f"one line for each of {len(seeds[0])} heads" if quantity.shape else "one line"
        of_lines += f" and each of {len(seeds)} seeds" if len(seeds) > 1 else ""
        charts.append(_chart(series, title, of_lines, [*others, *ramp_of_heads(seeds[0], look)], task, look))
    return charts


def ramp_of_heads(lines: Sequence[Sequence[float]], look: Look) -> list[Curve]:
    """Return the lines of the first seed: one in full colour, or those of the heads with rising opacity."""
    if len(lines) == 1:
        return [Curve(lines[0], look)]
    count = len(lines) - 1
    return [Curve(line, look, opacity=round(0.55 + 0.45 * n / count, 2)) for n, line in enumerate(lines)]


def _chart(
    series: DevelopmentSeries, title: str, lines: str, curves: Sequence[Curve], task: TaskFindings, look: Look
) -> dict[str, Any]:
    bottom, top = frame(value for curve in curves for value in curve.values)
    described = (
        f"{task.title}, {series.label}: line chart of {title} by training step. Horizontal axis: steps 0 to {series.steps[-1]:,}. "
        f"Vertical axis: from {shown(bottom)} to {shown(top)}. Lines: {lines}. The table below has the means "
        "before and after training."
    )
    chart = curve_chart(described, curves, top, ("0", f"{series.steps[-1]:,} steps"), bottom=bottom)
    chart = chart.named(f"{title}, {series.label}", "step", title, note=lines)
    return {"label": series.label, "name": f"{series.label}: {title}", "look": look, "chart": chart}
