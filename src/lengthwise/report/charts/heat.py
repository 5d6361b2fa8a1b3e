"""Heat maps: one cell for each row and column, whose colour is stronger where the score is better."""

import math
from collections.abc import Sequence

from lengthwise.report.charts.spec import Chart, Layer, label, spec, texts

ROW = 18  # pixels
PALEST = 0.05  # opacity of the worst score; a cell without a score is empty
COLOUR = "var(--c1)"


def heat_map(
    described: str, shades: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], new: int
) -> Chart:
    """Return a heat map. `shades[row][column]`: from 0, the worst, to 1, the best; NaN for an empty cell.

    `new`: the first column of lengths longer than training, which a rule separates from the others.
    """
    data = [
        {"x": x, "x2": x + 1, "y": y, "y2": y + 1, "shade": round(PALEST + (1 - PALEST) * shade, 2)}
        for y, line in enumerate(shades)
        for x, shade in enumerate(line)
        if math.isfinite(shade)
    ]
    common = {"title": None, "grid": False, "labelFontSize": 11, "labelOverlap": "greedy"}
    below = common | {
        "values": [n + 0.5 for n in range(len(columns))],
        "labelExpr": label("x_ticks"),
        "labelSeparation": 6,
    }
    left = common | {
        "values": [n + 0.5 for n in range(len(rows))],
        "labelExpr": label("y_ticks"),
        "labelOverlap": False,
    }
    x = {"field": "x", "type": "quantitative", "scale": {"domain": [0, len(columns)], "nice": False}, "axis": below}
    y = {"field": "y", "type": "quantitative", "scale": {"domain": [len(rows), 0], "nice": False}, "axis": left}
    shade = {"field": "shade", "type": "quantitative", "scale": None, "legend": None}
    mark = {"type": "rect", "color": COLOUR, "stroke": "var(--paper)", "strokeWidth": 0.5}
    layers: list[Layer] = [
        {"mark": mark, "encoding": {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"field": "y2"}, "opacity": shade}}
    ]
    if 0 < new < len(columns):
        rule = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2}
        layers.append({"data": {"values": [{"x": new}]}, "mark": rule, "encoding": {"x": x}})
    signals = {
        "x_ticks": texts([n + 0.5 for n in range(len(columns))], columns),
        "y_ticks": texts([n + 0.5 for n in range(len(rows))], rows),
    }
    made = spec(layers, ROW * len(rows), data, signals)
    return Chart(described=described, data={"spec": made, "series": [], "names": []})
