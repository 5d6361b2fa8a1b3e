"""A task's chart as a Vega-Lite spec: score against length, with extrapolation shaded and intervals as bands.

The spec holds only numbers, fixed text and generated ids ("s0", "s1", ...). Text from users appears in the page's own legend and
tooltip, never in the spec. Colours are CSS variables, so the page changes between light, dark and print without drawing again.
The page sets these signals: `hidden` (list of ids), `focus` (an id or ""), `at` (the length under the pointer, or 0) and `range`
(the index of the vertical axis' range, see `ranges`).
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis import Point, TaskFindings
from lengthwise.analysis.numbers import figure
from lengthwise.report.palette import Look

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PADDING = 0.3  # space left and right of the outer lengths, in octaves
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # only an identifier; nothing is downloaded
EXTRAPOLATION = "longer than training (extrapolation) →"
SHORT_EXTRAPOLATION = "extrapolation →"  # where the shaded part is narrower than EXTRAPOLATION_WIDTH pixels
EXTRAPOLATION_WIDTH = 240
SHORT_NAMES = {  # of baselines, in the chart's margin
    "nearest neighbour": "1 neighbour",
    "3 nearest neighbours": "3 neighbours",
    "best constant label": "best constant",
    "constant answer": "constant",
}
ARROW = "M0,-1L.95,.1H.4V1H-.4V.1H-.95Z"
MANY = 12  # with more lengths, points are small
HEIGHT = 360
LABEL_DISTANCE = 14  # pixels between the labels of two baselines
CONFIG: dict[str, Any] = {
    "font": FONT,
    "axis": {
        "labelColor": "var(--soft)",
        "labelFontSize": 12,
        "domain": False,
        "ticks": False,
        "gridColor": "var(--grid)",
        "gridWidth": 1,
    },
    "axisX": {"domain": True, "domainColor": "var(--rule)", "labelPadding": 8},
    "view": {"stroke": None},
    "aria": False,  # the page itself describes the chart, and has its numbers in a table
    "autosize": {"type": "fit-x", "contains": "padding"},
    "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
}


@dataclass(frozen=True)
class Range:
    """A vertical axis from `low` to `high`. Arrows at the upper edge mark means above it. `name`: the text of its button."""

    name: str
    low: float
    high: float


def ranges(task: TaskFindings) -> list[Range]:
    """Return the vertical axes to choose from, widest first. The page starts with `first`.

    Shares of correct answers have one range, their whole scale. Other metrics may have three: "all" contains all encodings and
    baselines. If a few encodings have far larger means, "most" contains the others: it reaches at most four times as far above
    the best mean as the upper quartile does. If not, "encodings" contains all encodings without baselines far above them. "best"
    contains the better half of the encodings. A range that leaves out little is not offered.
    """
    if task.metric.share:
        return [Range("all", -0.03, 1.03)]
    points = [p for s in task.series for p in s.points if math.isfinite(p.mean)]
    if not points:
        return [Range("all", 0.0, 1.0)]
    means = sorted(p.mean for p in points)
    baselines = [value for b in task.baselines for value in b.scores.values() if math.isfinite(value)]
    lowest, limits = min([means[0], *baselines]), {"all": max([means[-1], *baselines])}
    if task.metric.from_zero:
        lowest = 0.0
    if task.metric.better == "lower" and len(means) > 1:
        upper = statistics.quantiles(means, n=4, method="inclusive")[2]
        by_series = [[p.mean for p in s.points if p in points] for s in task.series]
        worst = sorted(max(means) for means in by_series if means)
        most = lowest + 4 * (upper - lowest)
        if task.metric.from_zero:  # include the scores at the shortest length, where models have seen few examples
            most = max(most, *(p.mean for p in points if p.length == task.lengths[0]))
        wide = {"encodings": means[-1]} if most >= means[-1] else {"most": most}
        candidates = wide | {"best": worst[(len(worst) - 1) // 2]}
        for name, limit in candidates.items():
            if lowest < limit and (limit - lowest) * 1.5 < min(limits.values()) - lowest:
                limits[name] = limit
    axes = [_range(name, [p for p in points if p.mean <= limit], lowest, limit) for name, limit in limits.items()]
    return [Range(axis.name, -0.03 * axis.high, axis.high) for axis in axes] if task.metric.from_zero else axes


def axis_choices(choices: list[Range], baselines: bool) -> str:
    """Return a list of what the ranges show, one item for each button."""
    texts = {
        "all": "all scores and baselines" if baselines else "all scores",
        "encodings": "the encodings without the baselines",
        "most": "most of the scores",
        "best": "the better half of the encodings",
    }
    items = [texts[choice.name] for choice in choices]
    return f"{', '.join(items[:-1])} or {items[-1]}" if len(items) > 1 else items[0]


def describe(task: TaskFindings) -> str:
    """Describe the chart for screen readers: its axes, their ranges, its lines, and the scores at the longest length."""
    longest = max(task.lengths)
    means = [p.mean for s in task.series for p in s.points if math.isfinite(p.mean)]
    scores = f", from {figure(min(means))} to {figure(max(means))}" if means else ""
    dashed = f" Dashed lines for baselines: {', '.join(b.label for b in task.baselines)}." if task.baselines else ""
    ends = [f"{s.label} {figure(p.mean)}" for s in task.ranked(longest) if (p := s.point_at(longest)) is not None]
    last = f" Scores at {longest:,} {task.unit}, best first: {', '.join(ends)}." if ends else ""
    return (
        f"{task.title}: line chart. Horizontal axis: length in {task.unit}, from {min(task.lengths):,} to {longest:,}, "
        f"{trained(task)}. Vertical axis: {task.metric_label}, {task.metric.better} is better{scores}. "
        f"One line per encoding: {', '.join(s.label for s in task.series)}.{dashed}{last} "
        "The table below has all numbers. The left and right arrow keys move through the lengths."
    )


def first(choices: list[Range]) -> int:
    """Return the index of the first range to show: that of "most" or "encodings" if there is one, otherwise that of "all"."""
    return next((n for n, choice in enumerate(choices) if choice.name in ("most", "encodings")), 0)


def _range(name: str, points: list[Point], lowest: float, limit: float) -> Range:
    """Return a range around the means. Intervals may extend it by 35 % at each end."""
    reach = max(limit - lowest, 1e-3 * abs(limit), 1e-6)
    ends = [p.interval for p in points if p.interval.basis != "none"]
    low = max(min((i.low for i in ends), default=lowest), lowest - 0.35 * reach)
    high = max(limit, min(max((i.high for i in ends), default=limit), limit + 0.35 * reach))
    pad = 0.07 * (high - low) or reach
    return Range(name, min(low, lowest) - pad, high + pad)


def rows(task: TaskFindings, choices: list[Range]) -> list[dict[str, Any]]:
    """Return one row per encoding and length. A missing score is null, which interrupts the line there.

    `over`: for each range, the position of the row's arrow among the `outside` arrows at that length, or −1 without an arrow.
    With many lengths, only the first of several neighbouring lengths beyond the range has an arrow.
    """
    many = len(task.lengths) > MANY
    before: dict[tuple[int, int], bool] = {}
    result: list[dict[str, Any]] = []
    for length in task.lengths:
        outside = [0] * len(choices)
        here = []
        for number, series in enumerate(task.series):
            point = series.point_at(length)
            row: dict[str, Any] = {"e": f"s{number}", "x": length, "y": None, "lo": None, "hi": None}
            row["over"] = [-1] * len(choices)
            if point is not None and math.isfinite(point.mean):
                row["y"] = point.mean
                if point.interval.basis != "none":
                    row["lo"], row["hi"] = point.interval.low, point.interval.high
                for n, choice in enumerate(choices):
                    beyond, known = point.mean > choice.high, many and before.get((number, n), False)
                    if beyond and not known:
                        row["over"][n], outside[n] = outside[n], outside[n] + 1
                    before[number, n] = beyond
            here.append(row)
        result += [row | {"outside": outside} for row in here]
    return result


def spec(task: TaskFindings, looks: Mapping[str, Look]) -> dict[str, Any]:
    """Return the Vega-Lite spec of a task, as JSON data.

    It is plain data because Altair takes a second to import and half a second to check each chart. A test uses Altair to check
    the spec against Vega-Lite's schema.
    """
    choices = ranges(task)
    left, right = min(*task.lengths, task.train_length), max(*task.lengths, task.train_length)
    ends = [left / 2**PADDING, right * 2**PADDING]
    layers = _longer_region(task, ends[1]) if task.is_new(right) else []
    layers += _shorter_region(task, ends[0]) if task.of_kind("shorter") else []
    layers += _baselines(task, choices) + _series(task, [looks[s.label] for s in task.series], ends, choices)
    return {
        "$schema": SCHEMA,
        "params": [
            {"name": "hidden", "value": []},
            {"name": "focus", "value": ""},
            {"name": "at", "value": 0},
            {"name": "range", "value": first(choices)},
        ],
        "data": {"values": rows(task, choices)},
        "width": "container",
        "height": HEIGHT,
        "background": "transparent",
        "layer": layers,
        "config": CONFIG,
    }


def _longer_region(task: TaskFindings, right: float) -> list[dict[str, Any]]:
    """Return the shading of lengths above the training length, and the rule at the training length with its labels."""
    data = {"values": [{"train": task.train_length, "right": right}]}
    x = {"x": {"field": "train", "type": "quantitative"}}
    x2 = {"x2": {"field": "right"}}
    width = "range('x')[1] - scale('x', datum.train)"
    label = f"{width} > {EXTRAPOLATION_WIDTH} ? '{EXTRAPOLATION}' : '{SHORT_EXTRAPOLATION}'"
    text = {"type": "text", "y": -9, "baseline": "bottom", "fontSize": 12}
    marks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "rect", "color": "var(--new)"}, x | x2),
        ({"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2, "opacity": 0.75}, x),
        (text | {"text": trained(task), "color": "var(--ink)", "dx": -6, "align": "right"}, x),
        (
            text | {"text": {"expr": label}, "color": "var(--soft)", "dx": 6, "align": "left", "fontStyle": "italic"},
            x,
        ),
    ]
    return [{"data": data, "mark": mark, "encoding": encoding} for mark, encoding in marks]


def _shorter_region(task: TaskFindings, left: float) -> list[dict[str, Any]]:
    """Return the shading of lengths below the shortest training length."""
    data = {"values": [{"left": left, "shortest": task.shortest}]}
    span = {"x": {"field": "left", "type": "quantitative"}, "x2": {"field": "shortest"}}
    return [{"data": data, "mark": {"type": "rect", "color": "var(--new)"}, "encoding": span}]


def _baselines(task: TaskFindings, choices: list[Range]) -> list[dict[str, Any]]:
    """Return a dashed grey line for each baseline, with its label to the right of the last length."""
    shown = [b for b in task.baselines if any(map(math.isfinite, b.scores.values()))]
    if not shown:
        return []
    x = {"field": "x", "type": "quantitative"}
    lines = [
        {"b": f"b{n}", "x": length, "v": value if math.isfinite(value) else None}
        for n, b in enumerate(shown)
        for length, value in b.scores.items()
    ]
    line = {"type": "line", "clip": True, "color": "var(--faint)", "strokeWidth": 1.3, "strokeDash": [4, 3]}
    detail = {"field": "b", "type": "nominal"}
    lasts = [next(v for v in reversed(list(b.scores.values())) if math.isfinite(v)) for b in shown]
    heights = [label_heights([_pixel(v, choice) for v in lasts]) for choice in choices]
    ends: list[dict[str, Any]] = [{"b": f"b{n}", "x": max(task.lengths)} for n in range(len(shown))]
    starts = [end | {"dx": 1, "at": [_pixel(lasts[n], choice) for choice in choices]} for n, end in enumerate(ends)]
    stops = [end | {"dx": 11, "at": [height[n] for height in heights]} for n, end in enumerate(ends)]
    leaders = [row for pair in zip(starts, stops, strict=True) for row in pair]
    labels = [
        row | {"text": [beyond(lasts[n], choice) + SHORT_NAMES.get(b.label, b.label) for choice in choices]}
        for n, (row, b) in enumerate(zip(stops, shown, strict=True))
    ]
    text = {"type": "text", "align": "left", "baseline": "middle", "dx": 13, "fontSize": 11, "color": "var(--soft)"}
    place = {"xOffset": {"expr": "datum.dx"}, "y": {"expr": "datum.at[range]"}}
    leader = {"type": "line", "color": "var(--faint)", "strokeWidth": 0.8, **place}
    return [
        {
            "data": {"values": lines},
            "mark": line,
            "encoding": {"x": x, "y": {"field": "v", "type": "quantitative"}, "detail": detail},
        },
        {"data": {"values": leaders}, "mark": leader, "encoding": {"x": x, "detail": detail}},
        {
            "data": {"values": labels},
            "mark": text | {"y": place["y"], "text": {"expr": "datum.text[range]"}},
            "encoding": {"x": x},
        },
    ]


def beyond(value: float, choice: Range) -> str:
    """Return the arrow before the label of a baseline outside of the range, or ""."""
    return "↑ " if value > choice.high else "↓ " if value < choice.low else ""


def _pixel(value: float, choice: Range) -> float:
    """Return the distance of a value from the top of the axis, in pixels. Values outside lie at the edge."""
    share = (choice.high - value) / (choice.high - choice.low)
    return round(HEIGHT * min(max(share, 0.0), 1.0), 1)


def label_heights(targets: list[float]) -> list[float]:
    """Return heights for labels near the targets, in the same order: within the chart and at least `LABEL_DISTANCE` apart."""
    order = sorted(range(len(targets)), key=lambda n: targets[n])
    heights = [0.0] * len(targets)
    last = -math.inf
    for n in order:  # downwards
        heights[n] = last = max(targets[n], last + LABEL_DISTANCE, 6.0)
    limit = HEIGHT - 6.0
    for n in reversed(order):  # upwards from the lower edge
        heights[n] = limit = min(heights[n], limit)
        limit -= LABEL_DISTANCE
    return [round(height, 1) for height in heights]


def _series(task: TaskFindings, looks: list[Look], ends: list[float], choices: list[Range]) -> list[dict[str, Any]]:
    """Return the bands, interval bars, lines, points and arrows of all encodings."""
    domain = [f"s{n}" for n in range(len(looks))]

    def kind(values: list[Any]) -> dict[str, Any]:
        return {"field": "e", "type": "nominal", "scale": {"domain": domain, "range": values}, "legend": None}

    def opacity(usual: float, faded: float) -> dict[str, Any]:
        return {"condition": {"test": "focus == '' || datum.e == focus", "value": usual}, "value": faded}

    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": ends, "nice": False},
        "axis": {
            "values": list(task.lengths),
            "title": None,
            "grid": False,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
            "labelExpr": f"[format(datum.value, ',d'), format(datum.value / {task.train_length}, '.3~g') + '×']",
            "labelLineHeight": 15,
        },
    }
    limits: list[Any] = [choices[0].low, choices[0].high]
    if len(choices) > 1:
        limits = [{"expr": f"{values}[range]"} for values in ([c.low for c in choices], [c.high for c in choices])]
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": limits, "nice": False, "zero": False},
        "axis": {"title": None, "tickCount": 6, "labelPadding": 6},
    }
    colour, shape = kind([look.colour for look in looks]), kind([look.shape for look in looks])
    dash = kind([list(look.dash) for look in looks])
    band = {"x": x, "y": {"field": "lo", "type": "quantitative"}, "y2": {"field": "hi"}, "color": colour}
    mean = {"x": x, "y": y, "color": colour, "opacity": opacity(1, 0.12)}
    edge = {"stroke": "var(--paper)", "strokeWidth": 1}
    many = len(task.lengths) > MANY
    marks: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("datum.x == at", {"type": "rule", "color": "var(--faint)", "strokeDash": [2, 3]}, {"x": x}),
        ("", {"type": "area", "clip": True}, band | {"opacity": opacity(0.13, 0.02)}),
        ("", {"type": "line", "clip": True, "strokeWidth": 2}, mean | {"strokeDash": dash}),
        (
            "datum.y != null",
            {"type": "point", "clip": True, "filled": True, "size": 40 if many else 130, **edge},
            mean | {"shape": shape},
        ),
    ]
    if not many:  # with many lengths, the band is enough
        bar = {"type": "rule", "clip": True, "strokeWidth": 1.2}
        marks.insert(2, ("datum.lo != null", bar, band | {"opacity": opacity(0.5, 0.06)}))
    if len(choices) > 1:
        offset = {"expr": "(datum.over[range] - (datum.outside[range] - 1) / 2) * 14"}
        arrow = {"type": "point", "shape": ARROW, "filled": True, "size": 130, "y": 10, "xOffset": offset}
        marks.append(("datum.over[range] >= 0", arrow, {k: v for k, v in mean.items() if k != "y"}))
    shown = "indexof(hidden, datum.e) < 0"
    return [
        {"transform": [{"filter": f} for f in (shown, test) if f], "mark": mark, "encoding": encoding}
        for test, mark, encoding in marks
    ]


def trained(task: TaskFindings) -> str:
    """Return the label of the rule at the training length."""
    if task.shortest < task.train_length:
        return f"trained on {task.shortest:,}–{task.train_length:,}"
    return f"trained at {task.train_length:,}"
