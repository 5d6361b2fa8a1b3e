"""95 % intervals. The unit is the seed, because examples of one trained model say nothing about other seeds."""

import hashlib
import math
import statistics
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from lengthwise.metrics import Metric

CONFIDENCE = 0.95
RESAMPLES = 1000

Basis = Literal["seeds", "seeds and prompts", "examples", "rounds", "none"]
Method = Literal["seeds and prompts", "crossed", "published"]


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % interval. `half_width`: before the ends are cut to `bounds`; NaN without an interval.

    `basis`: "seeds" (Student's t over the seeds' means), "seeds and prompts" (`over_seeds_and_groups`), "examples" (a single seed:
    over its examples, normal or by bootstrap), "rounds" (of a measurement of time, by order statistics) or "none". `bootstrap`: the
    ends come from resampling, so they are only approximately symmetric; `half_width` is half of their difference.
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


@lru_cache(maxsize=1)
def quantile_normal() -> float:
    return statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)


def over_seeds(means: Sequence[float], bounds: tuple[float, float] | None = None) -> Interval:
    """Return Student's t interval over at least two seeds' means: mean ± t(n − 1) · s / √n, s: sample standard deviation."""
    if len(means) < 2:
        raise ValueError(f"an interval over seeds needs at least 2 seeds, got {len(means)}; use over_examples")
    mean = math.fsum(means) / len(means)
    if not all(map(math.isfinite, means)):
        return _interval(mean, math.nan, "none", bounds)
    half_width = quantile_t(len(means) - 1) * math.sqrt(sample_variance(means) / len(means))
    return _interval(mean, half_width, "seeds", bounds)


def sample_variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least two finite numbers. `statistics.variance` computes with fractions, which is slow."""
    mean = math.fsum(values) / len(values)
    off = [value - mean for value in values]
    return max(0.0, math.fsum(d * d for d in off) - math.fsum(off) ** 2 / len(off)) / (len(off) - 1)


def with_wilson(interval: Interval, examples: float) -> Interval:
    """Return a share's interval, widened to Wilson's for that many examples: 0 of 256 correct does not prove a share of 0.

    Without it, the interval of seeds that agree exactly, or of a single seed at 0 or 1, would have no width.
    """
    if interval.basis == "none" or examples < 1:
        return interval
    p, z = interval.mean, quantile_normal()
    middle = (p + z * z / (2 * examples)) / (1 + z * z / examples)
    half = z / (1 + z * z / examples) * math.sqrt(p * (1 - p) / examples + z * z / (4 * examples * examples))
    low, high = min(interval.low, max(0.0, middle - half)), max(interval.high, min(1.0, middle + half))
    return replace(interval, low=low, high=high)


def with_examples(interval: Interval, standard_errors: Sequence[float], bounds: tuple[float, float] | None) -> Interval:
    """Return an interval over seeds. If the seeds agree too well (`agree_by_chance`), widen it to the interval over all examples.

    Without it, two seeds whose means agree by chance would claim more than their examples can show. The standard error of the mean
    over S seeds is √(Σ errors²) / S, as if each seed had examples of its own; `with_wilson` counts examples in the same way.
    `standard_errors`: one for each seed. Widening every narrower interval would be too cautious: where seeds differ by their
    examples alone, Student's t would then contain the true mean of three seeds in about 99 % of studies.
    """
    if interval.basis != "seeds" or not all(map(math.isfinite, standard_errors)):
        return interval
    count = len(standard_errors)
    variance = (interval.half_width / quantile_t(count - 1)) ** 2 * count
    if not agree_by_chance(variance, math.hypot(*standard_errors) ** 2 / count, count):
        return interval
    pooled = over_examples(interval.mean, math.hypot(*standard_errors) / len(standard_errors), bounds)
    low, high = min(interval.low, pooled.low), max(interval.high, pooled.high)
    return replace(interval, low=low, high=high, half_width=max(interval.half_width, pooled.half_width))


def agree_by_chance(variance: float, of_examples: float, seeds: int) -> bool:
    """Return whether the means of seeds vary so little that their examples alone would cause more variance in 99 % of studies.

    `variance`: the sample variance of the seeds' means. `of_examples`: the variance that the examples cause in one seed's mean.
    Then (S − 1) · variance / of_examples has a chi-squared distribution with S − 1 degrees of freedom.
    """
    from scipy.special import chdtri  # imported here because it is slow

    return (seeds - 1) * variance < float(chdtri(seeds - 1, 0.99)) * of_examples


def over_examples(mean: float, standard_error: float, bounds: tuple[float, float] | None = None) -> Interval:
    """Return the normal interval over one seed's examples, which says nothing about other seeds."""
    finite = math.isfinite(mean) and math.isfinite(standard_error)
    half_width = quantile_normal() * standard_error if finite else math.nan
    return _interval(mean, half_width, "examples" if finite else "none", bounds)


