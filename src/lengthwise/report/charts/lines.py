"""Charts of lines with intervals: the scores of a task, those of probes, and times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise.analysis.estimates import Interval
from lengthwise.analysis.numbers import figure
from lengthwise.report.charts.chart import Chart, Columns, Range, Row, short
from lengthwise.report.palette import Look

LABEL_DISTANCE = 14  # pixels between the labels at the ends of two lines
HEIGHT = 240  # pixels
PADDING = 24  # pixels left and right of columns
OCTAVES = 0.3  # left and right of the outer lengths


@dataclass(frozen=True)
class Line:
    """A line with intervals: in each column a score, or None. `counts`: what each score is a mean of, or one text for
    all.

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

    def rows(self, at: Sequence[float]) -> list[Row]:
        """Return a row for each column. A score that is missing or not finite is null, which interrupts the line."""
        counts = [self.counts] * len(at) if isinstance(self.counts, str) else self.counts
        rows = []
        for x, score, n in zip(at, self.scores, counts, strict=True):
            row: Row = {"label": self.label, "name": self.name or self.label, "x": x, "y": None}
            if score is not None:
                row |= {"y": short(score.mean), "mean": figure(score.mean), "interval": interval_text(score), "n": n}
                if score.basis != "none" and row["y"] is not None:
                    row |= {"low": short(score.low), "high": short(score.high)}
            rows.append(row)
        return rows


def even_columns(ticks: Sequence[str], word: str = "") -> Columns:
    """Return columns at equal distances. `word` precedes their texts in the tooltip."""
    heads = [(f"{word} {tick}".strip(), "") for tick in ticks]
    low, high = (0.0, len(ticks) - 1.0) if len(ticks) > 1 else (-0.5, 0.5)
    return Columns(at=range(len(ticks)), low=low, high=high, padding=PADDING, ticks=ticks, heads=heads)


def length_columns(lengths: Sequence[int], unit: str, *others: int) -> Columns:
    """Return columns at lengths on a logarithmic axis, which has room for `others` too."""
    texts = [f"{n:,}" for n in lengths]
    return Columns(
        at=lengths,
        low=min([*lengths, *others]) / 2**OCTAVES,
        high=max([*lengths, *others]) * 2**OCTAVES,
        ticks=texts,
        heads=[(f"{text} {unit}", "") for text in texts],
        log=True,
    )


def zero_to(top: float) -> Range:
    """Return the range from 0 to `top`, with room for points at its ends."""
    return Range("all", -0.03 * top, 1.03 * top)


def line_chart(
    described: str,
    lines: Sequence[Line],
    columns: Columns,
    choices: Sequence[Range],
    *,
    baselines: Sequence[Row] | None = None,
    height: int = HEIGHT,
    **more: Any,
) -> Chart:
    """Return a chart of lines with their intervals as bands. The names of lines, or of `baselines` if given, are at
    their ends.

    `choices`: the vertical axes that the reader can choose from. `more`: other fields of the chart.
    """
    rows = [row for line in lines for row in line.rows(columns.at)]
    if baselines is None:
        ends = [(line.label, line.name or line.label, line.means[-1], line.look.colour) for line in lines if line.means]
    else:
        known = {row["name"]: row for row in baselines if row["y"] is not None}
        ends = [(row["label"], name, row["y"], "var(--faint)") for name, row in known.items()]
    return Chart(
        kind="lines",
        described=described,
        rows=[*rows, *(baselines or ())],
        looks={line.label: line.look for line in lines},
        columns=columns,
        ranges=choices,
        ends=_ends(ends, choices, height),
        height=height,
        **more,
    )


def _ends(ends: Sequence[tuple[str, str, float, str]], choices: Sequence[Range], height: int) -> list[Row]:
    """Return where the texts at the ends of lines are, in pixels from the top: one number for each range."""
    lasts = [[_pixel(last, choice, height) for _, _, last, _ in ends] for choice in choices]
    heights = [label_heights(of_range, height) for of_range in lasts]
    return [
        {
            "label": label,
            "colour": colour,
            "last": [of_range[n] for of_range in lasts],
            "at": [of_range[n] for of_range in heights],
            "text": [beyond(last, choice) + name for choice in choices],
        }
        for n, (label, name, last, colour) in enumerate(ends)
    ]


def label_heights(targets: Sequence[float], height: float) -> list[float]:
    """Return heights for labels near the targets, in the same order: within the chart and at least `LABEL_DISTANCE`
    apart.

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


def beyond(value: float, choice: Range) -> str:
    """Return the arrow before the label of a line that ends outside of the range, or ""."""
    return "↑ " if value > choice.high else "↓ " if value < choice.low else ""


def _pixel(value: float, choice: Range, height: int) -> float:
    """Return the distance of a value from the top of the axis, in pixels. Values outside lie at the edge."""
    share = (choice.high - value) / (choice.high - choice.low)
    return round(height * min(max(share, 0.0), 1.0), 1)


def interval_text(interval: Interval) -> str:
    """Return the two ends of an interval, or that there is none."""
    if interval.basis == "none":
        return "no interval"
    ends = f"{figure(interval.low)} … {figure(interval.high)}"
    return ends + (" over examples" if interval.basis == "examples" else "")
