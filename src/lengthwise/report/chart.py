"""A task's chart as a Vega-Lite spec: score against length, what was never trained shaded, intervals as bands.

The spec holds numbers and made-up ids ("s0", "s1", ...) only, no text from users: names are in the page's own legend
and tooltip. Colours are CSS variables, so the page changes between light, dark and print without drawing anything anew.
Signals that the page sets: `hidden` (list of ids), `focus` (an id or ""), `at` (the length under the pointer, or 0) and
`range` (the number of the y axis' range, see `ranges`).
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
ROOM = 0.3  # free space left and right of the outer lengths, in octaves
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is read from there
BASELINE_WORDS = {  # where there is little room
    "nearest neighbour": "1 neighbour",
    "3 nearest neighbours": "3 neighbours",
    "best constant label": "best constant",
    "constant answer": "constant",
}
ARROW = "M0,-1L.95,.1H.4V1H-.4V.1H-.95Z"
FROM_ZERO = ("squared error",)  # metrics whose axis begins at 0, where they are perfect
MANY = 12  # lengths, from which on points are small
HEIGHT = 360
APART = 14  # pixels between the words for two baselines
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
    "aria": False,  # the page describes the chart and has its numbers as a table
    "autosize": {"type": "fit-x", "contains": "padding"},
    "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
}


@dataclass(frozen=True)
class Range:
    """A y axis from `low` to `high`. Means above it become arrows at the upper edge. `name`: for its button."""

    name: str
    low: float
    high: float


def ranges(task: TaskFindings) -> list[Range]:
    """The y axes to choose from, widest first: "all", "most" or "encodings", and "best". The page begins with `first`.

    Bounded metrics show their whole scale and have one. "all" has every baseline, too. Where a few encodings explode, "most" stays
    with the others: it reaches at most four times as far above the best mean as three quarters of the means do. Where none does,
    "encodings" has all of them, without baselines far above. "best" has all of the better half of the encodings. A range that would
    leave out little is not offered.
    """
    if task.bounds:
        low, high = task.bounds
        pad = 0.03 * (high - low)
        return [Range("all", low - pad, high + pad)]
    points = [p for s in task.series for p in s.points if math.isfinite(p.mean)]
    if not points:
        return [Range("all", 0.0, 1.0)]
    means = sorted(p.mean for p in points)
    beside = [value for b in task.baselines for value in b.scores.values() if math.isfinite(value)]
    lowest, limits = min([means[0], *beside]), {"all": max([means[-1], *beside])}
    if task.metric in FROM_ZERO:
        lowest = 0.0
    if task.better == "lower" and len(means) > 1:
        upper = statistics.quantiles(means, n=4, method="inclusive")[2]
        worst = sorted(max(p.mean for p in own) for s in task.series if (own := [p for p in points if p in s.points]))
        most = lowest + 4 * (upper - lowest)
        if task.metric in FROM_ZERO:  # with what who knows nothing yet has, at the shortest length
            most = max(most, *(p.mean for p in points if p.length == task.lengths[0]))
        whole = {"encodings": means[-1]} if most >= means[-1] else {"most": most}
        candidates = whole | {"best": worst[(len(worst) - 1) // 2]}
        for name, limit in candidates.items():
            if lowest < limit and (limit - lowest) * 1.5 < min(limits.values()) - lowest:
                limits[name] = limit
    made = [_range(name, [p for p in points if p.mean <= limit], lowest, limit) for name, limit in limits.items()]
    return [Range(c.name, -0.03 * c.high, c.high) for c in made] if task.metric in FROM_ZERO else made


def axis_words(choices: list[Range], baselines: bool) -> str:
    """What the buttons of the ranges show, in words: as many as there are buttons."""
    words = {
        "all": "all scores and baselines" if baselines else "all scores",
        "encodings": "the encodings alone",
        "most": "most of the scores",
        "best": "the better half of the encodings",
    }
    named = [words[choice.name] for choice in choices]
    return f"{', '.join(named[:-1])} or {named[-1]}" if len(named) > 1 else named[0]


def describe(task: TaskFindings) -> str:
    """The chart in words, for who does not see it: its axes, and what is at the longest length, best first."""
    longest = max(task.lengths)
    here = [(s.label, p) for s in task.ranked(longest) if (p := s.at(longest)) is not None]
    ends = ", ".join(f"{label} {figure(point.mean)}" for label, point in here)
    lines = f"{len(task.series)} line{'s' if len(task.series) != 1 else ''}, one for each encoding"
    beside = f", and {len(task.baselines)} dashed for baselines" if task.baselines else ""
    return (
        f"{task.title}: {task.metric} ({task.better} is better) against length, from {min(task.lengths):,} to {longest:,} "
        f"{task.unit}; {trained(task)}; {lines}{beside}. {f'At {longest:,} {task.unit}: {ends}. ' if ends else ''}"
        "The table below has all numbers; arrow keys go through the lengths."
    )


def first(choices: list[Range]) -> int:
    """The range to begin with: "most" where a few encodings explode, "encodings" where baselines are far above, otherwise "all"."""
    return next((n for n, choice in enumerate(choices) if choice.name in ("most", "encodings")), 0)


def _range(name: str, points: list[Point], lowest: float, limit: float) -> Range:
    """Around the points' means, with room for their intervals, but for these not much more than for the means."""
    reach = max(limit - lowest, 1e-3 * abs(limit), 1e-6)
    ends = [p.interval for p in points if p.interval.basis != "none"]
    low = max(min((i.low for i in ends), default=lowest), lowest - 0.35 * reach)
    high = max(limit, min(max((i.high for i in ends), default=limit), limit + 0.35 * reach))
    pad = 0.07 * (high - low) or reach
    return Range(name, min(low, lowest) - pad, high + pad)


