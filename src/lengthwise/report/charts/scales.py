"""The ends of vertical axes."""

import math
from collections.abc import Iterable

from lengthwise.analysis.estimates import Interval

SMALLEST = 1e-300  # below, powers of ten cannot be divided any further


def nice_top(highest: float) -> float:
    """Return the smallest end of an axis from 0 for `highest` with 3 to 5 steps of 1, 2 or 5 times a power of ten."""
    if not highest > SMALLEST or not math.isfinite(highest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest / 5))
    step = next(power * n for n in (1, 2, 5, 10) if power * n * 5 >= highest * (1 - 1e-9))
    return round(step * math.ceil(highest / step - 1e-9), 12)


def robust_top(values: Iterable[float], reach: float = 4) -> float:
    """Return the end of an axis from 0: at the highest value, or `reach` times the upper quartile if that is lower."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return 1.0
    upper = finite[(3 * len(finite)) // 4 if len(finite) > 3 else -1]
    return nice_top(min(finite[-1], reach * upper) if upper > 0 else finite[-1])


def top_of_intervals(intervals: Iterable[Interval]) -> float:
    """Return the end of an axis from 0 that has room for all intervals."""
    ends = [i.mean if i.basis == "none" else i.high for i in intervals if math.isfinite(i.mean)]
    return nice_top(max(ends, default=0.0))


def frame(values: Iterable[float]) -> tuple[float, float]:
    """Return round ends of an axis around all values. It begins at 0 if none is below and they are far apart."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    spread = max(high - low, 0.01 * max(abs(low), abs(high)), 1e-9)
    if 0 <= low < 0.5 * spread:
        low, spread = 0.0, max(high, 1e-9)
    step = 10.0 ** math.floor(math.log10(spread)) / 2
    bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    if bottom == top:
        top = bottom + step
    return float(f"{bottom:.6g}"), float(f"{top:.6g}")


def robust_frame(intervals: Iterable[Interval]) -> tuple[float, float]:
    """Return round ends of an axis around intervals, so that a few very high means do not flatten the others.

    A mean is too high if it is farther from the lowest one than four times the median is, or a fourth of the lowest
    mean.
    """
    known = sorted((i for i in intervals if math.isfinite(i.mean)), key=lambda i: i.mean)
    if not known:
        return 0.0, 1.0
    lowest, highest, median = known[0].mean, known[-1].mean, known[len(known) // 2].mean
    distance = max(median - lowest, abs(lowest) / 4) or highest - lowest
    limit = min(highest, lowest + 4 * distance)
    shown = [i for i in known if i.mean <= limit]
    ends = [end for i in shown for end in ((i.mean,) if i.basis == "none" else (i.low, min(i.high, 1.3 * limit)))]
    return frame([limit, *ends])
