"""The declaration of a chart: its kind, its rows, its axes, and how its labels look. drawing.py draws it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lengthwise.report.palette import Look

SMALL = 110  # pixels: the height of a chart that stands in a row with others
MAX_POINTS = 100  # of a curve; a longer one is averaged over neighbours
DIGITS = 8  # of numbers in the page, which has 100,000 of them if a study is large

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The horizontal axis of lines and curves, from `low` to `high`, with `padding` pixels at both ends.

    `at`: where its texts are, ascending. `ticks`: the text below each one, or its lines. `heads`: the head of the
    tooltip in each column, and a note beside it.
    """

    at: Sequence[float]
    low: float
    high: float
    ticks: Sequence[str | Sequence[str]]
    heads: Sequence[tuple[str, str]] = ()
    log: bool = False
    padding: int = 0


@dataclass(frozen=True)
class Range:
    """A vertical axis from `low` to `high`, whose button says `name`. Arrows at its upper edge mark means above it."""

    name: str
    low: float
    high: float


@dataclass(frozen=True)
class Mark:
    """A vertical rule `at` a place, with texts above it to its left and right. The second may have a short form."""

    at: float | str
    left: str = ""
    right: tuple[str, str] = ("", "")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of rows. A row of every kind has a `label`, which the legend hides, a place `x` and a height `y`.

    - "lines": lines with points, and bands from `low` to `high` where a row has them. `name` tells lines apart. The
      tooltip shows `mean`, `interval` and `n`. Rows with `baseline`, the kind of a baseline, are dashed grey lines.
    - "curves": thin lines in a small chart, of `opacity`. `name` tells them apart.
    - "bars": the labels side by side at each text `x`, with whiskers from `low` to `high`, and a line at the heights
      `step`.
    - "heat map": a cell for each text `x` and label, whose colour is stronger where `y`, from 0 to 1, is larger.

    `described`: the text for screen readers. `looks`: those of the labels. `ranges`: the vertical axes that the reader
    can choose from; `start` is the first one shown. `shaded`: parts of the horizontal axis. `ends`: rows of the texts
    at the ends of lines.
    `better`: what comes first in the tooltip, "lower" or "higher".
    The page says in the text around a chart what it shows. A chart in a file of its own says it itself: its `title`, a
    `note`, and the names of its axes (`across`, `upwards`).
    """

    kind: Literal["lines", "curves", "bars", "heat map"]
    described: str
    rows: Sequence[Row]
    looks: Mapping[str, Look] = field(default_factory=dict)
    columns: Columns | None = None
    ranges: Sequence[Range] = ()
    start: int = 0
    percent: bool = False
    shaded: Sequence[tuple[float, float]] = ()
    mark: Mark | None = None
    ends: Sequence[Row] = ()
    better: str = "lower"
    height: int = SMALL
    title: str = ""
    note: str = ""
    across: str = ""
    upwards: str = ""

    def named(self, title: str, across: str, upwards: str, note: str = "") -> "Chart":
        """Return the chart with what it says when it stands alone."""
        return replace(self, title=title, across=across, upwards=upwards, note=note)

    @property
    def has_tooltip(self) -> bool:
        return self.kind == "lines"

    def values(self, name: str) -> list[Any]:
        """Return the different values of the rows, in their order."""
        return list(dict.fromkeys(row[name] for row in self.rows))


def short(value: float) -> float | None:
    """Return the first digits of a number, and null for what is not one."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def curve(label: str, points: Iterable[tuple[float, float]], name: str | int = 0, opacity: float = 1.0) -> list[Row]:
    """Return the rows of a curve without the points that are not finite."""
    about = {"label": label, "name": name, "opacity": opacity}
    return [about | {"x": x, "y": short(y)} for x, y in points if math.isfinite(y)]


def averaged(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MAX_POINTS` points: of more, each is the mean of neighbours."""
    size = max(1, -(-len(points) // MAX_POINTS))
    groups = (points[n : n + size] for n in range(0, len(points), size))
    return [
        (math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)) for xs, ys in (zip(*group, strict=True) for group in groups)
    ]


def curve_chart(
    described: str,
    rows: Sequence[Row],
    looks: Mapping[str, Look],
    ends: tuple[float, float],
    heights: tuple[float, float],
    *,
    unit: str = "",
    shaded: Sequence[tuple[float, float]] = (),
    height: int = SMALL,
) -> Chart:
    """Return a chart of curves, cut off at the ends of both axes. `unit`: of the horizontal axis."""
    first, last = ends
    last = last if last > first else first + 1
    columns = Columns(at=(first, last), low=first, high=last, ticks=(f"{first:,}", f"{last:,}{unit}"))
    return Chart(
        kind="curves",
        described=described,
        rows=rows,
        looks=looks,
        columns=columns,
        ranges=[Range("all", *heights)],
        shaded=shaded,
        height=height,
    )
