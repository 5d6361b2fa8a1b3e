"""The chart of induction: the best head of each layer."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.induction.summary import InductionSeries
from lengthwise.report.charts.lines import even_columns
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.palette import Look
from lengthwise.report.sections import interval_cell, line, line_panel, table_row


def section(group: ProbeSummary[InductionSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    layers = len(group.series[0].layers)
    return {
        "uniform": {name: f"{share:.3f}" for name, share in group.result["uniform"].items()},
        "panel": line_panel(
            "Induction heads",
            f"{task.title}, induction heads",
            "weight of the best head on the labels of earlier occurrences of the same x",
            "layer",
            [line(s, looks, s.layers, group.n, "prompt") for s in group.series],
            even_columns([str(n + 1) for n in range(layers)], "layer"),
            top_of_intervals(i for s in group.series for i in s.layers),
            "higher",
        ),
        "layers": layers,
        "rows": [table_row(s, looks, map(interval_cell, (s.prefix, s.nearest, *s.layers))) for s in group.series],
    }
