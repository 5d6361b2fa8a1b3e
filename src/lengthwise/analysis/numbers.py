"""How a score is written, the same in sentences, tables, tooltips and the terminal."""

import math

from lengthwise.analysis.intervals import Interval


def figure(value: float) -> str:
    """A score with three decimals; large ones with four digits. A minus is a minus."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text.lstrip("-")


def spread(interval: Interval) -> str:
    """`± 0.012`, or the two ends where they are not alike (`0.910 … 1.000`); empty without interval.

    Ends of a bootstrap count as alike where they differ by less than a tenth. The first space does not break.
    """
    if interval.basis == "none":
        return ""
    below, above = interval.mean - interval.low, interval.high - interval.mean
    whole = math.isclose((above + below) / 2, interval.half_width, rel_tol=1e-9)  # not cut, nor widened
    if interval.bootstrap and whole and abs(above - below) < 0.1 * interval.half_width:
        return f"±\u00a0{figure(interval.half_width)}"
    ends = (interval.mean - interval.half_width, interval.mean + interval.half_width)
    cut = figure(interval.low) != figure(ends[0]) or figure(interval.high) != figure(ends[1])
    return f"{figure(interval.low)}\u00a0… {figure(interval.high)}" if cut else f"±\u00a0{figure(interval.half_width)}"


def times(ratio: float) -> str:
    """A length over the trained one: `8×`, `1.5×`."""
    return f"{ratio:.3g}×"