def rows(task: TaskFindings, choices: list[Range]) -> list[dict[str, Any]]:
    """One row per encoding and length. A missing score is null, which breaks the line there.

    `over`: per range, the place of the row's arrow among the `outside` arrows at that length, or −1. Of many lengths the first
    beyond the range has the arrow, until the line is back.
    """
    many = len(task.lengths) > MANY
    before: dict[tuple[int, int], bool] = {}
    result: list[dict[str, Any]] = []
    for length in task.lengths:
        outside = [0] * len(choices)
        here = []
        for number, series in enumerate(task.series):
            point = series.at(length)
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
    """The Vega-Lite spec of a task, as JSON data.

    Written out as data: building it with Altair costs a second of import and half a second of checks per chart. A test
    lets Altair check it against Vega-Lite's schema instead.
    """
    choices = ranges(task)
    left, right = min(*task.lengths, task.train_length), max(*task.lengths, task.train_length)
    ends = [left / 2**ROOM, right * 2**ROOM]
    layers = _region(task, ends[1]) if task.is_new(right) else []
    layers += _short(task, ends[0]) if task.of_kind("shorter") else []
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


def _region(task: TaskFindings, right: float) -> list[dict[str, Any]]:
    """The shade over lengths never trained, and the rule at the trained length with its words on both sides."""
    data = {"values": [{"train": task.train_length, "right": right}]}
    at = {"x": {"field": "train", "type": "quantitative"}}
    over = {"x2": {"field": "right"}}
    text = {"type": "text", "y": -9, "baseline": "bottom", "fontSize": 12}
    marks: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"type": "rect", "color": "var(--new)"}, at | over),
        ({"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2, "opacity": 0.75}, at),
        (text | {"text": trained(task), "color": "var(--ink)", "dx": -6, "align": "right"}, at),
        (
            text | {"text": "never trained →", "color": "var(--soft)", "dx": 6, "align": "left", "fontStyle": "italic"},
            at,
        ),
    ]
    return [{"data": data, "mark": mark, "encoding": encoding} for mark, encoding in marks]


def _short(task: TaskFindings, left: float) -> list[dict[str, Any]]:
    """The shade over lengths that are shorter than any in training."""
    data = {"values": [{"left": left, "shortest": task.shortest}]}
    over = {"x": {"field": "left", "type": "quantitative"}, "x2": {"field": "shortest"}}
    return [{"data": data, "mark": {"type": "rect", "color": "var(--new)"}, "encoding": over}]


def _baselines(task: TaskFindings, choices: list[Range]) -> list[dict[str, Any]]:
    """A dashed line for each, with its words beyond the last length; neutral, for it is no encoding."""
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
    places = [words_at([_pixel(v, choice) for v in lasts]) for choice in choices]
    ends: list[dict[str, Any]] = [{"b": f"b{n}", "x": max(task.lengths)} for n in range(len(shown))]
    starts = [end | {"dx": 1, "at": [_pixel(lasts[n], choice) for choice in choices]} for n, end in enumerate(ends)]
    stops = [end | {"dx": 11, "at": [place[n] for place in places]} for n, end in enumerate(ends)]
    leaders = [row for pair in zip(starts, stops, strict=True) for row in pair]
    words = [
        row | {"text": [beyond(lasts[n], choice) + BASELINE_WORDS.get(b.label, b.label) for choice in choices]}
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
            "data": {"values": words},
            "mark": text | {"y": place["y"], "text": {"expr": "datum.text[range]"}},
            "encoding": {"x": x},
        },
    ]


def beyond(value: float, choice: Range) -> str:
    """An arrow before the words for a baseline that is not within the range."""
    return "↑ " if value > choice.high else "↓ " if value < choice.low else ""


def _pixel(value: float, choice: Range) -> float:
    """Where a value lies on the axis, from the top; at the edge where it is outside."""
    share = (choice.high - value) / (choice.high - choice.low)
    return round(HEIGHT * min(max(share, 0.0), 1.0), 1)


def words_at(wanted: list[float]) -> list[float]:
    """Places for words near those wanted, at least `APART` from each other and within the chart, in the same order."""
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    found = [0.0] * len(wanted)
    last = -math.inf
    for n in order:  # downwards, pushing on
        found[n] = last = max(wanted[n], last + APART, 6.0)
    limit = HEIGHT - 6.0
    for n in reversed(order):  # and back up from the lower edge
        found[n] = limit = min(found[n], limit)
        limit -= APART
    return [round(place, 1) for place in found]


def _series(task: TaskFindings, own: list[Look], ends: list[float], choices: list[Range]) -> list[dict[str, Any]]:
    """Bands, interval bars, lines, points and arrows of all encodings."""
    domain = [f"s{n}" for n in range(len(own))]

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
    colour, shape = kind([look.colour for look in own]), kind([look.shape for look in own])
    dash = kind([list(look.dash) for look in own])
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
    if not many:  # of many, the band says it
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
    """The label of the rule at the trained length."""
    if task.shortest < task.train_length:
        return f"trained on {task.shortest:,}–{task.train_length:,}"
    return f"trained at {task.train_length:,}"
