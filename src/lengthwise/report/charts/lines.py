"""Charts of lines with intervals: the scores of a task, and those of probes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.numbers import figure
from lengthwise.report.charts.spec import SHOWN, Chart, Layer, by_id, faded, label, short, spec, texts
from lengthwise.report.palette import Look

ARROW = "M0,-1L.95,.1H.4V1H-.4V.1H-.95Z"
MANY = 12  # with more columns, points are small
DIGITS = 8  # of numbers in the page, which has 100,000 of them if a study is large
LABEL_DISTANCE = 14  # pixels between the labels at the ends of two lines
HEIGHT = 240  # pixels
PADDING = 24  # pixels left and right of columns


@dataclass(frozen=True)
class Range:
    """A vertical axis from `low` to `high`. Arrows at the upper edge mark means above it. `name`: the text of its button."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The horizontal axis of a line chart, from `low` to `high`, with `padding` pixels at both ends.

    `at`: where the columns are, ascending. `ticks`: the text below each one, or its lines. `heads`: the head of the tooltip, and a
    note beside it.
    """

    at: Sequence[float]
    low: float
    high: float
    ticks: Sequence[str | list[str]]
    heads: Sequence[tuple[str, str]]
    log: bool = False
    padding: int = 0


@dataclass(frozen=True)
class Line:
    """A line with intervals: in each column a score, or None. `counts`: what each score is a mean of, or one text for all.

    `label`: of the legend's key that hides it. `name`: of the line in the tooltip and at its end; by default its label.
    """

    label: str
    look: Look
    scores: Sequence[Interval | None]
    counts: Sequence[str] | str
    name: str = ""

    @property
    def means(self) -> list[float]:
        return [i.mean for i in self.scores if i is not None and math.isfinite(i.mean)]


class Ending(NamedTuple):
    """A label to the right of the last column, which the line with this id reaches at `last`."""

    id: str
    name: str
    last: float
    colour: str


def even_columns(ticks: Sequence[str], word: str = "") -> Columns:
    """Return columns at equal distances. `word` precedes their texts in the tooltip."""
    heads = [(f"{word} {tick}".strip(), "") for tick in ticks]
    low, high = (0.0, len(ticks) - 1.0) if len(ticks) > 1 else (-0.5, 0.5)
    return Columns(at=range(len(ticks)), low=low, high=high, padding=PADDING, ticks=ticks, heads=heads)


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
    baselines: Sequence[Mapping[str, Any]] = (),
    height: int = HEIGHT,
) -> Chart:
    """Return a chart of lines with their intervals as bands.

    `choices`: the vertical axes that the reader can choose from; `start` is the first one shown. `background`: layers below the
    lines. `endings`: by default, those of the lines. `better`: what comes first in the tooltip, "lower" or "higher".
    """
    named = [(f"s{n}", line.name or line.label, line) for n, line in enumerate(lines)]
    if endings is None:
        endings = [Ending(id, name, line.means[-1], line.look.colour) for id, name, line in named if line.means]
    data = rows(lines, columns.at, choices)
    marks = _line_layers(data, lines, columns, choices)
    layers = [*background, *marks, *_ending_layers(endings, columns, choices, height)]
    series = [{"id": id, "label": line.label, "name": name, **_tips(line)} for id, name, line in named]
    heads = zip(columns.at, columns.heads, strict=True)
    return Chart(
        described=described,
        data={
            "spec": spec(layers, height, data, {"x_ticks": texts(columns.at, columns.ticks)}, start),
            "series": series,
            "names": [ending.name for ending in endings],
            "columns": [{"x": x, "text": head, "note": note} for x, (head, note) in heads],
            "better": better,
            "baselines": baselines,
        },
    )


def rows(lines: Sequence[Line], at: Sequence[float], choices: Sequence[Range]) -> list[dict[str, Any]]:
    """Return one row per line and column. A score that is missing or not finite is null, which interrupts the line there.

    `over`: for each range, the position of the row's arrow among the `outside` arrows of that column, or −1 without an arrow.
    With many columns, only the first of several neighbouring columns beyond the range has an arrow. Where no row has an
    arrow, both are left out.
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
                row["y"] = short(score.mean, DIGITS)
                if score.basis != "none":
                    row["lo"], row["hi"] = short(score.low, DIGITS), short(score.high, DIGITS)
                for n, choice in enumerate(choices):
                    beyond, known = score.mean > choice.high, many and before.get((number, n), False)
                    if beyond and not known:
                        row["over"][n], outside[n] = outside[n], outside[n] + 1
                    before[number, n] = beyond
            here.append(row)
        result += [row | {"outside": outside} for row in here]
    if not any(map(any, (row["outside"] for row in result))):  # no arrows
        result = [{name: value for name, value in row.items() if name not in ("over", "outside")} for row in result]
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


