"""The effective length of an encoding or a model: the longest length up to which its mean score passes a threshold.

It is where the non-increasing curve that fits the mean scores best falls below the threshold. This fit (isotonic
regression) pools neighbouring means that are out of order. Without it, the first of several noisy means below the
threshold would decide, which comes too early where scores stay near the threshold. The curve ends at the first length
whose whole 95 % interval is on the wrong side of the threshold, even if longer lengths pass again: an input must work
at every length up to the one that is claimed.

Between two tested lengths, the curve is interpolated linearly over the logarithm of the length, because tested lengths
are usually doubled. The interval of an effective length comes from the 95 % intervals of the scores. Its lower end is
where the curve through the worse ends of these intervals first falls below the threshold, and its upper end is where
the curve through the better ends does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lengthwise.analysis.estimates import Interval, interval_of
from lengthwise.analysis.statistics.curves import Curve
from lengthwise.metrics import Better, Metric


@dataclass(frozen=True, kw_only=True)
class EffectiveLength:
    """An effective length with its 95 % interval.

    `value`, `low`, `high`: lengths between the shortest and the longest tested one; 0.0 if the shortest fails, and
    infinity if the longest passes, so that only a bound is known. `low` and `high` are NaN if a score has no interval.
    `tested`: the longest tested length that is not longer than `value`; None if the shortest fails.
    """

    value: float
    low: float
    high: float
    tested: int | None
    lengths: tuple[int, ...]

    @property
    def text(self) -> str:
        """Return the effective length as text: `181`, `< 64` or `≥ 512`. Interpolated lengths are rounded down."""
        return self.length_text(self.value)

    @property
    def interval_text(self) -> str:
        """Return the interval as text: `120 … ≥ 512`, one length if both ends are the same, or "" without one."""
        ends = (self.low, self.high)
        return "" if math.isnan(self.low) else " … ".join(dict.fromkeys(map(self.length_text, ends)))

    def length_text(self, length: float) -> str:
        if length == 0:
            return f"< {self.lengths[0]:,}"
        return f"≥ {self.lengths[-1]:,}" if math.isinf(length) else f"{math.floor(length + 1e-6):,}"


def effective_length(
    lengths: Sequence[int], curves: Sequence[Curve], threshold: float, metric: Metric
) -> EffectiveLength | None:
    """Return the effective length of an encoding, given its curves at these lengths. None without any.

    A score passes if it is at least `threshold`, or at most `threshold` where lower scores are better. A single seed
    has no interval, but that of its examples decides which failures are certain.
    """
    if not lengths or not curves:
        return None
    by_length = zip(*curves, strict=True)
    scores = [interval_of(seeds, metric.limits, share=metric.share) for seeds in by_length]
    longest = longest_passing(lengths, scores, threshold, metric.better)
    return longest if len(curves) > 1 else replace(longest, low=math.nan, high=math.nan)


def longest_passing(
    lengths: Sequence[int], scores: Sequence[Interval], threshold: float, better: Better
) -> EffectiveLength:
    """Return the effective length, given the score at each of at least one length. `better`: see `effective_length`."""
    sign = 1 if better == "higher" else -1
    means = [sign * (score.mean - threshold) for score in scores]
    ends = [sorted((sign * (score.low - threshold), sign * (score.high - threshold))) for score in scores]
    last = next((place for place, (_, upper) in enumerate(ends) if upper < 0), len(lengths) - 1)
    value = first_failure(lengths, non_increasing(means[: last + 1]))
    known = all(score.basis != "none" for score in scores)
    return EffectiveLength(
        value=value,
        low=min(value, first_failure(lengths, [lower for lower, _ in ends])) if known else math.nan,
        high=max(value, first_failure(lengths, [upper for _, upper in ends])) if known else math.nan,
        tested=max((length for length in lengths if length <= value * (1 + 1e-9)), default=None),
        lengths=tuple(lengths),
    )


def non_increasing(values: Sequence[float]) -> list[float]:
    """Return the non-increasing sequence with the least squared differences from these values (isotonic regression).

    The value at a place is the minimum over i up to it of the maximum over j from it on of the mean from i to j
    (Robertson, Wright and Dykstra 1988). SciPy has a function for it, but its import takes half a second.
    """
    places = range(len(values))
    return [
        min(max(math.fsum(values[i : j + 1]) / (j + 1 - i) for j in places[place:]) for i in places[: place + 1])
        for place in places
    ]


def first_failure(lengths: Sequence[int], margins: Sequence[float]) -> float:
    """Return the length where a curve of margins falls below 0: 0.0 at the first tested length, infinity at none."""
    for place, margin in enumerate(margins):
        if margin < 0:
            if place == 0:
                return 0.0
            share = margins[place - 1] / (margins[place - 1] - margin)
            return float(lengths[place - 1] * (lengths[place] / lengths[place - 1]) ** share)
    return math.inf
