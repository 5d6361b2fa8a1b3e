"""Charts of lines with intervals: the scores of a task, and those of probes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure
from lengthwise.report.charts.spec import SHOWN, Chart, Layer, by_id, faded, label, spec, texts
from lengthwise.report.palette import Look

ARROW = "M0,-1L.95,.1H.4V1H-.4V.1H-.95Z"
MANY = 12  # with more columns, points are small
LABEL_DISTANCE = 14  # pixels between the labels at the ends of two lines
HEIGHT = 240  # pixels


@dataclass(frozen=True)
class Range:
    """A vertical axis from `low` to `high`. Arrows at the upper edge mark means above it. `name`: the text of its button."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The horizontal axis of a line chart, from `low` to `high`.

    `at`: where the columns are, ascending. `ticks`: the text below each one, or its lines. `heads`, `notes`: the
    head of the tooltip.
    """

    at: Sequence[float]
    low: float
    high: float
    ticks: Sequence[str | list[str]]
    heads: Sequence[str]
    notes: Sequence[str]
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line with intervals: in each column a score, or None.

    `label`: of the legend's key that hides it. `name`: of the line in the tooltip and at its end; by default its label. `counts`:
    what each score is a mean of, for the tooltip, or one text for all of them.
    """

    label: str
    look: Look
    scores: Sequence[Interval | None]
    counts: Sequence[str] | str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A label to the right of the last column, which the line with this id reaches at `last`."""

    id: str
    last: float
    colour: str


def even_columns(ticks: Sequence[str], word: str = "") -> Columns:
    """Return columns at equal distances. `word` precedes their texts in the tooltip."""
    heads = [f"{word} {tick}".strip() for tick in ticks]
    places = range(len(ticks))
    return Columns(at=places, low=-0.5, high=len(ticks) - 0.5, ticks=ticks, heads=heads, notes=[""] * len(ticks))


def zero_to(top: float) -> Range:
    """Return the range from 0 to `top`, with room for points at its ends."""
    return Range("all", -0.03 * top, 1.03 * top)


def line_chart(
    described: str,
    lines: Sequence[Line],
    columns: Columns,
    choices: Sequence[Range],
    *,
    start: int = 0,
    better: str = "lower",
    background: Iterable[Layer] = (),
    endings: Sequence[Ending] | None = None,
    names: Sequence[str] = (),
    baselines: Sequence[Mapping[str, Any]] = (),
    height: int = HEIGHT,
) -> Chart:
    """Return a chart of lines with their intervals as bands.

    `choices`: the vertical axes that the reader can choose from; `start` is the first one shown. `background`: layers below the
    lines. `endings` and their `names`: by default, those of the lines. `better`: what comes first in the tooltip, "lower" or
    "higher".
    """
    if endings is None:
        labelled = [(f"s{n}", line, last) for n, line in enumerate(lines) if (last := _last_mean(line)) is not None]
        endings = [Ending(id=id, last=last, colour=line.look.colour) for id, line, last in labelled]
        names = [line.name or line.label for _, line, _ in labelled]
    data = rows(lines, columns.at, choices)
    layers = [
        *background,
        *_line_layers(data, lines, columns, choices),
        *_ending_layers(endings, columns, choices, height),
    ]
    series = [
        {
            "id": f"s{number}",
            "label": line.label,
            "name": line.name or line.label,
            "points": [
                None if score is None else _tip(score, line.counts if isinstance(line.counts, str) else line.counts[n])
                for n, score in enumerate(line.scores)
            ],
        }
        for number, line in enumerate(lines)
    ]
    tooltip = [
        {"x": x, "text": head, "note": note}
        for x, head, note in zip(columns.at, columns.heads, columns.notes, strict=True)
    ]
    return Chart(
        described=described,
        height=height,
        data={
            "spec": spec(layers, height, data, {"x_ticks": texts(columns.at, columns.ticks)}, start),
            "series": series,
            "names": names,
            "columns": tooltip,
            "better": better,
            "baselines": baselines,
        },
    )


def rows(lines: Sequence[Line], at: Sequence[float], choices: Sequence[Range]) -> list[dict[str, Any]]:
    """Return one row per line and column. A score that is missing or not finite is null, which interrupts the line there.

    `over`: for each range, the position of the row's arrow among the `outside` arrows of that column, or −1 without an arrow.
    With many columns, only the first of several neighbouring columns beyond the range has an arrow.
    """
    many = len(at) > MANY
    before: dict[tuple[int, int], bool] = {}
    result: list[dict[str, Any]] = []
    for column, x in enumerate(at):
        outside = [0] * len(choices)
        here = []
        for number, line in enumerate(lines):
            score = line.scores[column]
            row: dict[str, Any] = {"e": f"s{number}", "x": x, "y": None, "lo": None, "hi": None}
            row["over"] = [-1] * len(choices)
            if score is not None and math.isfinite(score.mean):
                row["y"] = score.mean
                if score.basis != "none":
                    row["lo"], row["hi"] = score.low, score.high
                for n, choice in enumerate(choices):
                    beyond, known = score.mean > choice.high, many and before.get((number, n), False)
                    if beyond and not known:
                        row["over"][n], outside[n] = outside[n], outside[n] + 1
                    before[number, n] = beyond
            here.append(row)
        result += [row | {"outside": outside} for row in here]
    return result


def label_heights(targets: Sequence[float], height: float) -> list[float]:
    """Return heights for labels near the targets, in the same order: within the chart and at least `LABEL_DISTANCE` apart.

    Where there are too many labels for the chart, the upper ones lie above it.
    """
    order = sorted(range(len(targets)), key=lambda n: targets[n])
    heights = [0.0] * len(targets)
    last = -math.inf
    for n in order:  # downwards
        heights[n] = last = max(targets[n], last + LABEL_DISTANCE, 6.0)
    limit = height - 6.0
    for n in reversed(order):  # upwards from the lower edge
        heights[n] = limit = min(heights[n], limit)
        limit -= LABEL_DISTANCE
    return [round(height, 1) for height in heights]


def _last_mean(line: Line) -> float | None:
    return next((i.mean for i in reversed(line.scores) if i is not None and math.isfinite(i.mean)), None)


def _line_layers(
    data: Sequence[Mapping[str, Any]], lines: Sequence[Line], columns: Columns, choices: Sequence[Range]
) -> list[Layer]:
    """Return the bands, interval bars, lines, points and arrows of all lines."""
    axis = {
        "title": None,
        "grid": False,
        "values": list(columns.at),
        "labelExpr": label("x_ticks"),
        "labelOverlap": "greedy",
        "labelSeparation": 6,
        "labelLineHeight": 15,
    }
    kind = {"type": "log", "base": 2} if columns.log else {"type": "linear", "zero": False}
    scale = {**kind, "domain": [columns.low, columns.high], "nice": False}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}
    limits: list[Any] = [choices[0].low, choices[0].high]
    if len(choices) > 1:
        limits = [{"expr": f"{values}[range]"} for values in ([c.low for c in choices], [c.high for c in choices])]
    y = {
        "field": "y",
        "type": "quantitative",
        "scale": {"domain": limits, "nice": False, "zero": False},
        "axis": {"title": None, "tickCount": 6, "labelPadding": 6},
    }
    ids, looks = [f"s{n}" for n in range(len(lines))], [line.look for line in lines]
    colour, shape, dash = (
        by_id(ids, values)
        for values in ([k.colour for k in looks], [k.shape for k in looks], [list(k.dash) for k in looks])
    )
    band = {"x": x, "y": {"field": "lo", "type": "quantitative"}, "y2": {"field": "hi"}, "color": colour}
    mean = {"x": x, "y": y, "color": colour, "opacity": faded({"value": 1}, 0.12)}
    edge = {"stroke": "var(--paper)", "strokeWidth": 1}
    many = len(columns.at) > MANY
    marks: list[tuple[str, Layer, Layer]] = [
        ("datum.x == at", {"type": "rule", "color": "var(--faint)", "strokeDash": [2, 3]}, {"x": x}),
        ("", {"type": "area", "clip": True}, band | {"opacity": faded({"value": 0.13}, 0.02)}),
        ("", {"type": "line", "clip": True, "strokeWidth": 2}, mean | {"strokeDash": dash}),
        (
            "datum.y != null",
            {"type": "point", "clip": True, "filled": True, "size": 40 if many else 130, **edge},
            mean | {"shape": shape},
        ),
    ]
    if not many:  # with many columns, the band is enough
        bar = {"type": "rule", "clip": True, "strokeWidth": 1.2}
        marks.insert(2, ("datum.lo != null", bar, band | {"opacity": faded({"value": 0.5}, 0.06)}))
    if any(over >= 0 for row in data for over in row["over"]):
        offset = {"expr": "(datum.over[range] - (datum.outside[range] - 1) / 2) * 14"}
        arrow = {"type": "point", "shape": ARROW, "filled": True, "size": 130, "y": 10, "xOffset": offset}
        marks.append(("datum.over[range] >= 0", arrow, {k: v for k, v in mean.items() if k != "y"}))
    return [
        {"transform": [{"filter": f} for f in (SHOWN, test) if f], "mark": mark, "encoding": encoding}
        for test, mark, encoding in marks
    ]


def _ending_layers(endings: Sequence[Ending], columns: Columns, choices: Sequence[Range], height: int) -> list[Layer]:
    """Return the labels to the right of the last column, and the lines that lead to them."""
    if not endings:
        return []
    heights = [label_heights([_pixel(e.last, choice, height) for e in endings], height) for choice in choices]
    x = {"x": {"datum": columns.at[-1], "type": "quantitative"}}
    ends: list[Layer] = [{"e": e.id, "n": n, "colour": e.colour} for n, e in enumerate(endings)]
    starts = [
        end | {"dx": 1, "at": [_pixel(endings[n].last, c, height) for c in choices]} for n, end in enumerate(ends)
    ]
    stops = [end | {"dx": 11, "at": [by_range[n] for by_range in heights]} for n, end in enumerate(ends)]
    leaders = [row for pair in zip(starts, stops, strict=True) for row in pair]
    labels = [
        row | {"beyond": [beyond(e.last, choice) for choice in choices]} for row, e in zip(stops, endings, strict=True)
    ]
    place = {"xOffset": {"expr": "datum.dx"}, "y": {"expr": "datum.at[range]"}}
    leader = {"type": "line", "strokeWidth": 0.8, **place}
    text = {"type": "text", "align": "left", "baseline": "middle", "dx": 13, "fontSize": 11, "color": "var(--soft)"}
    text |= {"y": place["y"], "text": {"expr": "datum.beyond[range] + names[datum.n]"}}
    text |= {"limit": {"expr": "containerSize()[0] < 480 ? 90 : 150"}}
    colour = {"field": "colour", "type": "nominal", "scale": None}
    detail = {"field": "e", "type": "nominal"}
    return [
        {
            "data": {"values": values},
            "transform": [{"filter": SHOWN}],
            "mark": mark,
            "encoding": x | encoding | {"opacity": faded({"value": 1}, 0.12)},
        }
        for values, mark, encoding in ((leaders, leader, {"color": colour, "detail": detail}), (labels, text, {}))
    ]


def beyond(value: float, choice: Range) -> str:
    """Return the arrow before the label of a line that ends outside of the range, or ""."""
    return "↑ " if value > choice.high else "↓ " if value < choice.low else ""


def _pixel(value: float, choice: Range, height: int) -> float:
    """Return the distance of a value from the top of the axis, in pixels. Values outside lie at the edge."""
    share = (choice.high - value) / (choice.high - choice.low)
    return round(height * min(max(share, 0.0), 1.0), 1)


def _tip(score: Interval, count: str) -> dict[str, Any]:
    return {
        "y": score.mean if math.isfinite(score.mean) else None,
        "mean": figure(score.mean),
        "interval": interval_text(score),
        "n": count,
    }


def interval_text(interval: Interval) -> str:
    """Return the two ends of an interval, or that there is none."""
    if interval.basis == "none":
        return "no interval"
    ends = f"{figure(interval.low)} … {figure(interval.high)}"
    return ends + (" over examples" if interval.basis == "examples" else "")
