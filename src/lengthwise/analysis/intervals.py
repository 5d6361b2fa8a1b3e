"""95 % intervals. The unit is the seed, because examples of one trained model say nothing about other seeds."""

import hashlib
import math
import statistics
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

CONFIDENCE = 0.95
QUANTILE_NORMAL = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)  # two-sided: 1.960
RESAMPLES = 1000

Basis = Literal["seeds", "seeds and prompts", "examples", "rounds", "none"]
Method = Literal["seeds and prompts", "crossed", "published"]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval. `half_width`: before the ends are cut to `bounds`; NaN without an interval.

    `basis`: "seeds" (Student's t over the seeds' means), "seeds and prompts" (`over_seeds_and_groups`), "examples" (a
    single seed: over its examples, normal or by bootstrap), "rounds" (of a measurement of time, by order statistics) or
    "none". `bootstrap`: the ends come from resampling, so they are only approximately symmetric; `half_width` is half
    of their difference.
    """

    mean: float
    low: float
    high: float
    half_width: float
    basis: Basis
    bootstrap: bool = False

    def overlaps(self, other: "Interval") -> bool:
        """Return whether the two intervals share a value. An unknown interval overlaps with every other."""
        if "none" in (self.basis, other.basis):
            return True
        return self.low <= other.high and other.low <= self.high

    def differs_from(self, other: "Interval") -> bool:
        """Return whether a difference may be claimed: both intervals are over seeds, and they do not overlap."""
        seeds = ("seeds", "seeds and prompts")
        return self.basis in seeds and other.basis in seeds and not self.overlaps(other)


@lru_cache(maxsize=512)
def quantile_t(degrees: float) -> float:
    """Return the two-sided 95 % quantile of Student's t: 4.303 for 2 degrees of freedom."""
    # Imported here because it is slow; scipy.stats is far slower.
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def over_seeds(means: Sequence[float], bounds: tuple[float, float] | None = None) -> Interval:
    """Return Student's t interval over at least two seeds' means: mean ± t(n − 1) · s / √n, s: sample standard
    deviation.
    """
    if len(means) < 2:
        raise ValueError(f"an interval over seeds needs at least 2 seeds, got {len(means)}; use over_examples")
    mean = math.fsum(means) / len(means)
    if not all(map(math.isfinite, means)):
        return _interval(mean, math.nan, "none", bounds)
    half_width = quantile_t(len(means) - 1) * math.sqrt(sample_variance(means) / len(means))
    return _interval(mean, half_width, "seeds", bounds)


def sample_variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least two finite numbers. `statistics.variance` computes with fractions, which
    is slow.
    """
    mean = math.fsum(values) / len(values)
    off = [value - mean for value in values]
    return max(0.0, math.fsum(d * d for d in off) - math.fsum(off) ** 2 / len(off)) / (len(off) - 1)


def with_wilson(interval: Interval, examples: float) -> Interval:
    """Return a share's interval, widened to Wilson's for that many examples: 0 of 256 correct does not prove a share of
    0.

    Without it, the interval of seeds that agree exactly, or of a single seed at 0 or 1, would have no width.
    """
    if interval.basis == "none" or examples < 1:
        return interval
    p, z = interval.mean, QUANTILE_NORMAL
    middle = (p + z * z / (2 * examples)) / (1 + z * z / examples)
    half = z / (1 + z * z / examples) * math.sqrt(p * (1 - p) / examples + z * z / (4 * examples * examples))
    low, high = min(interval.low, max(0.0, middle - half)), max(interval.high, min(1.0, middle + half))
    return replace(interval, low=low, high=high)


def over_examples(mean: float, standard_error: float, bounds: tuple[float, float] | None = None) -> Interval:
    """Return the normal interval over one seed's examples, which says nothing about other seeds."""
    finite = math.isfinite(mean) and math.isfinite(standard_error)
    half_width = QUANTILE_NORMAL * standard_error if finite else math.nan
    return _interval(mean, half_width, "examples" if finite else "none", bounds)


def over_rounds(values: Sequence[float]) -> Interval:
    """Return the median of the rounds of a measurement with an interval from order statistics; without one for fewer
    than 6.

    Its ends are the k-th smallest and the k-th largest value. The number of values below the true median is binomial
    with probability 1/2, whatever their distribution. So the interval misses the median with probability 2 P(Bin(n,
    1/2) < k), and k is the largest for which that is at most 5 %.
    """
    ordered, count, below, rank = sorted(values), len(values), 0, 0
    while 2 * (below + math.comb(count, rank)) <= (1 - CONFIDENCE) * 2**count:
        below += math.comb(count, rank)
        rank += 1
    median = statistics.median(ordered)
    if not rank:
        return Interval(median, median, median, math.nan, "none")
    low, high = ordered[rank - 1], ordered[-rank]
    return Interval(median, low, high, (high - low) / 2, "rounds")


