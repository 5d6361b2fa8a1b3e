"""Charts of probes in HTML and SVG, which need no script.

Lines are in an SVG that is stretched to its frame. Text and point shapes are outside of it and keep their proportions, so both
stay readable on a phone and on paper. Coordinates are in percent of the frame, and colours are CSS variables.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.analysis.findings import TaskFindings
from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure, spread
from lengthwise.report import provenance
from lengthwise.report.chart import ARROW
from lengthwise.report.palette import Look
from lengthwise.values import join_names

LABEL_DISTANCE = 6.4  # smallest distance between the labels of two lines, in percent of the frame's height
MAX_POINTS = 100  # of a line; a longer one is averaged over neighbours

Line = tuple[str, Sequence[Interval | None]]


def plane(
    lines: Sequence[Line], xs: Sequence[float], known: Mapping[str, Look], *, highest: float | None
) -> dict[str, Any]:
    """Return lines over `xs` (percent of the width) from 0 to `highest`, each with its label at its end.

    With `highest=None` the frame ends at the highest mean. Where a few means are far above the others, it ends below those, and
    an arrow at its upper edge marks each of them.
    """
    means = [i.mean for _, line in lines for i in line if i is not None and math.isfinite(i.mean)]
    ticks = ticks_up_to(robust_highest(means, 3) if highest is None else highest)
    top = ticks[-1]
    drawn: list[dict[str, Any]] = []
    for label, line in lines:
        scores = [(x, i) for x, i in zip(xs, line, strict=True) if i is not None and math.isfinite(i.mean)]
        path = "M" + "L".join(f"{percent(x / 100)},{height(i.mean, top)}" for x, i in scores) if scores else ""
        intervals = [(x, i) for x, i in scores if i.basis != "none"]
        band = ""
        if len(intervals) > 1:
            upper = [f"{percent(x / 100)},{height(i.high, top)}" for x, i in intervals]
            lower = [f"{percent(x / 100)},{height(i.low, top)}" for x, i in reversed(intervals)]
            band = "M" + "L".join([*upper, *lower]) + "Z"
        points = [
            {"x": percent(x / 100), "y": height(i.mean, top), "shape": ARROW if i.mean > top else known[label].shape}
            for x, i in scores
        ]
        drawn.append({"label": label, "look": known[label], "path": path, "band": band, "points": points})
    for series, y in zip(drawn, spaced([d["points"][-1]["y"] if d["points"] else None for d in drawn]), strict=True):
        series["y"] = y
    return {
        "ticks": [{"text": f"{tick:g}", "y": percent(1 - tick / top)} for tick in ticks],
        "series": drawn,
        "over": any(mean > top for mean in means),
    }


def spaced(ys: Sequence[float | None]) -> list[float | None]:
    """Return heights for the labels at the ends of lines: as near to the ends as possible without overlap."""
    order = sorted((n for n, y in enumerate(ys) if y is not None), key=lambda n: ys[n] or 0.0)
    placed: list[float | None] = list(ys)
    low = -math.inf
    for n in order:
        low = max(ys[n] or 0.0, low + LABEL_DISTANCE)
        placed[n] = round(low, 2)
    high = 100.0
    for n in reversed(order):
        high = min(placed[n] or 0.0, high)
        placed[n], high = round(high, 2), high - LABEL_DISTANCE
    return placed


def smooth_path(values: Sequence[float], top: float) -> str:
    """Return the SVG path of a line over the whole width. Each point of a long line is the mean of neighbours."""
    size = max(1, -(-len(values) // MAX_POINTS))
    parts = [values[n : n + size] for n in range(0, len(values), size)]
    count = max(1, len(values) - 1)
    means = [(n * size + (len(part) - 1) / 2, math.fsum(part) / len(part)) for n, part in enumerate(parts)]
    points = [
        f"{round(100 * x / count, 1):g},{round(height(mean, top), 1):g}" for x, mean in means if math.isfinite(mean)
    ]
    return "M" + "L".join(points) if points else ""


def height(value: float, top: float) -> float:
    """Return the distance of a value from the upper edge of a frame that ends at `top`. Values beyond the frame lie at its edge."""
    return percent(1 - min(max(value / top, 0.0), 1.0))


def top_tick(values: Sequence[float], reach: float = 4) -> float:
    """Return the value at the upper edge of a frame for these values; see `robust_highest`."""
    return ticks_up_to(robust_highest(values, reach))[-1]


def robust_highest(values: Sequence[float], reach: float) -> float:
    """Return the highest value, but at most `reach` times the upper quartile."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    upper = finite[(3 * len(finite)) // 4 if len(finite) > 3 else -1]
    return min(finite[-1], reach * upper) if upper > 0 else finite[-1]


def interval_cell(interval: Interval | None, *, as_percent: bool = False) -> dict[str, str]:
    """Return a cell of a table: the mean, the interval, and what the table is sorted by. `as_percent`: with one decimal."""
    if interval is None or not math.isfinite(interval.mean):
        return {"mean": "–", "spread": "", "sort": ""}
    if as_percent:
        known = interval.basis != "none"
        ends = f"{interval.low:.1%} … {interval.high:.1%}" if known else ""
        return {"mean": f"{interval.mean:.1%}", "spread": ends, "sort": repr(interval.mean)}
    return {"mean": figure(interval.mean), "spread": spread(interval), "sort": repr(interval.mean)}


# ---- texts and scales -----------------------------------------------------------------------------------------------


def described_lines(
    title: str, below: str, marks: Sequence[Mapping[str, Any]], metric: str, drawn: Mapping[str, Any]
) -> str:
    """Return the description of a line chart for screen readers: its axes, their ranges, and its lines."""
    ends = f"from {marks[0]['text']} to {marks[-1]['text']}" if marks else "empty"
    names = join_names([s["label"] for s in drawn["series"]])
    return (
        f"{title}: line chart. Horizontal axis: {below}, {ends}. Vertical axis: {metric}, from {drawn['ticks'][0]['text']} to "
        f"{drawn['ticks'][-1]['text']}. Lines: {names}. A table below has the same numbers."
    )


def ramp(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines with opacities that rise from the first to the last."""
    count = max(1, len(paths) - 1)
    return [{"path": path, "opacity": round(0.3 + 0.7 * n / count, 2)} for n, path in enumerate(paths)]


def sequences_text(count: int, requested: int, lengths: Sequence[int], task: TaskFindings) -> str:
    """Return what a probe measured: `10 test sequences of 20 symbols`, `10 test sequences of each length (20 and 40 symbols)`."""
    sequences = f"test sequence{'s' if count != 1 else ''} of"
    measured = f"{join_names([f'{n:,}' for n in lengths])} {task.unit}"
    measured = measured if len(lengths) == 1 else f"each length ({measured})"
    return f"{count}{f' (of {requested} requested)' if count != requested else ''} {sequences} {measured}"


def facts_table(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the origin of numbers as names and values."""
    return [(provenance.readable(name), provenance.value_text(value)) for name, value in facts.items()]


def percent(share: float) -> float:
    """Return a share in percent with two decimals."""
    return round(100 * share, 2)


def ticks_up_to(highest: float) -> list[float]:
    """Return three to six ticks from 0, with steps of 1, 2 or 5 times a power of ten; the last one is at least `highest`."""
    if not highest > 0 or not math.isfinite(highest):
        return [0.0, 0.5, 1.0]
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(power * n for n in (1, 2, 5, 10) if power * n * 5 >= highest * (1 - 1e-9))
    return [round(step * n, 12) for n in range(math.ceil(highest / step - 1e-9) + 1)]
