"""The chart of induction: the best head of each layer."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.probes.induction.summary import InductionSummary
from lengthwise.report.charts.lines import Line, even_columns
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.palette import Look
from lengthwise.report.sections import count_text, facts_table, interval_cell, line_panel


def section(group: InductionSummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    count = max(len(s.layers) for s in group.series)
    lines = [
        Line(s.label, known[s.label], s.layers, count_text(s.seeds, group.prompts, "prompt")) for s in group.series
    ]
    return {
        "group": group,
        "uniform": {name: f"{share:.3f}" for name, share in group.uniform.items()},
        "panel": line_panel(
            "Induction heads",
            f"{task.title}, induction heads",
            "weight of the best head on the labels of earlier occurrences of the same x",
            "layer",
            lines,
            even_columns([str(n + 1) for n in range(count)], "layer"),
            top_of_intervals(i for s in group.series for i in s.layers),
            "higher",
        ),
        "layers": count,
        "rows": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "heads": s.heads,
                "cells": [interval_cell(i) for i in (s.prefix, s.nearest, *s.layers)],
            }
            for s in group.series
        ],
        "one_seed": any(s.seeds == 1 for s in group.series),
        "facts": facts_table(group.facts),
    }
