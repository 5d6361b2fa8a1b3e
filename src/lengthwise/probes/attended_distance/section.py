"""The histograms of attended distances."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.probes.attended_distance.summary import AttendedDistanceSummary
from lengthwise.report.drawing import facts_table, percent, sequences_text, ticks_up_to
from lengthwise.report.palette import Look


def section(group: AttendedDistanceSummary, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    """Return the template\'s data for one summary."""
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in (*s.most, *s.mass)]
    ticks = ticks_up_to(max(ends, default=0.0))
    top = ticks[-1]
    return {
        "group": group,
        "sequences": sequences_text(group.n, group.examples, group.lengths, task),
        "top": f"{top:.0%}",
        "series": [
            {
                "label": s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "queries": f"{s.queries:,}",
                "bars": [_bar(i, top) for i in s.most],
                "mass": _steps([i.mean for i in s.mass], top),
                "shares": [f"{i.mean:.1%}" for i in s.most],
                "described": (
                    f"{s.label}: bar chart of the share of queries by the normalized distance of their highest logit. Horizontal "
                    f"axis: distance from 0 (the query itself) to 1 (the first token), {len(s.most)} bins. Vertical axis: share "
                    f"from 0 % to {top:.0%}. The nearest bin has {s.most[0].mean:.1%}, the farthest {s.most[-1].mean:.1%}. "
                    "The table below has all bins."
                ),
            }
            for s in group.series
        ],
        "bins": [f"{n / len(group.series[0].most):.2f}" for n in range(len(group.series[0].most))],
        "facts": facts_table(group.facts),
    }


def _bar(interval: Interval, top: float) -> dict[str, Any]:
    low, high = (interval.low, interval.high) if interval.basis != "none" else (interval.mean, interval.mean)
    return {"height": percent(interval.mean / top), "low": percent(low / top), "reach": percent((high - low) / top)}


def _steps(shares: Sequence[float], top: float) -> str:
    """Return the SVG path of a step function over bins of equal width."""
    n = len(shares)
    steps = [
        f"{percent(i / n)},{percent(1 - s / top)}L{percent((i + 1) / n)},{percent(1 - s / top)}"
        for i, s in enumerate(shares)
    ]
    return "M" + "L".join(steps)
