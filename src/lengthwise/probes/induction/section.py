"""The chart of induction: the best head of each layer."""

import math
from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.probes.induction.summary import InductionSummary
from lengthwise.report.drawing import described_lines, facts_table, interval_cell, percent, plane
from lengthwise.report.palette import Look


def section(group: InductionSummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    count = max(len(s.layers) for s in group.series)
    xs = [100 * (n + 0.5) / count for n in range(count)]
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in s.layers if math.isfinite(i.mean)]
    metric = "weight of the best head on the labels of earlier occurrences of the same x"
    marks = [{"text": str(n + 1), "x": percent(x / 100)} for n, x in enumerate(xs)]
    drawn = plane([(s.label, s.layers) for s in group.series], xs, known, highest=max(ends, default=1.0))
    return {
        "group": group,
        "uniform": {name: f"{share:.3f}" for name, share in group.uniform.items()},
        "panel": {
            "title": "Induction heads",
            "below": "layer",
            "metric": metric,
            **drawn,
            "marks": marks,
            "described": described_lines(f"{task.title}, induction heads", "layer", marks, metric, drawn),
        },
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
