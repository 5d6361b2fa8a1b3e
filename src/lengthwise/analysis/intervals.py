"""95 % intervals. Seeds are the unit: examples of one trained model do not say what another seed would have given."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval. `half_width` is before the cut to `bounds`; NaN where there is no interval.

    `basis`: "seeds" (Student t over the seeds' means), "examples" (one seed: normal, over its examples) or "none".
    """

    mean: float
    low: float
    high: float
    half_width: float
    basis: Literal["seeds", "examples", "none"]

    def overlaps(self, other: "Interval") -> bool:
        """Whether the two intervals share a value. Unknown intervals overlap with everything: nothing is claimed."""
        if "none" in (self.basis, other.basis):
            return True
        return self.low <= other.high and other.low <= self.high

    def apart(self, other: "Interval") -> bool:
        """Whether a difference may be claimed: both intervals are over seeds, and they share no value."""
        return self.basis == other.basis == "seeds" and not self.overlaps(other)


@lru_cache(maxsize=512)
def quantile_t(degrees: int) -> float:
    """The two-sided 95 % point of Student's t: 4.303 for 2 degrees of freedom."""
    # Here, because it takes a while; scipy.stats would take far longer.
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


@lru_cache(maxsize=1)
def quantile_normal() -> float:
    return statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def over_seeds(means: Sequence[float], bounds: tuple[float, float] | None = None) -> Interval:
    """Student's t over at least two seeds' means: mean ± t(n − 1) · s / √n, with s the sample standard deviation."""
    if len(means) < 2:
        raise ValueError(f"got {len(means)} seed; an interval over seeds needs two, use over_examples")
    mean = math.fsum(means) / len(means)
    if not all(map(math.isfinite, means)):
        return _interval(mean, math.nan, "none", bounds)
    half_width = quantile_t(len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))
    return _interval(mean, half_width, "seeds", bounds)


def with_wilson(interval: Interval, examples: int) -> Interval:
    """A share's interval, widened to Wilson's for that many examples: 0 of 256 right is not certainly 0.

    Seeds that agree exactly, or a single seed at 0 or 1, would otherwise have no width at all.
    """
    if interval.basis == "none" or examples < 1:
        return interval
    p, z = interval.mean, quantile_normal()
    middle = (p + z * z / (2 * examples)) / (1 + z * z / examples)
    half = z / (1 + z * z / examples) * math.sqrt(p * (1 - p) / examples + z * z / (4 * examples * examples))
    low, high = min(interval.low, max(0.0, middle - half)), max(interval.high, min(1.0, middle + half))
    return replace(interval, low=low, high=high)


def over_examples(mean: float, standard_error: float, bounds: tuple[float, float] | None = None) -> Interval:
    """The normal interval over one seed's examples: it says nothing about other seeds."""
    finite = math.isfinite(mean) and math.isfinite(standard_error)
    half_width = quantile_normal() * standard_error if finite else math.nan
    return _interval(mean, half_width, "examples" if finite else "none", bounds)


def _interval(
    mean: float, half_width: float, basis: Literal["seeds", "examples", "none"], bounds: tuple[float, float] | None
) -> Interval:
    low, high = mean - half_width, mean + half_width
    if bounds and basis != "none":
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(mean, low, high, half_width, basis)
