"""The effective length of an encoding: the longest length up to which its mean score passes a threshold.

The score at a tested length is the mean over seeds. Between two tested lengths, it is interpolated linearly over the logarithm of
the length, because tested lengths are usually doubled. The effective length is where this curve fails for the first time. A curve
that passes again at a longer length does not count: an input must work at every length up to the one that is claimed. On the tested
lengths alone this is the rule of `lengthwise reach`: the longest tested length up to which every tested length passes.

The interval consists of the lengths at which the 95 % interval of the score contains the threshold (Fieller's method): it reaches
from where the worse end of that interval fails for the first time to where the better end does. At the true effective length, the
mean over all seeds equals the threshold, so the interval contains it as often as the interval of the score contains the mean.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lengthwise.analysis.statistics.curves import Curve, weighted
from lengthwise.metrics import Metric

STEPS = 4096  # into which the distance between two tested lengths is divided
LINES = 6  # tries, see `_last_step`


@dataclass(frozen=True, kw_only=True)
class EffectiveLength:
    """An effective length with its 95 % interval over seeds.

    `value`, `low`, `high`: lengths between the shortest and the longest tested one; 0.0 if the shortest fails, and infinity if
    the longest passes, so that only a bound is known. `low` and `high` are NaN with fewer than two seeds. `tested`: the longest
    tested length up to which all tested lengths pass; None if the shortest fails.
    """

    value: float
    low: float
    high: float
    seeds: int
    tested: int | None
    lengths: tuple[int, ...]

    @property
    def text(self) -> str:
        """Return the effective length as text: `181`, `< 64` or `≥ 512`. Lengths between tested ones are rounded down."""
        return self.length_text(self.value)

    @property
    def interval_text(self) -> str:
        """Return the interval as text, such as `120 … ≥ 512`, or one length if both ends are the same; "" without one."""
        ends = (self.low, self.high)
        return "" if math.isnan(self.low) else " … ".join(dict.fromkeys(map(self.length_text, ends)))

    def length_text(self, length: float) -> str:
        if length == 0:
            return f"< {self.lengths[0]:,}"
        return f"≥ {self.lengths[-1]:,}" if math.isinf(length) else f"{math.floor(length + 1e-6):,}"


def effective_length(
    lengths: Sequence[int], found: Sequence[Curve], threshold: float, metric: Metric
) -> EffectiveLength | None:
    """Return the effective length of an encoding, given its curves at these lengths. None without any.

    A score passes if it is at least `threshold`, or at most `threshold` where lower scores are better.
    """
    if not lengths or not found:
        return None
    sign = 1 if metric.better == "higher" else -1

    def first_failure(score: Callable[[Mapping[int, float]], float]) -> float:
        return _first_failure(lengths, lambda weights: sign * (score(weights) - threshold))

    value = first_failure(lambda weights: math.fsum(curve.weighted(weights) for curve in found) / len(found))
    worse, better = ("low", "high") if sign == 1 else ("high", "low")
    known = len(found) > 1
    return EffectiveLength(
        value=value,
        low=min(value, first_failure(lambda weights: getattr(weighted(found, weights, metric), worse)))
        if known
        else math.nan,
        high=max(value, first_failure(lambda weights: getattr(weighted(found, weights, metric), better)))
        if known
        else math.nan,
        seeds=len(found),
        tested=max((length for length in lengths if length <= value * (1 + 1e-9)), default=None),
        lengths=tuple(lengths),
    )


def _first_failure(lengths: Sequence[int], above: Callable[[Mapping[int, float]], float]) -> float:
    """Return the length where a score falls below the threshold: 0.0 at the first tested length, infinity at none.

    `above`: the score minus the threshold, given the weights of the tested lengths by their places.
    """
    before = math.nan
    for place in range(len(lengths)):
        if (here := above({place: 1.0})) < 0:
            break
        before = here
    else:
        return math.inf
    if place == 0:
        return 0.0
    share = _last_step(before, here, lambda share: above({place - 1: 1 - share, place: share})) / STEPS
    return lengths[place - 1] * (lengths[place] / lengths[place - 1]) ** share


def _last_step(first: float, last: float, value: Callable[[float], float]) -> int:
    """Return the last of `STEPS` steps from 0 to 1 before which a value falls below 0. `first`, `last`: the values at 0 and 1.

    The value is nearly linear, so it is tried where the line between the last two known values reaches 0; after a few such tries,
    the distance is halved.
    """
    passing, failing, tries = 0, STEPS, 0
    while failing - passing > 1:
        distance, tries = failing - passing, tries + 1
        share = first / (first - last) if tries <= LINES and math.isfinite(first - last) and first > last else 0.5
        step = passing + min(max(round(share * distance), 1), distance - 1)
        if (found := value(step / STEPS)) < 0:
            failing, last = step, found
        else:
            passing, first = step, found
    return passing