def over_seeds_and_groups(
    groups: Sequence[Sequence[float]],
    bounds: tuple[float, float] | None = None,
    method: Method = "seeds and prompts",
) -> Interval:
    """Return an interval over seeds and prompts, where every seed answers the same prompts.

    `groups[s][g]`: seed s's mean over the g-th of equal groups of prompts. Each of 1,000 resamples draws as many groups with
    replacement, and the ends are the 2.5th and 97.5th percentiles of the resampled means.

    "seeds and prompts": adds the deviation of the resampled groups and that of the seeds. The latter is Student's t over the
    seeds' means, t(S − 1) · s / √S at the middles of 1,000 equal shares in random order. There are too few seeds to resample:
    with three, the 95 % interval would reach from the lowest to the highest, and it would contain the true mean in 3 of 4
    studies. With a single seed, the interval is over groups alone, and the basis is "examples". Deviations of G groups are
    multiplied by √(G / (G − 1)), because resamples vary by that much less than samples. The variance of the seeds' means already
    contains what seeds and groups cause only together (the interaction), so it is taken out of the deviations of the groups: its
    estimate is the mean square of the residuals of the two-way table, as in an analysis of variance.
    "crossed": draws both seeds and groups with replacement (the bootstrap of two crossed factors, Owen 2007). It is too narrow for
    fewer than about ten seeds.
    "published": over groups alone, from the 5th to the 95th percentile, as in the study of in-context function learning: a 90 %
    interval that says nothing about other seeds.

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


def of_scores(
    means: Sequence[float],
    groups: Sequence[Sequence[float]],
    standard_error: float,
    bounds: tuple[float, float] | None = None,
) -> Interval:
    """Return the interval of scores of several seeds.

    It is over seeds and prompts if every seed has equally many groups, otherwise over seeds. With a single seed it is over its
    examples, whose standard error is given.
    """
    counts = {len(row) for row in groups}
    if len(groups) == len(means) and len(counts) == 1 and min(counts) > 1:
        interval = over_seeds_and_groups(groups)
        mean = math.fsum(means) / len(means)  # the mean of rounded groups of nearly equal size differs slightly from it
        low, high = _within(bounds, interval.low + mean - interval.mean, interval.high + mean - interval.mean)
        return replace(interval, mean=mean, low=low, high=high)
    return over_seeds(means, bounds) if len(means) > 1 else over_examples(means[0], standard_error, bounds)


def of_seeds(
    means: Sequence[float],
    standard_errors: Sequence[float],
    counts: Sequence[float],
    groups: Sequence[Sequence[float]],
    metric: Metric,
) -> Interval:
    """Return the 95 % interval of a score, given for each seed its mean, the standard error of that mean, its number of examples,
    and the means of its groups of examples ([] where none are stored).

    With groups, it is over seeds and groups, which are the same for all seeds (`over_seeds_and_groups`). Without groups, it is over
    seeds: for shares of correct answers by `over_shares`, otherwise by Student's t, widened where the seeds agree by chance
    (`with_examples`). With a single seed, it is over the examples.
    """
    if _over_shares(means, groups, metric):
        return over_shares(means, counts)
    interval = of_scores(means, groups, standard_errors[0], metric.limits)
    if metric.share:  # seeds that answer the same prompts do not increase the number of prompts
        return with_wilson(interval, (max if _shared(groups) else sum)(counts))
    return with_examples(interval, standard_errors, metric.limits)


def compute_together(
    samples: Iterable[tuple[Sequence[float], Sequence[float], Sequence[Sequence[float]]]], metric: Metric
) -> None:
    """Compute what takes long in `of_seeds` for many scores at once, given each one's means, numbers of examples, and groups.

    This changes no interval. `of_seeds` finds the limits of shares that were computed, and returns in less than half of the time.
    """
    from lengthwise.analysis.shares import limits_of_means

    limits_of_means((means, counts) for means, counts, groups in samples if _over_shares(means, groups, metric))


def _over_shares(means: Sequence[float], groups: Sequence[Sequence[float]], metric: Metric) -> bool:
    return metric.share and len(means) > 1 and not _shared(groups) and all(map(math.isfinite, means))


def _shared(groups: Sequence[Sequence[float]]) -> bool:
    """Whether the seeds answered the same groups of examples."""
    return bool(groups) and all(groups)


def over_shares(means: Sequence[float], counts: Sequence[float], *, answers: bool = True) -> Interval:
    """Return the interval of a share of correct answers over at least two seeds.

    Its limits are those of `shares.limits_of_mean`, because the shares of seeds are skewed near 0 and 1. If the seeds vary
    widely (`shares.WIDE`), they are not narrower than those of Student's t. If the seeds agree by chance (`agree_by_chance`), they
    are not narrower than Wilson's interval for all examples.

    `answers`: whether each example is right or wrong. Values between 0 and 1 vary less than right and wrong answers, so with them,
    only seeds with equal means agree by chance.
    """
    from lengthwise.analysis.shares import WIDE, limits_of_mean

    mean = math.fsum(means) / len(means)
    low, high = limits_of_mean(means, counts)
    variance = sample_variance(means)
    if variance > WIDE * mean * (1 - mean):
        t = over_seeds(means, (0.0, 1.0))
        low, high = min(low, t.low), max(high, t.high)
    interval = Interval(mean, min(low, mean), max(high, mean), (high - low) / 2, "seeds")
    of_examples = mean * (1 - mean) * math.fsum(1 / n for n in counts) / len(counts)
    agree = math.isclose(min(means), max(means), rel_tol=1e-12)
    agree |= answers and agree_by_chance(variance, of_examples, len(means))
    return with_wilson(interval, math.fsum(counts)) if agree else interval


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