def over_seeds_and_groups(
    groups: Sequence[Sequence[float]],
    bounds: tuple[float, float] | None = None,
    method: Method = "seeds and prompts",
) -> Interval:
    """Return an interval over seeds and prompts, where every seed answers the same prompts.

    `groups[s][g]`: seed s's mean over the g-th of equal groups of prompts. Each of 1,000 resamples draws as many groups
    with replacement, and the ends are the 2.5th and 97.5th percentiles of the resampled means.

    "seeds and prompts": adds the deviation of the resampled groups and that of the seeds. The latter is Student's t
    over the seeds' means, t(S − 1) · s / √S at the middles of 1,000 equal shares in random order. There are too few
    seeds to resample: with three, the 95 % interval would reach from the lowest to the highest, and it would contain
    the true mean in 3 of 4 studies. With a single seed, the interval is over groups alone, and the basis is "examples".
    Deviations of G groups are multiplied by √(G / (G − 1)), because resamples vary by that much less than samples. The
    variance of the seeds' means already contains what seeds and groups cause only together (the interaction), so it is
    taken out of the deviations of the groups: its estimate is the mean square of the residuals of the two-way table, as
    in an analysis of variance.
    "crossed": draws both seeds and groups with replacement (the bootstrap of two crossed factors, Owen 2007). It is too
    narrow for fewer than about ten seeds.
    "published": over groups alone, from the 5th to the 95th percentile, as in the study of in-context function
    learning: a 90 % interval that says nothing about other seeds.

    The random generator is seeded by the numbers themselves, so the same numbers give the same interval.
    """
    import numpy as np  # imported here because most reports do not need it

    values = np.array([list(row) for row in groups], np.float64)
    if values.ndim != 2 or 0 in values.shape or values.shape[1] < 2:
        raise ValueError(f"the bootstrap needs at least 1 seed and 2 groups, got groups of shape {list(values.shape)}")
    if method not in ("seeds and prompts", "crossed", "published"):
        raise ValueError(f"there is no bootstrap {method!r}; available: seeds and prompts, crossed, published")
    seeds, count = values.shape
    mean = float(values.mean())
    if not np.isfinite(values).all():
        return _interval(mean, math.nan, "none", bounds)
    chance = np.random.default_rng(identity(values.ravel().tolist(), seeds))

    groups_drawn = chance.integers(0, count, (RESAMPLES, count))
    if method == "crossed":
        of_seeds = values[chance.integers(0, seeds, (RESAMPLES, seeds))].mean(1)  # [resample, group]
        off = np.take_along_axis(of_seeds, groups_drawn, 1).mean(1) - mean
    else:
        off = (values.mean(0) - mean)[groups_drawn].mean(1)
    if method == "seeds and prompts":
        off *= math.sqrt(count / (count - 1))
        if seeds > 1:
            of_groups = values.mean(0).var(ddof=1)
            residuals = values - values.mean(0) - values.mean(1, keepdims=True) + mean
            interaction = (residuals**2).sum() / ((seeds - 1) * (count - 1)) / seeds
            off *= math.sqrt(max(0.0, of_groups - interaction) / of_groups) if of_groups else 1.0
            shares = [(n + 0.5) / RESAMPLES for n in range(RESAMPLES)]
            width = float(values.mean(1).std(ddof=1)) / math.sqrt(seeds)
            off += chance.permutation(_quantiles_t(seeds - 1, tuple(shares))) * width
    tail = 0.05 if method == "published" else (1 - CONFIDENCE) / 2
    low, high = (mean + float(end) for end in np.quantile(off, [tail, 1 - tail], method="hazen"))
    basis: Basis = "seeds and prompts" if seeds > 1 and method != "published" else "examples"
    return Interval(mean, *_within(bounds, low, high), (high - low) / 2, basis, bootstrap=True)


def shifted(interval: Interval, mean: float, bounds: tuple[float, float] | None) -> Interval:
    """Return an interval around another mean: that of rounded groups of nearly equal size differs slightly from it."""
    low, high = _within(bounds, interval.low + mean - interval.mean, interval.high + mean - interval.mean)
    return replace(interval, mean=mean, low=low, high=high)


def over_shares(means: Sequence[float], counts: Sequence[float]) -> Interval:
    """Return the interval of a share of correct answers over at least two seeds: Student's t on the logit of the mean
    share.

    A half-width h of the share p corresponds to h / (p (1 − p)) of its logit (delta method). h is that of Student's t
    over the seeds' shares. It is at least 1.96 · √(p (1 − p) / N), the normal half-width over all N examples, because
    few seeds may agree by chance. p includes half a correct and half a wrong answer, so that the logits of 0 and 1 are
    finite.
    `counts`: each seed's number of examples.
    """
    seeds = len(means)
    mean = math.fsum(means) / seeds
    examples = seeds**2 / math.fsum(1 / n for n in counts)  # their sum, if every seed has the same number
    share = (mean * examples + 0.5) / (examples + 1)
    variance = share * (1 - share)
    half_width = max(over_seeds(means).half_width, QUANTILE_NORMAL * math.sqrt(variance / examples)) / variance
    logit = math.log(share / (1 - share))
    low, high = (1 / (1 + math.exp(-end)) for end in (logit - half_width, logit + half_width))
    low, high = min(low, mean), max(high, mean)
    return Interval(mean, low, high, (high - low) / 2, "seeds")


def identity(values: Sequence[float], rows: int) -> int:
    """Return the seed of the generator that resamples these numbers: the same numbers have the same interval."""
    return int.from_bytes(hashlib.sha256(struct.pack(f"<q{len(values)}d", rows, *values)).digest()[:16], "big")


@lru_cache(maxsize=64)
def _quantiles_t(degrees: int, shares: tuple[float, ...]) -> Any:
    from scipy.special import stdtrit

    return stdtrit(degrees, shares)


def _interval(mean: float, half_width: float, basis: Basis, bounds: tuple[float, float] | None) -> Interval:
    ends = _within(bounds if basis != "none" else None, mean - half_width, mean + half_width)
    return Interval(mean, *ends, half_width, basis)


def _within(bounds: tuple[float, float] | None, low: float, high: float) -> tuple[float, float]:
    return (max(low, bounds[0]), min(high, bounds[1])) if bounds else (low, high)
