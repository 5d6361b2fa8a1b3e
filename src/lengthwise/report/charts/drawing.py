"""Draw declared charts by Altair, for the page and for files of their own.

On the page, colours are CSS variables, so the page changes between light, dark and print without drawing again. The
page sets the parameters `hidden` (labels), `focus` (a label or ""), `at` (the column under the pointer, or null) and
`range` (the index of the vertical axis). Texts from users are data, or JSON inside an expression. Small charts are
charts of their own in a grid of the page, because the charts of a Vega-Lite facet have a fixed width.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import altair as alt

from lengthwise.measurements.table import Table
from lengthwise.report.charts.chart import Chart, Columns

CONFIG: dict[str, Any] = {
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif",
    "axis": {
        "labelColor": "var(--soft)",
        "labelFontSize": 12,
        "domain": False,
        "ticks": False,
        "gridColor": "var(--grid)",
        "gridWidth": 1,
        "titleColor": "var(--soft)",
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "axisX": {"domain": True, "domainColor": "var(--rule)", "labelPadding": 8},
    "legend": {"labelColor": "var(--ink)", "labelFontSize": 12, "symbolSize": 110, "symbolStrokeWidth": 2},
    "title": {"anchor": "start", "color": "var(--ink)", "fontSize": 14, "subtitleColor": "var(--faint)", "offset": 12},
    "view": {"stroke": None},
    "aria": False,  # the page itself describes the chart, and has its numbers in a table
}
FIT = {"autosize": {"type": "fit-x", "contains": "padding"}, "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2}}
ARROW = "M0,-1L.95,.1H.4V1H-.4V.1H-.95Z"
MANY = 12  # with more columns, points are small
PALEST = 0.05  # opacity of the worst score; a cell without a score is empty
WIDTH, ALONE = 460, 180  # pixels: the width of a chart in a file, and the height of one that is small on the page
LETTER = 6.4  # pixels
MARK_WIDTH = 240  # pixels that the long text beside a mark needs

Layers = Iterator[alt.Chart]


def page_data(chart: Chart) -> dict[str, Any]:
    """Return what the page's script reads: the spec, its rows by columns, and the tooltip's texts."""
    with alt.utils.schemapi.debug_mode(False):  # tests validate each kind of chart, which takes seconds for a page
        spec = _layered(_Drawing(chart), "rows").to_dict(validate=False)
    del spec["config"]
    state: dict[str, Any] = {"hidden": [], "focus": "", "at": None, "range": chart.start}
    spec["params"] = [{"name": name, "value": value} for name, value in state.items()]
    columns = chart.columns if chart.has_tooltip else None
    heads = zip(columns.at, columns.heads, strict=True) if columns else ()
    return {
        "spec": spec,
        "rows": Table.from_rows(chart.rows).columns,
        "columns": [{"x": x, "text": text, "note": note} for x, (text, note) in heads],
        "better": chart.better,
    }


def file_spec(charts: Sequence[tuple[str, str, Chart]], background: str) -> dict[str, Any]:
    """Return the spec of charts one above the other, each with its title and the note below it, for a file."""
    with alt.utils.schemapi.debug_mode(False):
        drawn = [
            _layered(_Drawing(chart, alone=True), f"rows {n}", title=alt.TitleParams(text=title, subtitle=note))
            for n, (title, note, chart) in enumerate(charts)
        ]
        independent = alt.ScaleResolveMap(color="independent", shape="independent", strokeDash="independent")
        together = alt.VConcatChart(vconcat=drawn, spacing=28, resolve=alt.Resolve(scale=independent))
        spec: dict[str, Any] = together.to_dict(validate=False)
    for n, (_, _, chart) in enumerate(charts):
        spec.setdefault("datasets", {})[f"rows {n}"] = list(chart.rows)
    return spec | {"config": CONFIG, "background": background, "padding": 12}


def _layered(drawing: "_Drawing", data: str, **more: Any) -> alt.LayerChart:
    """Return a chart of the rows with this name. Altair does not see the rows, which it would copy."""
    chart = drawing.chart
    layers = {"lines": drawing.lines, "curves": drawing.curves, "bars": drawing.bars, "heat map": drawing.heat_map}
    if drawing.alone:
        size: dict[str, Any] = {"width": WIDTH, "height": ALONE if chart.kind in ("curves", "bars") else chart.height}
    else:
        size = {"width": "container", "height": chart.height, "background": "transparent"}
    return alt.LayerChart(data=alt.NamedData(data), layer=list(layers[chart.kind]()), **size, **more)


class _Drawing:
    """The layers of one chart. `alone`: in a file, where nothing changes, and axes and colours have names."""

    def __init__(self, chart: Chart, alone: bool = False) -> None:
        self.chart, self.alone = chart, alone
        self.range = str(chart.start) if alone else "range"
        self.width = str(WIDTH) if alone else "width"
        self.shown = alt.Chart() if alone else alt.Chart().transform_filter("indexof(hidden, datum.label) < 0")
        self.once = alt.Chart(alt.InlineData(values=[{}]))

    # ---- axes, colours, opacities ---------------------------------------------------------------------------------

    def title(self, text: str, space: float) -> str | list[str] | None:
        """Return the title of an axis in lines, None on the page."""
        return wrap(text, max(12, round(space / LETTER))) if self.alone and text else None

    def x(self, columns: Columns) -> alt.X:
        """Return the horizontal axis with texts at places."""
        kind: dict[str, Any] = {"type": "log", "base": 2} if columns.log else {"type": "linear", "zero": False}
        scale = alt.Scale(**kind, domain=[columns.low, columns.high], padding=columns.padding, nice=False)
        at = list(columns.at)
        small: dict[str, Any] = {"labelFontSize": 11, "labelPadding": 5, "labelFlush": True}
        axis = alt.Axis(
            title=self.title(self.chart.across, WIDTH),
            grid=False,
            values=at,
            # Without this number, Vega leaves out some of the values where the chart is narrow.
            tickCount=len(at) if len(at) <= MANY else alt.Undefined,
            labelExpr=f"{json.dumps(list(columns.ticks))}[indexof({json.dumps(at)}, datum.value)]",
            labelLineHeight=15,
            labelOverlap="greedy",
            labelSeparation=6,
            **(small if self.chart.kind == "curves" else {}),
        )
        return alt.X("x:Q", scale=scale, axis=axis)

    def y(self, field: str = "y") -> alt.Y:
        """Return the vertical axis of the range that is shown. That of a small chart has texts at its ends."""
        ranges = self.chart.ranges
        limits: list[Any] = [ranges[0].low, ranges[0].high]
        if len(ranges) > 1:
            limits = [{"expr": f"{ends}[{self.range}]"} for ends in ([r.low for r in ranges], [r.high for r in ranges])]
        axis: dict[str, Any] = {"tickCount": 6, "labelPadding": 6}
        if self.chart.kind != "lines":
            low, high = limits
            values = sorted({low, 0.0, high} if low < 0 < high else {low, high})
            axis = {"values": values, "labelFontSize": 11, "labelPadding": 4, "labelOverlap": "greedy"}
            axis["labelExpr"] = f"format(datum.value, '{'~%' if self.chart.percent else '~g'}')"
        title = self.title(self.chart.upwards, self.chart.height)
        scale = alt.Scale(domain=limits, nice=False, zero=False)
        return alt.Y(f"{field}:Q", scale=scale, axis=alt.Axis(title=title, **axis))

    def texts(self, name: str, **axis: Any) -> dict[str, Any]:
        """Return the scale and the axis of a column of texts at equal distances."""
        values = self.chart.values(name)
        common: dict[str, Any] = {"grid": False, "labelFontSize": 11, "labelAngle": 0, "domain": name == "x"}
        return {"sort": values, "scale": alt.Scale(domain=values), "axis": alt.Axis(**common | axis)}

    def look(self, attribute: str) -> dict[str, Any]:
        """Return the scale of an attribute of looks, with a legend if the chart stands alone and has several labels."""
        looks = self.chart.looks
        values = [getattr(look, attribute) for look in looks.values()]
        values = [list(value) if isinstance(value, tuple) else value for value in values]
        named = {end["label"] for end in self.chart.ends} >= set(looks)
        legend: alt.Legend | None = None
        if self.alone and len(looks) > 1 and not named:
            longest = min(max(map(len, looks)), 32)
            columns = max(1, math.floor(WIDTH / (LETTER * longest + 50)))
            symbols = {"symbolType": "stroke"} if self.chart.kind == "curves" else {"symbolStrokeWidth": 0}
            legend = alt.Legend(
                orient="bottom", title=None, columns=columns, labelLimit=220, symbolOpacity=1, **symbols
            )
        return {"scale": alt.Scale(domain=list(looks), range=values), "legend": legend}

    @property
    def colour(self) -> alt.Color:
        return alt.Color("label:N", **self.look("colour"))

    @property
    def dash(self) -> alt.StrokeDash:
        return alt.StrokeDash("label:N", **self.look("dash"))

    def opacity(self, usual: float | str, faded: float) -> alt.OpacityValue | alt.Opacity:
        """Return an opacity, or the field that has it, that is `faded` while the page highlights another label."""
        other: dict[str, Any] = {"test": "focus != '' && datum.label != focus", "value": faded}
        more: dict[str, Any] = {} if self.alone else {"condition": [other]}
        if isinstance(usual, str):
            return alt.Opacity(usual, type="quantitative", scale=None, legend=None, **more)
        return alt.OpacityValue(usual, **more)

    # ---- kinds of charts ------------------------------------------------------------------------------------------

    def lines(self) -> Layers:
        chart, columns = self.chart, self._columns
        x, y, many = self.x(columns), self.y(), len(columns.at) > MANY
        yield from self._background()
        if any("baseline" in row for row in chart.rows):
            baselines = alt.Chart().transform_filter("isValid(datum.baseline)")
            dashed = baselines.mark_line(clip=True, color="var(--faint)", strokeWidth=1.3, strokeDash=[4, 3])
            yield dashed.encode(x=x, y=y, detail=alt.Detail("name:N"))
        if not self.alone:
            yield (
                self.shown.transform_filter("datum.x == at")
                .mark_rule(color="var(--faint)", strokeDash=[2, 3])
                .encode(x=x)
            )
        series = self.shown.transform_filter("!isValid(datum.baseline)").encode(
            x=x, color=self.colour, detail=alt.Detail("name:N")
        )
        ends = {"y": self.y("low"), "y2": alt.Y2("high:Q")}
        yield series.mark_area(clip=True).encode(**ends, opacity=self.opacity(0.13, 0.02))
        if not many:  # with many columns, the band is enough
            bars = series.transform_filter("isValid(datum.low)").mark_rule(clip=True, strokeWidth=1.2)
            yield bars.encode(**ends, opacity=self.opacity(0.5, 0.06))
        mean = series.encode(opacity=self.opacity(1, 0.12))
        yield mean.mark_line(clip=True, strokeWidth=2).encode(y=y, strokeDash=self.dash)
        size = 40 if many else 130
        points = mean.transform_filter("isValid(datum.y)")
        points = points.mark_point(clip=True, filled=True, stroke="var(--paper)", strokeWidth=1, size=size)
        yield points.encode(y=y, shape=alt.Shape("label:N", **self.look("shape")))
        if any(row["y"] is not None and row["y"] > r.high for row in chart.rows for r in chart.ranges):
            yield self._arrows(mean, many)
        yield from self._ends(x)

    def _arrows(self, series: alt.Chart, many: bool) -> alt.Chart:
        """Return arrows at the upper edge, side by side in each column, for means above it.

        With many columns, only the first of several neighbouring columns above the edge has an arrow.
        """
        high = f"{[choice.high for choice in self.chart.ranges]}[{self.range}]"
        series = series.transform_window(before="lag(y)", groupby=["name"], sort=[alt.SortField("x")])
        series = series.transform_filter(f"datum.y > {high}" + (f" && !(datum.before > {high})" if many else ""))
        series = series.transform_window(number="row_number()", frame=[None, 0], groupby=["x"])
        series = series.transform_joinaggregate(count="count()", groupby=["x"])
        offset = alt.ExprRef("(datum.number - (datum.count + 1) / 2) * 14")
        return series.mark_point(shape=ARROW, filled=True, size=130, y=10, xOffset=offset)

    def _ends(self, x: alt.X) -> Layers:
        """Yield the texts to the right of the last column, and the lines that lead to them."""
        if not self.chart.ends:
            return
        ends = self.shown.properties(data=alt.InlineData(values=list(self.chart.ends)))
        last = alt.XDatum(self._columns.at[-1], type="quantitative")
        ends = ends.encode(x=last, opacity=self.opacity(1, 0.12))
        yield ends.mark_rule(strokeWidth=0.8, xOffset=1, x2Offset=11).encode(
            x2=alt.X2Datum(self._columns.at[-1]),
            y=alt.YValue(alt.ExprRef(f"datum.last[{self.range}]")),
            y2=alt.Y2Value(alt.ExprRef(f"datum.at[{self.range}]")),
            color=alt.Color("colour:N", scale=None),
        )
        yield ends.mark_text(
            align="left",
            baseline="middle",
            dx=13,
            fontSize=11,
            color="var(--soft)",
            y=alt.ExprRef(f"datum.at[{self.range}]"),
            text=alt.ExprRef(f"datum.text[{self.range}]"),
            limit=150 if self.alone else alt.ExprRef("containerSize()[0] < 480 ? 90 : 150"),
        )

    def _background(self) -> Layers:
        """Yield what is behind the lines: shaded parts, and the mark with its texts."""
        for low, high in self.chart.shaded:
            yield self.once.mark_rect(color="var(--new)", clip=True).encode(x=alt.XDatum(low), x2=alt.X2Datum(high))
        mark, columns = self.chart.mark, self.chart.columns
        if mark is None or columns is None:
            return
        at = self.once.encode(x=alt.XDatum(mark.at))
        yield at.mark_rule(color="var(--ink)", strokeWidth=1.2, opacity=0.75)
        scale: Callable[[float], float] = math.log if columns.log else float
        share = (scale(columns.high) - scale(float(mark.at))) / (scale(columns.high) - scale(columns.low))
        long, brief = map(json.dumps, mark.right)
        above: dict[str, Any] = {"y": -9, "baseline": "bottom", "fontSize": 12}
        yield at.mark_text(**above, text=mark.left, color="var(--ink)", dx=-6, align="right")
        right = alt.ExprRef(f"{self.width} * {share:.4f} > {MARK_WIDTH} ? {long} : {brief}")
        yield at.mark_text(**above, text=right, color="var(--soft)", dx=6, align="left", fontStyle="italic")

    def curves(self) -> Layers:
        yield from self._background()
        line = self.shown.mark_line(clip=True, strokeWidth=1.3).encode(
            x=self.x(self._columns),
            y=self.y(),
            color=self.colour,
            detail=alt.Detail("name:N"),
            opacity=self.opacity("opacity", 0.12),
        )
        yield line.encode(strokeDash=self.dash) if len(self.chart.looks) > 1 else line

    def bars(self) -> Layers:
        chart = self.chart
        title = self.title(chart.across, WIDTH)
        x = alt.X("x:O", **self.texts("x", title=title, labelOverlap="greedy", labelSeparation=6, labelPadding=5))
        bars = alt.Chart().mark_bar(clip=True).encode(x=x, y=self.y(), color=self.colour)
        opacity = 0.6 if "step" in chart.rows[0] else 1
        yield bars.encode(xOffset=alt.XOffset("label:N", sort=chart.values("label")), opacity=alt.OpacityValue(opacity))
        whisker = alt.Chart().transform_filter("isValid(datum.low)")
        whisker = whisker.mark_rule(color="var(--ink)", opacity=0.75, clip=True)
        yield whisker.encode(x=x, y=self.y("low"), y2=alt.Y2("high:Q"))
        if "step" in chart.rows[0]:
            step = alt.Chart().mark_line(interpolate="step", color="var(--ink)", strokeWidth=1.3, clip=True)
            yield step.encode(x=x, y=self.y("step"))

    def heat_map(self) -> Layers:
        chart = self.chart
        across, upwards = self.title(chart.across, WIDTH), self.title(chart.upwards, 10 * LETTER)
        x = alt.X("x:O", **self.texts("x", title=across, labelOverlap="greedy", labelSeparation=6))
        y = alt.Y("label:O", **self.texts("label", title=upwards, labelLimit=150))
        shade = alt.Opacity("shade:Q", scale=None, legend=None)
        cells = alt.Chart().transform_filter("isValid(datum.y)")
        cells = cells.transform_calculate(shade=f"{PALEST} + {1 - PALEST} * datum.y")
        yield cells.mark_rect(color="var(--c1)", stroke="var(--paper)", strokeWidth=0.5).encode(x=x, y=y, opacity=shade)
        if chart.mark is not None:
            rule = self.once.mark_rule(color="var(--ink)", strokeWidth=1.2)
            yield rule.encode(x=alt.XDatum(chart.mark.at, type="ordinal", bandPosition=0))

    @property
    def _columns(self) -> Columns:
        assert self.chart.columns is not None
        return self.chart.columns
