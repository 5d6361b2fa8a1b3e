"""95 % intervals. Seeds are the unit: examples of one trained model do not say what another seed would have given."""

import hashlib
import math
import statistics
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

CONFIDENCE = 0.95
RESAMPLES = 1000

Basis = Literal["seeds", "seeds and prompts", "examples", "none"]
Method = Literal["seeds and prompts", "crossed", "published"]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval. `half_width` is before the cut to `bounds`; NaN where there is no interval.

    `basis`: "seeds" (Student t over the seeds' means), "seeds and prompts" (`over_seeds_and_groups`), "examples" (one seed:
    over its examples, normal or by bootstrap) or "none". `bootstrap`: the ends were found by resampling, and lie about as far
    below the mean as above it, but not quite; `half_width` is half of what is between them.
    """

    mean: float
    low: float
    high: float
    half_width: float
    basis: Basis
    bootstrap: bool = False

    def overlaps(self, other: "Interval") -> bool:
        """Whether the two intervals share a value. Unknown intervals overlap with everything: nothing is claimed."""
        if "none" in (self.basis, other.basis):
            return True
        return self.low <= other.high and other.low <= self.high

    def differs_from(self, other: "Interval") -> bool:
        """Whether a difference may be claimed: both intervals are over seeds, and they share no value."""
        seeds = ("seeds", "seeds and prompts")
        return self.basis in seeds and other.basis in seeds and not self.overlaps(other)


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


def over_seeds_and_groups(
    groups: Sequence[Sequence[float]],
    bounds: tuple[float, float] | None = None,
    method: Method = "seeds and prompts",
) -> Interval:
    """An interval over what another draw of seeds and of prompts would give, where every seed answers the same prompts.

    `groups[s][g]`: seed s's mean over the g-th of equal groups of prompts. Each of 1,000 resamples draws as many groups with
    replacement; the ends are the 2.5 and 97.5 percent points of what comes out.

    "seeds and prompts": the deviation of the groups drawn, and that of the seeds beside it: Student's t over the seeds'
    means, t(S − 1) · s / √S at the middles of 1,000 equal shares in random order. Seeds are too few to be drawn again: of three,
    the 95 % interval would reach from the lowest to the highest, and such a one holds the true mean in 3 of 4 studies.
    A single seed: the groups alone, and the basis is "examples". Deviations of G groups are stretched by √(G / (G − 1)), since
    resamples vary by that much less than samples.
    "crossed": seeds and groups both drawn with replacement (the bootstrap of two crossed factors, Owen 2007); too narrow for
    fewer than about ten seeds.
    "published": groups alone, 5 and 95 percent: a 90 % interval that says nothing about other seeds, as the study of in-context
    function learning has it.

    Resamples are drawn by a generator seeded by the numbers themselves: the same numbers have the same interval.
    """
    import numpy as np  # here, because most reports need none

    values = np.array([list(row) for row in groups], np.float64)
    if values.ndim != 2 or 0 in values.shape or values.shape[1] < 2:
        raise ValueError(f"got groups of shape {list(values.shape)}; the bootstrap needs at least 1 seed and 2 groups")
    if method not in ("seeds and prompts", "crossed", "published"):
        raise ValueError(f"there is no bootstrap {method!r}; there are: seeds and prompts, crossed, published")
    seeds, count = values.shape
    mean = float(values.mean())
    if not np.isfinite(values).all():
        return _interval(mean, math.nan, "none", bounds)
    chance = np.random.default_rng(_identity(values.ravel().tolist(), seeds))

    groups_drawn = chance.integers(0, count, (RESAMPLES, count))
    if method == "crossed":
        of_seeds = values[chance.integers(0, seeds, (RESAMPLES, seeds))].mean(1)  # [resample, group]
        off = np.take_along_axis(of_seeds, groups_drawn, 1).mean(1) - mean
    else:
        off = (values.mean(0) - mean)[groups_drawn].mean(1)
    if method == "seeds and prompts":
        off *= math.sqrt(count / (count - 1))
        if seeds > 1:
            shares = [(n + 0.5) / RESAMPLES for n in range(RESAMPLES)]
            width = float(values.mean(1).std(ddof=1)) / math.sqrt(seeds)
            off += chance.permutation(_quantiles_t(seeds - 1, tuple(shares))) * width
    tail = 0.05 if method == "published" else (1 - CONFIDENCE) / 2
    low, high = (mean + float(end) for end in np.quantile(off, [tail, 1 - tail], method="hazen"))
    half_width = (high - low) / 2
    if bounds:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    over_seeds = seeds > 1 and method != "published"
    return Interval(mean, low, high, half_width, "seeds and prompts" if over_seeds else "examples", bootstrap=True)


def of_scores(
    means: Sequence[float],
    groups: Sequence[Sequence[float]],
    standard_error: float,
    bounds: tuple[float, float] | None = None,
) -> Interval:
    """The interval that scores of several seeds allow: over seeds and prompts where every seed has as many groups, otherwise
    over seeds, and with a single one over its examples, which have that standard error."""
    counts = {len(row) for row in groups}
    if len(groups) == len(means) and len(counts) == 1 and min(counts) > 1:
        interval = over_seeds_and_groups(groups)
        mean = math.fsum(means) / len(means)  # groups of nearly equal size, rounded, miss it by a little
        low, high = interval.low + mean - interval.mean, interval.high + mean - interval.mean
        if bounds:
            low, high = max(low, bounds[0]), min(high, bounds[1])
        return replace(interval, mean=mean, low=low, high=high)
    return over_seeds(means, bounds) if len(means) > 1 else over_examples(means[0], standard_error, bounds)


def _identity(values: Sequence[float], rows: int) -> int:
    return int.from_bytes(hashlib.sha256(struct.pack(f"<q{len(values)}d", rows, *values)).digest()[:16], "big")


@lru_cache(maxsize=64)
def _quantiles_t(degrees: int, shares: tuple[float, ...]) -> Any:
    from scipy.special import stdtrit

    return stdtrit(degrees, shares)


def _interval(mean: float, half_width: float, basis: Basis, bounds: tuple[float, float] | None) -> Interval:
    low, high = mean - half_width, mean + half_width
    if bounds and basis != "none":
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(mean, low, high, half_width, basis)
