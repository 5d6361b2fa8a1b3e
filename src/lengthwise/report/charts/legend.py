"""The legend of a chart that stands alone, as a drawing. On the page, the legend is HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.report.charts.spec import Chart, by_id
from lengthwise.report.palette import SHAPES, Look

ROW, LETTER = 18, 6.4  # pixels: the height of a row, the width of a letter
GLYPH, SPACE = 34, 20  # pixels: the line of a key, and the distance between two keys
LONGEST = 32  # letters of a name; the rest is left out


@dataclass(frozen=True)
class Key:
    """A name with a colour, the dash of its line, and the shape of its points. A bar has only a colour."""

    name: str
    colour: str
    dash: Sequence[float] = (1, 0)
    shape: str = SHAPES[1]
    is_line: bool = True


def keys_of(chart: Chart, looks: Mapping[str, Look]) -> list[Key]:
    """Return the keys of a chart: those of its lines that have a look, or the names of its colours."""
    found = [Key(name, colour, is_line=False) for colour, name in chart.keys.items()]
    for series in chart.data["series"]:
        look = looks.get(series["label"])
        if look is not None:
            found.append(Key(series.get("name", series["label"]), look.colour, look.dash, look.shape))
    return found


def legend(keys: Sequence[Key], signal: str, width: int) -> dict[str, Any]:
    """Return a Vega-Lite spec of a legend with as many columns as fit. `signal`: the name of the signal with the names."""
    longest = min(max(len(key.name) for key in keys), LONGEST)
    column = GLYPH + 8 + round(LETTER * longest) + SPACE
    columns = max(1, min(len(keys), width // column))
    rows = -(-len(keys) // columns)
    values = [_row(n, n // rows * column, ROW / 2 + n % rows * ROW, key.is_line) for n, key in enumerate(keys)]
    ids = [f"k{n}" for n in range(len(keys))]
    colour = by_id(ids, [key.colour for key in keys])
    y = {"field": "y", "type": "quantitative", "scale": None, "axis": None}
    line = {
        "transform": [{"filter": "datum.line"}],
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {
            "x": _place("x"),
            "x2": {"field": "x2"},
            "y": y,
            "color": colour,
            "strokeDash": by_id(ids, [tuple(key.dash) for key in keys]),
        },
    }
    point = {
        "mark": {
            "type": "point",
            "filled": True,
            "opacity": 1,
            "size": 90,
            "stroke": "var(--paper)",
            "strokeWidth": 0.5,
        },
        "encoding": {"x": _place("middle"), "y": y, "color": colour, "shape": by_id(ids, [key.shape for key in keys])},
    }
    text = {
        "mark": {
            "type": "text",
            "align": "left",
            "baseline": "middle",
            "fontSize": 12,
            "color": "var(--ink)",
            "limit": column - GLYPH - 12,
            "text": {"expr": f"{signal}[datum.n]"},
        },
        "encoding": {"x": _place("text"), "y": y},
    }
    return {"data": {"values": values}, "width": width, "height": ROW * rows, "layer": [line, point, text]}


def _row(n: int, x: float, y: float, is_line: bool) -> dict[str, Any]:
    places = {"x": x, "x2": x + GLYPH, "middle": x + GLYPH / 2, "text": x + GLYPH + 8, "y": y}
    return {"e": f"k{n}", "n": n, "line": is_line, **places}


def _place(name: str) -> dict[str, Any]:
    """Return an encoding of a place in pixels."""
    return {"field": name, "type": "quantitative", "scale": None, "axis": None}
