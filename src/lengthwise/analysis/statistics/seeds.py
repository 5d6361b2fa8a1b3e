"""How many seeds a paired comparison needs, and what it can find with a few."""

import math
from dataclasses import dataclass

from lengthwise.analysis.estimates import CONFIDENCE, quantile_t
from lengthwise.values import ConfigError

POWER = 0.8  # the probability with which the test finds the difference
MOST = 100_000  # seeds


@dataclass(frozen=True)
class NeededSeeds:
    """The number of seeds that a comparison needs. `low`, `high`: its 95 % interval, because the standard deviation was
    estimated from few seeds. None: more than `MOST`."""

    seeds: int | None
    low: int | None
    high: int | None


def power(effect: float, seeds: int) -> float:
    """Return the probability that the paired t test at the level of 5 % finds `effect` (in standard deviations)."""
    from scipy.special import nctdtr  # type: ignore[import-untyped]

    shift, limit = abs(effect) * math.sqrt(seeds), quantile_t(seeds - 1)
    other_side = float(nctdtr(seeds - 1, shift, -limit)) if shift < 4 else 0.0  # NaN where it is far below any rounding
    return 1 - float(nctdtr(seeds - 1, shift, limit)) + other_side


def seeds_for(effect: float) -> int | None:
    """Return the smallest number of seeds that finds `effect` with the probability `POWER`; None: over `MOST`."""
    low, high = 1, 2
    while power(effect, high) < POWER:
        low, high = high, 2 * high
        if high > MOST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle) >= POWER else (middle, high)
    return high


def detectable_effect(seeds: int) -> float:
    """Return the smallest difference, in standard deviations of the differences, that the test finds with `POWER`.

    Two seeds: 11.6; three: 3.3; five: 1.7; ten: 1.0.
    """
    low, high = 0.0, 64.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, seeds) >= POWER else (middle, high)
    return high


def deviation_interval(deviation: float, seeds: int) -> tuple[float, float]:
    """Return the 95 % interval of a standard deviation that was estimated from a sample of normal numbers
    (chi-squared).

    It is wide: three seeds allow 0.52 to 6.28 times the estimate.
    """
    from scipy.special import chdtri

    tail = (1 - CONFIDENCE) / 2
    low, high = (float(chdtri(seeds - 1, share)) for share in (tail, 1 - tail))
    return deviation * math.sqrt((seeds - 1) / low), deviation * math.sqrt((seeds - 1) / high)


def needed_seeds(deviation: float, seeds: int, difference: float) -> NeededSeeds | None:
    """Return the number of seeds that resolve `difference` with a power of 80 % in a paired t test at the level of 5 %.

    `deviation`: the standard deviation of the differences between two encodings, from this number of `seeds`. None with
    fewer than two seeds or if the differences do not vary.
    """
    if not (math.isfinite(difference) and difference > 0):
        raise ConfigError(f"the difference must be a number above 0, got {difference:g}")
    if seeds < 2 or not (math.isfinite(deviation) and deviation > 0):
        return None
    low, high = deviation_interval(deviation, seeds)
    return NeededSeeds(*(seeds_for(difference / value) for value in (deviation, low, high)))
