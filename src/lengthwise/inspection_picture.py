"""Pictures of encodings as SVG or PNG, by Altair, from the data of `lengthwise.inspection`.

A picture has at most two panels, which show what distinguishes the encoding. The background is transparent, and all
colours have about the same contrast on white and on black (4 : 1). So the same file works on light and dark pages.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import altair as alt

from lengthwise.config import choose
from lengthwise.encodings import RoPE
from lengthwise.inspection import cosine, inspect

INK, RULE = "#7f7f7f", "#7f7f7f55"
COLOURS = ("#bf5e61", "#ba6734", "#a27900", "#678f37", "#009775", "#0092ae", "#4982c9", "#8c6dbf")
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2])
TICK_COUNT = 5  # about as many as an axis has
DIGITS = "format(datum.value, abs(datum.value) < 1 ? '.3~f' : ',.2~f')"  # of ticks
TEXT = {"labelColor": INK, "titleColor": INK, "labelFontSize": 11, "titleFontSize": 12, "titleFontWeight": "normal"}
CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "aria": False,  # the page describes the picture
    "view": {"stroke": None},
    "axis": {**TEXT, "domainColor": INK, "tickColor": INK, "gridColor": RULE},
    "legend": {**TEXT, "symbolStrokeWidth": 2, "symbolSize": 120},
    "title": {"color": INK, "fontSize": 13, "fontWeight": "bold", "anchor": "start", "offset": 16},
}
TICKS = {"x": [4**k for k in range(16)], "y": [10**k for k in range(16)]}  # of logarithmic axes
PNG_SCALE = 2.0

Data = dict[str, Any]
Points = list[tuple[float, float | None]]


@dataclass(frozen=True)
class Panel:
    """A chart with its caption. `is_nonzero`: whether any value is not 0, unlike in the initial bias of CoPE."""

    chart: alt.LayerChart
    description: str
    is_nonzero: bool


def picture(data: Data) -> tuple[str, str]:
    """Return the SVG of what `inspect` found, and what it shows in words; two empty texts for nothing."""
    panels = [panel for key, draw_panel in PANELS if key in data for panel in draw_panel(data)]
    chosen = [panel for panel in panels if panel.is_nonzero][:2]
    if not chosen:
        return "", ""
    descriptions = [panel.description for panel in chosen]
    if len(descriptions) == 2:
        descriptions = [f"left: {descriptions[0]}", f"right: {descriptions[1]}"]
    return svg(chosen), "; ".join(descriptions)


def as_png(svg_text: str) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_png(svg_text, scale=PNG_SCALE))


def svg(panels: Sequence[Panel]) -> str:
    import vl_convert

    scales = alt.Resolve(scale=alt.ScaleResolveMap(color="independent", strokeDash="independent"))
    together = alt.HConcatChart(hconcat=[panel.chart for panel in panels], spacing=36, resolve=scales)
    text = vl_convert.vegalite_to_svg(together.to_dict() | {"background": "transparent", "config": CONFIG})
    # Rounding coordinates to a tenth of a pixel halves the file. Numbers in texts stay as they are.
    tenth = lambda number: f"{float(number[0]):.1f}".removesuffix(".0")  # noqa: E731
    short = re.sub(r' (?:d|transform)="[^"]*"', lambda at: re.sub(r"-?\d+\.\d{2,}", tenth, at[0]), text)
    return renumbered_ids(short).rstrip() + "\n"


def renumbered_ids(text: str) -> str:
    """Return the SVG with IDs that count from 0. The library continues to count from picture to picture."""
    numbers = {name: f"id{n}" for n, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', text)))}
    return re.sub(r'( id="|url\(#|href="#)([^")]+)', lambda at: at[1] + numbers.get(at[2], at[2]), text)


def panel(
    data: Data,
    title: str,
    description: str,
    curves: dict[str, Points],
    x: str,
    y: str,
    *,
    log: str = "",
    rule: bool = True,
    grey: str = "",
    legend: bool = True,
) -> Panel:
    """Return a panel with named curves.

    `rule`: draw a line at the training length, horizontal if the y axis is logarithmic (wavelengths). `grey`: the curve
    to compare the others with.
    """
    thin = {name: _thinned(points, log) for name, points in curves.items()}
    if len(thin) > 4 and sum(map(len, thin.values())) > 40 * len(thin):  # many rough curves would hide each other
        description += f" ({len(list(thin)[::3])} of {len(thin)} {next(iter(thin)).split()[0]}s)"
        thin = {name: thin[name] for name in list(thin)[::3]}
    places = [float(a) for points in thin.values() for a, _ in points]
    few = max(places) - min(places) <= TICK_COUNT and all(map(float.is_integer, places))
    ticks = range(int(min(places)), int(max(places)) + 1) if few else None  # none between two positions
    names = list(thin)
    rows = [{"x": _short(a), "y": _short(b), "c": name} for name in names for a, b in thin[name]]
    others = [name for name in curves if name != grey]  # also those that are not drawn, so that colours stay
    colours = [INK if name == grey else COLOURS[_spread(others.index(name), len(others))] for name in names]
    dashes = [[2, 3] if name == grey else DASHES[others.index(name) % len(DASHES)] for name in names]
    key = alt.Legend(title=None, symbolType="stroke") if len(names) > 1 and legend else None
    lines = alt.Chart(alt.Data(values=rows)).mark_line(strokeWidth=1.8, clip=True)
    layers = [
        lines.encode(
            x=alt.X("x:Q", **_axis("x", x, log, ticks)),
            y=alt.Y("y:Q", **_axis("y", y, log)),
            color=alt.Color("c:N", sort=names, scale=alt.Scale(domain=names, range=colours), legend=key),
            strokeDash=alt.StrokeDash("c:N", sort=names, scale=alt.Scale(domain=names, range=dashes), legend=key),
        )
    ]
    if rule:
        across = "y" in log
        once = alt.Chart(alt.Data(values=[{}]))
        at = {"y": alt.YDatum(data["train_length"])} if across else {"x": alt.XDatum(data["train_length"])}
        place: Data = {"align": "right", "dy": -7, "x": "width"} if across else {"align": "center", "y": -7}
        words = once.mark_text(text="training length", color=INK, fontStyle="italic", fontSize=11, **place)
        layers += [once.mark_rule(color=INK, strokeDash=[3, 3]).encode(**at), words.encode(**at)]
    chart = alt.LayerChart(layer=layers, title=title, width=300, height=220)
    return Panel(chart, description, any(row["y"] for row in rows))


def _axis(axis: str, title: str, log: str, at: Sequence[int] | None = None) -> Data:
    """Return the scale and the axis of "x" or "y", which is logarithmic if its name is in `log`.

    `at`: where the ticks of a linear axis are. By default the drawing library chooses.
    """
    is_log = axis in log
    scale = alt.Scale(type="log" if is_log else "linear", zero=False, nice=axis == "y" and not is_log)
    ticks: Data = {"values": TICKS[axis], "labelExpr": "format(datum.value, '~s')"} if is_log else {"labelExpr": DIGITS}
    if at and not is_log:
        ticks["values"] = list(at)
    return {"scale": scale, "axis": alt.Axis(title=title or None, tickCount=TICK_COUNT, grid=axis == "y", **ticks)}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _spread(number: int, count: int) -> int:
    """Return the index of a colour. The fewer curves there are, the more their colours differ."""
    return round(number * (len(COLOURS) - 1) / max(count - 1, 1)) if count > 1 else 6


def _points(values: Sequence[float | None], first: int = 0) -> Points:
    return [(first + k, value) for k, value in enumerate(values)]


def _thinned(points: Points, log: str) -> list[tuple[float, float]]:
    """Return the points that are needed for straight lines between them to be within half a pixel of all points."""
    drawable = [(x, y) for x, y in points if y is not None]
    at = [tuple(math.log(v) if axis in log else v for axis, v in zip("xy", point, strict=True)) for point in drawable]
    if len(drawable) < 3:
        return drawable
    spans = [(max(p[k] for p in at) - min(p[k] for p in at)) or 1.0 for k in (0, 1)]
    at = [(300 * p[0] / spans[0], 220 * p[1] / spans[1]) for p in at]
    chosen, segments = {0, len(at) - 1}, [(0, len(at) - 1)]
    while segments:
        start, stop = segments.pop()
        (x0, y0), (x1, y1) = at[start], at[stop]
        off = [abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y) for x, y in at[start + 1 : stop]]
        if off and max(off) > 0.4:
            worst = start + 1 + off.index(max(off))
            chosen.add(worst)
            segments += [(start, worst), (worst, stop)]
    return [drawable[k] for k in sorted(chosen)]


def _heads(curves: Sequence[Sequence[float | None]], first: int = 0) -> dict[str, Points]:
    if len(curves) == 1:
        return {"every head": _points(curves[0], first)}
    return {f"head {h}": _points(curve, first) for h, curve in enumerate(curves)}


# ---- the panels ---------------------------------------------------------------------------------------------------


def _gain(data: Data) -> list[Panel]:
    what = "the factor by which the logits of each query are multiplied"
    return [
        panel(data, "gain of a query's logits", what, _heads(data["query_gain"]), "position of the query", "factor")
    ]


def _sinks(data: Data) -> list[Panel]:
    """Return the share of sinks with different logits, because the learned ones are equal at first."""
    curves = {
        f"s = {s}": _points([1 / (1 + n / math.exp(s)) for n in range(1, data["length"])], 1) for s in (-2, 0, 2, 4)
    }
    what = "the weight of a sink with the logit s if the logits of all keys are 0"
    return [panel(data, "weight of the sink", what, curves, "visible keys", "weight")]


def _coordinate(data: Data) -> list[Panel]:
    trained, last = data["train_length"], data["length"] - 1
    queries = dict.fromkeys(min(i, last) for i in (trained // 2, trained, 2 * trained, last))
    curves = {f"query {i}": _points(data["coordinate"][i][i::-1]) for i in queries}
    what = "the coordinate x of keys at each distance, for four queries"
    return [panel(data, "coordinate", what, curves, "distance", "x")]


def _bias(data: Data) -> list[Panel]:
    bias, ahead, last = data["bias"], data.get("bias_ahead"), data["length"] - 1
    if isinstance(bias[0][0], list):
        condition = f", for {data['bias_given']}" if "bias_given" in data else ""
        bias = [head[last][::-1] for head in bias]
        what = f"the bias of query {last}{condition}"
        shares = _shares(bias)
        legend = "coordinate" in data or len(shares) == 1
        return [panel(data, "bias, nats", what, _heads(bias), "distance", "", legend=legend), _share(data, shares)]
    heads = _heads(bias)
    if ahead:
        before = min(data["train_length"], len(ahead[0]))
        both = [[*side[before - 1 :: -1], *head] for side, head in zip(ahead, bias, strict=True)]
        heads = _heads(both, -before)
    return [
        panel(data, "bias, nats", "the bias at each distance", heads, "distance", "", legend=False),
        _share(data, _shares(bias)),
    ]


def _shares(bias: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the share of attention on the nearest keys if all keys have the same product with the query.

    If all heads are within 1 % of their mean, returns the mean alone.
    """
    curves = []
    for head in bias:
        highest = max(head)
        weights = [math.exp(b - highest) for b in head]
        total, so_far, shares = sum(weights), 0.0, []
        for weight in weights:
            so_far += weight
            shares.append(so_far / total)
        curves.append(shares)
    means = [sum(of_heads) / len(curves) for of_heads in zip(*curves, strict=True)]
    apart = max(abs(share - mean) for curve in curves for share, mean in zip(curve, means, strict=True))
    return [means] if apart < 0.01 else curves


