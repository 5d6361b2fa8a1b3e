"""Format scores, in the same way in sentences, tables, tooltips and the terminal."""

import math

from lengthwise.analysis.estimates import Interval


def figure(value: float) -> str:
    """Format a score with three decimals, or a large one without decimals. Negative numbers have a minus sign (−)."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.3g}"
    if not text.startswith("-"):
        return text
    return text.replace("-", "−") if float(text.replace(",", "")) else text.lstrip("-")


def spread(interval: Interval) -> str:
    """Format an interval as `± 0.012`, or as its two ends if it is not symmetric (`0.910 … 1.000`); "" without an
    interval.

    A bootstrap interval counts as symmetric if its halves differ by less than a tenth. The first space is non-breaking.
    """
    if interval.basis == "none":
        return ""
    below, above = interval.mean - interval.low, interval.high - interval.mean
    unchanged = math.isclose((above + below) / 2, interval.half_width, rel_tol=1e-9)  # neither cut nor widened
    if interval.bootstrap and unchanged and abs(above - below) < 0.1 * interval.half_width:
        return f"±\u00a0{figure(interval.half_width)}"
    ends = (interval.mean - interval.half_width, interval.mean + interval.half_width)
    cut = figure(interval.low) != figure(ends[0]) or figure(interval.high) != figure(ends[1])
    return f"{figure(interval.low)}\u00a0… {figure(interval.high)}" if cut else f"±\u00a0{figure(interval.half_width)}"


def times(ratio: float) -> str:
    """Format a length divided by the training length: `8×`, `1.5×`, `1,400×`."""
    return f"{ratio:,.0f}×" if ratio >= 1000 else f"{ratio:.3g}×"
