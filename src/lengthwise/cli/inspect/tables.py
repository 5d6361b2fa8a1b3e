"""Curves, tables and shaded matrices of `lengthwise inspect`, which fit into the width of the terminal."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lengthwise.cli.printing import column, figure, plain_table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

BARS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
STRIP = 40  # columns of a curve
ROWS = 16  # maximal heads, pairs or dimensions shown; of more, evenly spaced ones are shown


def draw_curves(
    title: str, curves: Sequence[Sequence[float | None]], row_name: str, first: int = 0
) -> list["RenderableType"]:
    """Return a row for each curve: its first and last value, and a strip of bars with the same scale for all."""
    n = len(curves[0])
    step = -1 if first == -1 else 1
    values = [v for curve in curves for v in curve if v is not None]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    names = [row_name, f"{first:,}", "", f"{first + step * (n - 1):,}"]
    rows: list[list[str]] = []
    too_fast = False
    for row in evenly_spaced(len(curves), ROWS):
        curve = curves[row]
        strip = draw_strip(_columns(curve, high - low), low, high)
        too_fast |= "░" in strip
        name = "all" if row_name == "head" and len(curves) == 1 else f"{row}"
        rows.append([name, figure(curve[0]), strip, figure(curve[-1])])
    scale = f"▁ is {figure(low)}, █ is {figure(high)}" if high > low else f"all values are {figure(low)}"
    scale = scale if values else "no value is finite"
    scale += "; ░ changes too fast to draw" if too_fast else ""
    return [
        title_line(title),
        FittedTable(names, rows, left=("",), drop=("",)),
        *note_lines([scale]),
        *omission_note(len(curves), f"{row_name}s"),
    ]


def _columns(curve: Sequence[float | None], span: float) -> list[float | None]:
    """Return the mean of the values in each column, or NaN if they differ by more than half of the span."""
    n, columns = len(curve), min(len(curve), STRIP)
    cuts = [round(c * n / columns) for c in range(columns + 1)]
    means: list[float | None] = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        part = [v for v in curve[start:stop] if v is not None]
        too_fast = max(part) - min(part) > span / 2 if part else False
        means.append(math.nan if too_fast else sum(part) / len(part) if part else None)
    return means


def draw_strip(values: Sequence[float | None], low: float, high: float) -> str:
    return "".join(_bar(v, low, high - low) for v in values)


def _bar(value: float | None, low: float, span: float) -> str:
    if value is None:
        return "·"
    if math.isnan(value):
        return "░"
    return BARS[min(max(round((value - low) / span * (len(BARS) - 1)), 0), len(BARS) - 1)] if span > 0 else BARS[0]


def _shade(value: float | None) -> str:
    return "?" if value is None else SHADES[min(max(math.ceil(value * (len(SHADES) - 1) - 1e-9), 0), len(SHADES) - 1)]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths else 0.0


def evenly_spaced(n: int, count: int) -> list[int]:
    """Return at most `count` evenly spaced integers of 0 ... n-1, including both ends."""
    if n <= count:
        return list(range(n))
    return [round(c * (n - 1) / (count - 1)) for c in range(count)]


class FittedTable:
    """A table that omits whole columns, in the order of `drop`, if the terminal is too narrow; numbers are never cut.

    Columns are right-aligned, except those in `left`.
    """

    def __init__(self, names: list[str], rows: list[list[str]], left: tuple[str, ...], drop: tuple[str, ...]):
        self.names, self.rows, self.left, self.drop = names, rows, left, drop

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        dropped = 0
        unlimited = options.update(max_width=10_000)
        while dropped < len(self.drop):
            if console.measure(self._without(self.drop[:dropped]), options=unlimited).maximum <= options.max_width:
                break
            dropped += 1
        yield self._without(self.drop[:dropped])
        if dropped:
            too_narrow = f"the terminal is too narrow for {len(self.names)} columns"
            yield from note_lines([f"{too_narrow}, {dropped} omitted; --json has all"])

    def _without(self, dropped: tuple[str, ...]) -> "Table":
        table = plain_table(header_style="dim")
        columns = [k for k, name in enumerate(self.names) if name not in dropped]
        for k in columns:
            table.add_column(self.names[k], justify="left" if self.names[k] in self.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[k] for k in columns))
        return table


class ShadedMatrix:
    """The lower triangle of a square matrix with values from 0 to 1, as shades. Evenly spaced columns fill the terminal's width."""

    def __init__(self, values: Sequence[Sequence[float]]):
        self.values = values

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        n = len(self.values)
        queries = column("", justify="right", style="dim", no_wrap=True)
        table = plain_table(queries, column("", no_wrap=True), show_header=False)
        keys = evenly_spaced(n, max(2, min(48, options.max_width - len(f"{n - 1:,}") - 2)))
        for i in evenly_spaced(n, 12):
            table.add_row(f"{i:,}", "".join(_shade(self.values[i][j]) if j <= i else " " for j in keys))
        yield table


def title_line(text: str) -> "RenderableType":
    from rich.text import Text

    return Text(text, style="bold")


def note_lines(lines: Sequence[str]) -> list["RenderableType"]:
    from rich.text import Text

    return [Text(line, style="dim") for line in lines]


def omission_note(count: int, name: str) -> list["RenderableType"]:
    return note_lines([f"{ROWS} of {count} {name}; --json has all"]) if count > ROWS else []
