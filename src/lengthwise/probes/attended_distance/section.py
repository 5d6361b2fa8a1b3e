"""The histograms of attended distances."""

from collections.abc import Mapping
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.probe_rows import ProbeSummary
from lengthwise.probes.attended_distance.summary import AttendedSeries
from lengthwise.report.charts.scales import top_of_intervals
from lengthwise.report.charts.small import bar_chart
from lengthwise.report.palette import Look
from lengthwise.report.sections import sequences_text


def section(group: ProbeSummary[AttendedSeries], task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template's data for one summary."""
    top = top_of_intervals(i for s in group.series for i in (*s.most, *s.mass))
    count = len(group.series[0].most)
    return {
        "sequences": sequences_text(group, task),
        "series": [
            {
                "label": s.label,
                "look": looks[s.label],
                "note": f"{s.seeds} seed{'s' if s.seeds != 1 else ''}, {s.queries:,} queries",
                "chart": bar_chart(
                    f"{s.label}: bar chart of the share of queries by the normalized distance of their highest logit. Horizontal "
                    f"axis: distance from 0 (the query itself) to 1 (the first token), {count} bins. Vertical axis: share "
                    f"from 0 % to {top:.0%}. The nearest bin has {s.most[0].mean:.1%}, the farthest {s.most[-1].mean:.1%}. "
                    "The table below has all bins.",
                    {looks[s.label].colour: [i.mean for i in s.most]},
                    (top, f"{top:.0%}"),
                    {0: "0 (itself)", count: "1 (first token)"},
                    whiskers=s.most,
                    steps=[i.mean for i in s.mass],
                ).named(
                    f"how far back heads attend, {s.label}",
                    "normalized distance",
                    "share",
                    note="bars: queries whose highest logit is there; line: attention weights",
                ),
            }
            for s in group.series
        ],
        "heads": ["bin starts at", *(s.label for s in group.series)],
        "bins": [
            {
                "range": f"{n / count:.2f}",
                "first": n,
                "cells": [(f"{s.most[n].mean:.1%}", s.most[n].mean) for s in group.series],
            }
            for n in range(count)
        ],
    }
