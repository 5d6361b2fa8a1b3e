"""Vega-Lite specs of all charts of the page: lines with intervals, curves, and bars.

A spec holds only numbers, fixed text and generated ids ("s0", "s1", ...). Text from users appears in the page's own legends and
tooltips, and in the labels at the ends of lines, which the page passes as the value of a signal; it is never in the spec. The
texts of axes are values of signals too, because they may come from a stored answer. Colours are CSS variables, so the page changes
between light, dark and print without drawing again.

The page adds the signals `hidden` (list of ids) and `names` (the labels at the ends of lines), and sets `focus` (an id or ""),
`at` (the column under the pointer, or null) and `range` (the index of the vertical axis' range).

Specs are plain data because Altair takes a second to import and half a second to check each chart. Tests use Altair to check them
against Vega-Lite's schema.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
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

Layer = dict[str, Any]
SHOWN = "indexof(hidden, datum.e) < 0"  # the filter of the layers of series that the page can hide


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of the page. `described`: the text for screen readers. `data`: what page.js needs.

    `data` has the spec, the `series` with their ids, and the `names` at the ends of lines. If the chart has a tooltip, it also has
    its `columns`, the `points` of each series and the `baselines`.
    The page says in the text around a chart what it shows. A chart that stands alone, in a file of its own, says it itself: its
    `title`, the names of its axes (`across`, `upwards`), a `note`, and names by colour (`keys`) if it has no series.
    """

    described: str
    data: Mapping[str, Any]
    title: str = ""
    across: str = ""
    upwards: str = ""
    note: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)

    def named(
        self, title: str, across: str, upwards: str, *, note: str = "", keys: Mapping[str, str] | None = None
    ) -> "Chart":
        """Return the chart with what it says when it stands alone."""
        return replace(self, title=title, across=across, upwards=upwards, note=note, keys=keys or {})


def spec(
    layers: Sequence[Layer], height: int, data: Sequence[Mapping[str, Any]], texts: Mapping[str, Any], start: int = 0
) -> dict[str, Any]:
    """Return a spec with the signals of all charts, and with the `texts` of its axes. `start`: the first value of `range`."""
    signals = {"focus": "", "at": None, "range": start, **texts}
    return {
        "params": [{"name": name, "value": value} for name, value in signals.items()],
        "data": {"values": list(data)},
        "width": "container",
        "height": height,
        "background": "transparent",
        "layer": list(layers),
    }


def texts(at: Sequence[float], texts: Sequence[str | list[str]]) -> dict[str, Any]:
    """Return the value of a signal with the texts of an axis. As data, a text cannot be read as an expression."""
    return {"at": list(at), "text": list(texts)}


def label(signal: str) -> str:
    """Return the expression for the text of a tick."""
    return f"{signal}.text[indexof({signal}.at, datum.value)]"


def by_id(ids: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return an encoding that has a value for each id of a series."""
    values = [list(value) if isinstance(value, tuple) else value for value in values]
    return {"field": "e", "type": "nominal", "scale": {"domain": list(ids), "range": values}, "legend": None}


def faded(usual: Mapping[str, Any], faded: float) -> dict[str, Any]:
    """Return an opacity that is `faded` while the page highlights another line."""
    return {"condition": {"test": "focus == '' || datum.e == focus", **usual}, "value": faded}


def short(value: float, digits: int = 4) -> float | None:
    """Return the first digits of a number, and null for what is not one."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