def _line_layers(
    data: Sequence[Mapping[str, Any]], lines: Sequence[Line], columns: Columns, choices: Sequence[Range]
) -> list[Layer]:
    """Return the bands, interval bars, lines, points and arrows of all lines."""
    axis = {
        "title": None,
        "grid": False,
        "values": list(columns.at),
        "labelExpr": label("x_ticks"),
        "labelLineHeight": 15,
    }
    many = len(columns.at) > MANY
    axis |= {"labelOverlap": "greedy", "labelSeparation": 6}
    if not many:
        axis["tickCount"] = len(columns.at)  # otherwise Vega leaves out some of the values where the chart is narrow
    kind = {"type": "log", "base": 2} if columns.log else {"type": "linear", "zero": False}
    scale = {**kind, "domain": [columns.low, columns.high], "padding": columns.padding, "nice": False}
    x = {"field": "x", "type": "quantitative", "scale": scale, "axis": axis}
    limits: list[Any] = [choices[0].low, choices[0].high]
    if len(choices) > 1:
        limits = [{"expr": f"{values}[range]"} for values in ([c.low for c in choices], [c.high for c in choices])]
    y_scale = {"domain": limits, "nice": False, "zero": False}
    y_axis = {"title": None, "tickCount": 6, "labelPadding": 6}
    y = {"field": "y", "type": "quantitative", "scale": y_scale, "axis": y_axis}
    ids = [f"s{n}" for n in range(len(lines))]
    colour, shape, dash = (
        by_id(ids, [getattr(line.look, name) for line in lines]) for name in ("colour", "shape", "dash")
    )
    band = {"x": x, "y": {"field": "lo", "type": "quantitative"}, "y2": {"field": "hi"}, "color": colour}
    mean = {"x": x, "y": y, "color": colour, "opacity": faded({"value": 1}, 0.12)}
    point = {"type": "point", "clip": True, "filled": True, "stroke": "var(--paper)", "strokeWidth": 1}
    point["size"] = 40 if many else 130
    marks: list[tuple[str, Layer, Layer]] = [
        ("datum.x == at", {"type": "rule", "color": "var(--faint)", "strokeDash": [2, 3]}, {"x": x}),
        ("", {"type": "area", "clip": True}, band | {"opacity": faded({"value": 0.13}, 0.02)}),
        ("", {"type": "line", "clip": True, "strokeWidth": 2}, mean | {"strokeDash": dash}),
        ("datum.y != null", point, mean | {"shape": shape}),
    ]
    if not many:  # with many columns, the band is enough
        bar = {"type": "rule", "clip": True, "strokeWidth": 1.2}
        marks.insert(2, ("datum.lo != null", bar, band | {"opacity": faded({"value": 0.5}, 0.06)}))
    if "over" in data[0]:
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
    x = {"x": {"datum": columns.at[-1], "type": "quantitative"}}
    lasts = [[_pixel(e.last, choice, height) for e in endings] for choice in choices]
    heights = [label_heights(of_range, height) for of_range in lasts]
    rows = [
        {
            "e": e.id,
            "n": n,
            "colour": e.colour,
            "last": [of_range[n] for of_range in lasts],
            "at": [of_range[n] for of_range in heights],
            "beyond": [beyond(e.last, choice) for choice in choices],
        }
        for n, e in enumerate(endings)
    ]
    leader = {"type": "rule", "strokeWidth": 0.8, "xOffset": 1, "x2Offset": 11}
    ends = {"x2": x["x"], "y": {"value": {"expr": "datum.last[range]"}}, "y2": {"value": {"expr": "datum.at[range]"}}}
    ends |= {"color": {"field": "colour", "type": "nominal", "scale": None}}
    text = {"type": "text", "align": "left", "baseline": "middle", "dx": 13, "fontSize": 11, "color": "var(--soft)"}
    text |= {"y": {"expr": "datum.at[range]"}, "text": {"expr": "datum.beyond[range] + names[datum.n]"}}
    text |= {"limit": {"expr": "containerSize()[0] < 480 ? 90 : 150"}}
    opacity = {"opacity": faded({"value": 1}, 0.12)}
    common: Layer = {"data": {"values": rows}, "transform": [{"filter": SHOWN}]}
    return [common | {"mark": mark, "encoding": x | more | opacity} for mark, more in ((leader, ends), (text, {}))]


def beyond(value: float, choice: Range) -> str:
    """Return the arrow before the label of a line that ends outside of the range, or ""."""
    return "↑ " if value > choice.high else "↓ " if value < choice.low else ""


def _pixel(value: float, choice: Range, height: int) -> float:
    """Return the distance of a value from the top of the axis, in pixels. Values outside lie at the edge."""
    share = (choice.high - value) / (choice.high - choice.low)
    return round(height * min(max(share, 0.0), 1.0), 1)


def _tips(line: Line) -> dict[str, Any]:
    """Return what the tooltip says about a line: its points, and what they are means of, once if that is the same everywhere."""
    counts = [line.counts] * len(line.scores) if isinstance(line.counts, str) else line.counts
    points = [
        None if s is None else {"y": short(s.mean, DIGITS), "mean": figure(s.mean), "interval": interval_text(s)}
        for s in line.scores
    ]
    shown = {count for point, count in zip(points, counts, strict=True) if point is not None}
    if len(shown) <= 1:
        return {"points": points, "n": "".join(shown)}
    return {"points": [point and point | {"n": n} for point, n in zip(points, counts, strict=True)]}


def interval_text(interval: Interval) -> str:
    """Return the two ends of an interval, or that there is none."""
    if interval.basis == "none":
        return "no interval"
    ends = f"{figure(interval.low)} … {figure(interval.high)}"
    return ends + (" over examples" if interval.basis == "examples" else "")
