"""Small charts: curves without intervals, and bars."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.analysis.intervals import Interval
from lengthwise.report.charts.spec import SHOWN, Chart, Layer, by_id, faded, label, short, spec, texts
from lengthwise.report.palette import Look

HEIGHT = 110  # pixels
MAX_POINTS = 100  # of a curve; a longer one is averaged over neighbours


@dataclass(frozen=True)
class Curve:
    """A line without intervals. `label`: of the legend's key that hides it, if there is one.

    `at`: the places of the values on the horizontal axis, which begins at 0. Default: value n is in the middle of n ... n + 1.
    """

    values: Sequence[float]
    look: Look
    label: str = ""
    opacity: float = 1.0
    at: Sequence[float] | None = None

    @property
    def end(self) -> float:
        return len(self.values) if self.at is None else max(self.at, default=0.0)

    @property
    def points(self) -> list[tuple[float, float]]:
        """Return the points that are drawn: those with a finite value, and means of neighbours in a long line without places."""
        if self.at is None:
            return averaged(self.values)
        return [(x, y) for x, y in zip(self.at, self.values, strict=True) if math.isfinite(y)]


def ramp(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves with opacities that rise from the first to the last."""
    last = len(curves) - 1
    return [replace(curve, opacity=round(0.3 + 0.7 * n / last, 2) if last else 1.0) for n, curve in enumerate(curves)]


def curve_chart(
    described: str,
    curves: Sequence[Curve],
    top: float,
    ends: tuple[str, str],
    shaded: tuple[int, int] | None = None,
    *,
    bottom: float = 0.0,
) -> Chart:
    """Return a small chart of curves from `bottom` to `top`. What is outside is cut off.

    `ends`: the texts at both ends of the horizontal axis. `shaded`: the first of the shaded places, and the one after the last.
    """
    length = max((curve.end for curve in curves), default=0) or 1
    heights = {value: shown(value) for value in sorted({bottom, 0.0, top} if bottom < 0 < top else {bottom, top})}
    axes = _small_axes(length, list(heights), [0, length])
    points = [curve.points for curve in curves]
    data = [
        {"e": f"s{n}", "opacity": curve.opacity, "x": [x for x, _ in line], "y": [short(y) for _, y in line]}
        for n, (curve, line) in enumerate(zip(curves, points, strict=True))
    ]
    ids = [f"s{n}" for n in range(len(curves))]
    encoding = {
        **axes,
        "color": by_id(ids, [c.look.colour for c in curves]),
        "strokeDash": by_id(ids, [c.look.dash if c.label else (1, 0) for c in curves]),
        "opacity": faded({"field": "opacity", "type": "quantitative", "scale": None, "legend": None}, 0.12),
    }
    layers: list[Layer] = []
    if shaded is not None:
        x = {"x": {"datum": shaded[0], "type": "quantitative"}, "x2": {"datum": shaded[1]}}
        layers.append({"data": {"values": [{}]}, "mark": {"type": "rect", "color": "var(--new)"}, "encoding": x})
    mark = {"type": "line", "clip": True, "strokeWidth": 1.3}
    layers.append({"transform": [{"filter": SHOWN}, {"flatten": ["x", "y"]}], "mark": mark, "encoding": encoding})
    series = [{"id": id, "label": c.label} for id, c in zip(ids, curves, strict=True) if c.label]
    return _small_chart(described, layers, data, texts([0, length], ends), heights, series)


def bar_chart(
    described: str,
    groups: Mapping[str, Sequence[float]],
    top: tuple[float, str],
    ticks: Mapping[float, str],
    *,
    whiskers: Sequence[Interval] = (),
    steps: Sequence[float] = (),
) -> Chart:
    """Return a small chart of bars, those of several groups side by side in each bin.

    `groups`: the heights of bars, by colour. `top`: the upper end of the vertical axis, and its text. `ticks`: texts by place; bin
    n lies from n to n + 1. `whiskers`: an interval in each bin. `steps`: a line with a height in each bin.
    """
    bins = max(map(len, groups.values()))
    axes = _small_axes(bins, [0, top[0]], list(ticks))
    width = 0.88 / len(groups)
    layers: list[Layer] = []
    for number, (colour, shares) in enumerate(groups.items()):
        lefts = [n + 0.06 + number * width for n in range(bins)]
        data = [{"x": short(x), "x2": short(x + width), "y": short(y)} for x, y in zip(lefts, shares, strict=True)]
        mark = {"type": "rect", "color": colour, "opacity": 0.6 if steps else 1}
        encoding = {**axes, "x2": {"field": "x2"}, "y2": {"datum": 0}}
        layers.append({"data": {"values": data}, "mark": mark, "encoding": encoding})
    known = [(n, interval) for n, interval in enumerate(whiskers) if interval.basis != "none"]
    if known:
        data = [{"x": n + 0.5, "y": short(i.low), "hi": short(i.high)} for n, i in known]
        mark = {"type": "rule", "color": "var(--ink)", "opacity": 0.75, "clip": True}
        layers.append({"data": {"values": data}, "mark": mark, "encoding": {**axes, "y2": {"field": "hi"}}})
    if steps:
        data = [{"x": n, "y": short(share)} for n, share in enumerate([*steps, steps[-1]])]
        line = {"type": "line", "interpolate": "step-after", "color": "var(--ink)", "strokeWidth": 1.3, "clip": True}
        layers.append({"data": {"values": data}, "mark": line, "encoding": axes})
    return _small_chart(described, layers, [], texts(list(ticks), list(ticks.values())), {0: "0", top[0]: top[1]}, [])


def shown(value: float) -> str:
    """Format a number at the end of an axis."""
    return f"{value:g}".replace("-", "−")


def _small_chart(
    described: str,
    layers: list[Layer],
    data: list[Any],
    below: Layer,
    heights: Mapping[float, str],
    series: list[Any],
) -> Chart:
    signals = {"x_ticks": below, "y_ticks": texts(list(heights), list(heights.values()))}
    return Chart(described=described, data={"spec": spec(layers, HEIGHT, data, signals), "series": series, "names": []})


def _small_axes(length: float, heights: Sequence[float], at: Sequence[float]) -> dict[str, Any]:
    """Return the axes of a small chart: labels at some places and at some heights, the ends of the vertical axis among them."""
    common: dict[str, Any] = {"title": None, "labelFontSize": 11}
    below = {"grid": False, "values": at, "labelExpr": label("x_ticks"), "labelPadding": 5, "labelFlush": True}
    below |= {"labelOverlap": "greedy", "labelSeparation": 6}
    left = {"values": list(heights), "labelOverlap": "greedy", "labelExpr": label("y_ticks"), "labelPadding": 4}
    return {
        name: {
            "field": name,
            "type": "quantitative",
            "scale": {"domain": ends, "nice": False},
            "axis": common | axis,
        }
        for name, ends, axis in (("x", [0, length], below), ("y", [heights[0], heights[-1]], left))
    }


def averaged(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return the middles of the values' places, and the values. Each point of a long line is the mean of neighbours.

    Values that are not finite are left out.
    """
    size = max(1, -(-len(values) // MAX_POINTS))
    parts = [values[n : n + size] for n in range(0, len(values), size)]
    means = [(n * size + len(part) / 2, math.fsum(part) / len(part)) for n, part in enumerate(parts)]
    return [(x, mean) for x, mean in means if math.isfinite(mean)]
