"""Charts of what attention learned: distances by layer, and how far back heads attend. They need HTML and SVG, no script.

Lines are in an SVG that is stepped_length to its frame. Text and point shapes are outside of it and keep their proportions, so both
stay readable on a phone and on paper. Coordinates are in percent of the frame, and colours are CSS variables.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis import AttendedDistances, Distances, Interval, TaskFindings
from lengthwise.report import provenance
from lengthwise.report.palette import Look, looks
from lengthwise.values import join_names

LN2 = math.log(2)
MEASURES = {
    "jensen-shannon": "Jensen–Shannon divergence, from 0 to ln 2",
    "published": "the published code’s divergence",
}


def attention(task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any] | None:
    """Return the template's data for one task, or None if attention was not probed."""
    if not task.distances and not task.attended:
        return None
    labels = [s.label for group in task.distances for s in group.series]
    labels += [s.label for group in task.attended for s in group.series]
    known = dict(known) | {label: look for label, look in looks(labels).items() if label not in known}
    return {
        "distances": [_distances(group, task, known) for group in task.distances],
        "attended": [_attended(group, task, known) for group in task.attended],
    }


def nats(value: float) -> str:
    """Format a distance with four decimals."""
    return f"{value:.4f}" if math.isfinite(value) else "not finite"


def _distances(group: Distances, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in s.layers if math.isfinite(i.mean)]
    ticks = _ticks(max(ends, default=0.0))
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
        "lengths": _lengths(group.lengths, task),
        "ticks": [{"text": f"{tick:g}", "y": _percent(1 - tick / top)} for tick in ticks],
        "layers": [{"text": str(n + 1), "x": _percent((n + 0.5) / count)} for n in range(count)],
        "series": [
            {
                "label": s.label,
                "name": f"{s.label} (another seed)" if s.baseline else s.label,
                "look": known[s.label],
                "seeds": s.seeds,
                "mean": nats(s.mean),
                "cells": [_cell(i) for i in s.layers],
                **_line(s.layers, top, count),
            }
            for s in order
        ],
        "baseline": any(s.baseline for s in group.series),
        "others": any(not s.baseline for s in group.series),
        "one_seed": any(s.seeds == 1 for s in group.series),
        "facts": _facts(group.facts),
    }


def _line(layers: Sequence[Interval], top: float, count: int) -> dict[str, Any]:
    """Return the points, and the SVG paths of the means and of the band. A layer without a finite mean interrupts both."""
    points, lines, bands = [], [], []
    for segment in _finite_segments(layers):
        columns = [(_percent((n + 0.5) / count), i) for n, i in segment]
        points += [{"x": x, "y": _percent(1 - i.mean / top)} for x, i in columns]
        lines.append("M" + "L".join(f"{x},{_percent(1 - i.mean / top)}" for x, i in columns))
        intervals = [(x, i) for x, i in columns if i.basis != "none"]
        if len(intervals) > 1:
            upper = [f"{x},{_percent(1 - min(i.high / top, 1))}" for x, i in intervals]
            lower = [f"{x},{_percent(1 - max(i.low / top, 0))}" for x, i in reversed(intervals)]
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


def _cell(interval: Interval) -> dict[str, str]:
    known = interval.basis != "none"
    return {"mean": nats(interval.mean), "spread": f"{nats(interval.low)} … {nats(interval.high)}" if known else ""}


def _attended(group: AttendedDistances, task: TaskFindings, known: Mapping[str, Look]) -> dict[str, Any]:
    ends = [i.mean if i.basis == "none" else i.high for s in group.series for i in (*s.most, *s.mass)]
    ticks = _ticks(max(ends, default=0.0))
    top = ticks[-1]
    return {
        "group": group,
        "lengths": _lengths(group.lengths, task),
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
        "facts": _facts(group.facts),
    }


def _bar(interval: Interval, top: float) -> dict[str, Any]:
    low, high = (interval.low, interval.high) if interval.basis != "none" else (interval.mean, interval.mean)
    return {"height": _percent(interval.mean / top), "low": _percent(low / top), "reach": _percent((high - low) / top)}


def _steps(shares: Sequence[float], top: float) -> str:
    """Return the SVG path of a step function over bins of equal width."""
    n = len(shares)
    steps = [
        f"{_percent(i / n)},{_percent(1 - s / top)}L{_percent((i + 1) / n)},{_percent(1 - s / top)}"
        for i, s in enumerate(shares)
    ]
    return "M" + "L".join(steps)


def _lengths(lengths: Sequence[int], task: TaskFindings) -> str:
    return f"{join_names([f'{n:,}' for n in lengths])} {task.unit}"


def _facts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(provenance.readable(name), provenance.value_text(value)) for name, value in facts.items()]


def _percent(share: float) -> float:
    return round(100 * share, 2)


def _ticks(highest: float) -> list[float]:
    """Return three to six ticks from 0, with steps of 1, 2 or 5 times a power of ten; the last one is at least `highest`."""
    if not highest > 0 or not math.isfinite(highest):
        return [0.0, 0.5, 1.0]
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(power * n for n in (1, 2, 5, 10) if power * n * 5 >= highest * (1 - 1e-9))
    return [round(step * n, 12) for n in range(math.ceil(highest / step - 1e-9) + 1)]