def _share(data: Data, curves: Sequence[Sequence[float]]) -> Panel:
    last = data["length"] - 1
    what = f"the share of attention on the nearest keys of query {last}, if all keys have the same product with it"
    what += " (mean of the heads, which differ by less than 1 %)" if len(curves) == 1 else ""
    named = {name: [(x + 1, y) for x, y in points] for name, points in _heads(curves).items()}
    return panel(data, "share of the attention", what, named, "nearest keys", "", log="x")


def _rotation(data: Data) -> list[Panel]:
    """Return panels of the rotation beside that of RoPE. An encoding with the rotation of RoPE has none."""
    sizes = {name: data[name] for name in ("head_dim", "train_length", "length")}
    plain = inspect(choose(RoPE), num_heads=1, **sizes)
    rotations: dict[str, Data] = {data["name"]: data}
    if data["depends_on_length"]:
        trained = {"frequencies": data["frequencies_trained"], "gain": data["gain_trained"]}
        rotations = {f"up to {data['train_length']}": trained, f"at {data['length']}": data}
    alike = any((c["frequencies"], c["gain"]) == (plain["frequencies"], plain["gain"]) for c in rotations.values())
    curves = rotations if alike else {"RoPE": plain, **rotations}
    grey = "" if alike else "RoPE"
    matches = {name: _points(_match(data | c)) for name, c in curves.items()}
    what = "the product of two equal vectors at each distance, relative to that without rotation"
    panels = [panel(data, "product of equal vectors", what, matches, "distance", "", grey=grey)]
    if data["name"] == "RoPE" or any(c["frequencies"] != plain["frequencies"] for c in rotations.values()):
        waves: dict[str, Points] = {
            name: [(p, 2 * math.pi / f) for p, f in enumerate(c["frequencies"]) if f] for name, c in curves.items()
        }
        what = "the wavelength of each pair of dimensions"
        wave = panel(data, "wavelength, tokens", what, waves, "pair", "", log="y", grey=grey, legend=False)
        panels.insert(0, wave)
    return [] if alike and len(rotations) == 1 and data["name"] != "RoPE" else panels


def _match(data: Data) -> list[float]:
    """Return <q, k> at each distance divided by <q, k> without rotation, for q = k with the same norm in every pair."""
    gain = data["gain"]
    pairs = max(data["head_dim"] // 2, len(data["frequencies"]))  # a polar rotation has as many pairs as dims
    products = []
    for distance in range(data["length"]):
        if isinstance(gain, dict):
            gains = [a * b for a, b in zip(gain["query"][-1], gain["key"][data["length"] - 1 - distance], strict=True)]
        else:
            gains = [gain**2] * len(data["frequencies"])
        if len(gains) < len(data["frequencies"]):
            gains = gains * len(data["frequencies"])
        rotated = sum(g * math.cos(f * distance) for g, f in zip(gains, data["frequencies"], strict=True))
        products.append((rotated + pairs - len(data["frequencies"])) / pairs)
    return products


def _vectors(data: Data, key: str, what: str) -> list[Panel]:
    """Return panels of the cosine between the vector of each distance and that of the distance nearest to 0."""
    panels = []
    for form in data[key]:
        zero = min(max(-form["first"], 0), len(form["table"][0]) - 1)
        curves = [[cosine(vector, head[zero]) for vector in head] for head in form["table"]]
        description = f"the cosine between the {what} at each distance and at distance 0"
        panels.append(panel(data, what, description, _heads(curves, form["first"]), "distance", "cosine", rule=False))
    return panels


def _transformed(data: Data) -> list[Panel]:
    last = data["length"] - 1
    pairs = zip(data["logits_before"], data["logits_after"], strict=True)
    change = [
        [None if b is None else b - a for a, b in zip(x[last][::-1], y[last][::-1], strict=True)] for x, y in pairs
    ]
    what = f"the change of the logits of query {last}, for q and k from N(0, 1)"
    return [panel(data, "change of the logits", what, _heads(change), "distance", "nats")]


def _embedding(data: Data) -> list[Panel]:
    rows = data["embedding"]
    width = len(rows[0])
    dims = [0, width // 16, width // 4]
    shown = range(min(data["train_length"], len(rows)))
    curves: dict[str, Points] = {f"dim {d}": [(p, rows[p][d]) for p in shown] for d in dims}
    middle = data["length"] // 2
    alike = {"cosine": _points([cosine(row, rows[middle]) for row in rows])}
    return [
        panel(data, "added to the embeddings", "three dimensions of the vectors", curves, "position", "", rule=False),
        panel(
            data,
            f"similarity to position {middle}",
            f"the cosine between the vectors of position {middle} and others",
            alike,
            "position",
            "cosine",
        ),
    ]


PANELS: tuple[tuple[str, Callable[[Data], list[Panel]]], ...] = (
    ("query_gain", _gain),
    ("sink_logits", _sinks),
    ("coordinate", _coordinate),
    ("logits_after", _transformed),
    ("query_vectors", partial(_vectors, key="query_vectors", what="vectors multiplied by queries")),
    ("value_vectors", partial(_vectors, key="value_vectors", what="vectors added to the values")),
    ("bias", _bias),
    ("frequencies", _rotation),
    ("embedding", _embedding),
)
