"""Numbers of single models, what is computed from them, and their 95 % intervals over models.

Scores and the answers of all other measurements become estimates first, so their intervals follow from `interval_of`.
The functions below it take plain numbers. The unit of an interval is the seed, because examples of one trained model
say nothing about other seeds.
"""

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
Bounds = tuple[float, float] | None


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

    def differs_from(self, other: "Interval") -> bool:
        """Return whether a difference may be claimed: both intervals are over seeds, and they do not overlap."""
        seeds = ("seeds", "seeds and prompts")
        return self.basis in seeds and other.basis in seeds and (self.high < other.low or other.high < self.low)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number of one model, such as its score at a length: the mean over `n` examples and its standard error.

    `key`, `seed`: those of the model's run. `standard_error`: NaN if unknown. `n`: 0 if unknown. `groups`: the means
    over equal groups of examples, which are the same for every model; empty if they are not stored.
    """

    key: str = ""
    seed: int = 0
    mean: float
    standard_error: float = math.nan
    n: float = 0
    groups: tuple[float, ...] = ()


def weighted(parts: Sequence[tuple[float, Estimate]], total: float = 1.0) -> Estimate:
    """Return the weighted sum of numbers of one model, divided by `total`.

    Its number of examples is the number that would give the variance of a share, total² / Σ (weight² / n), which is n
    for one number of weight 1. If all numbers have the same groups of examples, it has them too, and the examples count
    once.
    """
    first = parts[0][1]
    alike = {(len(part.groups), part.n) for _, part in parts} == {(len(first.groups), first.n)}
    groups: tuple[float, ...] = ()
    if alike and first.groups:
        columns = zip(*([weight * value for value in part.groups] for weight, part in parts), strict=True)
        groups = tuple(math.fsum(column) / total for column in columns)
    return replace(
        first,
        mean=math.fsum(weight * part.mean for weight, part in parts) / total,
        standard_error=math.hypot(*(weight * part.standard_error for weight, part in parts)) / total,
        n=first.n if groups else total * total / math.fsum(weight * weight / part.n for weight, part in parts),
        groups=groups,
    )


def difference(estimate: Estimate, other: Estimate) -> Estimate:
    """Return a number of a model minus another one of the same model or seed, paired by groups of examples if both have
    them.

    Its standard error is unknown, because the examples of both may be related.
    """
    alike = len(estimate.groups) == len(other.groups)
    groups = tuple(a - b for a, b in zip(estimate.groups, other.groups, strict=True)) if alike else ()
    return replace(estimate, mean=estimate.mean - other.mean, standard_error=math.nan, groups=groups)


def interval_of(estimates: Sequence[Estimate], bounds: Bounds = None, *, share: bool = False) -> Interval:
    """Return the mean over at least one model with its 95 % interval.

    If every model has the same groups of examples, the interval is over seeds and groups (`over_seeds_and_groups`).
    Otherwise it is over seeds: by `over_shares` if the numbers are shares of correct answers, else by Student's t. That
    of a single model is over its examples. `bounds`: those of the values, where intervals end. `share`: their intervals
    are at least Wilson's.
    """
    means = [estimate.mean for estimate in estimates]
    sizes = {len(estimate.groups) for estimate in estimates}
    has_groups = len(sizes) == 1 and min(sizes) > 1
    if has_groups:
        interval = over_seeds_and_groups([estimate.groups for estimate in estimates])
        # Groups are rounded and of nearly equal size, so their mean differs slightly from that of the examples.
        mean = math.fsum(means) / len(means)
        ends = within(bounds, interval.low + mean - interval.mean, interval.high + mean - interval.mean)
        interval = replace(interval, mean=mean, low=ends[0], high=ends[1])
    elif len(means) == 1:
        interval = over_examples(means[0], estimates[0].standard_error, bounds)
    elif share and all(estimate.n and math.isfinite(estimate.mean) for estimate in estimates):
        return over_shares(means, [estimate.n for estimate in estimates])
    else:
        interval = over_seeds(means, bounds)
    # Models that answer the same examples do not increase their number.
    return with_wilson(interval, max(estimate.n for estimate in estimates)) if share else interval


# ---- intervals of plain numbers --------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def quantile_t(degrees: float) -> float:
    """Return the two-sided 95 % quantile of Student's t: 4.303 for 2 degrees of freedom."""
    # Imported here because it is slow; scipy.stats is far slower.
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def over_seeds(means: Sequence[float], bounds: Bounds = None) -> Interval:
    """Return Student's t interval over at least two seeds' means: mean ± t(n − 1) · s / √n, s the sample deviation."""
    if len(means) < 2:
        raise ValueError(f"an interval over seeds needs at least 2 seeds, got {len(means)}; use over_examples")
    mean = math.fsum(means) / len(means)
    if not all(map(math.isfinite, means)):
        return _interval(mean, math.nan, "none", bounds)
    half_width = quantile_t(len(means) - 1) * math.sqrt(sample_variance(means) / len(means))
    return _interval(mean, half_width, "seeds", bounds)


def sample_variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least two finite numbers, faster than `statistics.variance`."""
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


def over_examples(mean: float, standard_error: float, bounds: Bounds = None) -> Interval:
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


def over_seeds_and_groups(groups: Sequence[Sequence[float]]) -> Interval:
    """Return an interval over seeds and prompts, where every seed answers the same prompts.

    `groups[s][g]`: seed s's mean over the g-th of equal groups of prompts. Each of 1,000 resamples draws as many groups
    with replacement, and the ends are the 2.5th and 97.5th percentiles of the resampled means.

    The interval adds the deviation of the resampled groups and that of the seeds. The latter is Student's t over the
    seeds' means, t(S − 1) · s / √S at the middles of 1,000 equal shares in random order. There are too few seeds to
    resample: with three, the 95 % interval would reach from the lowest to the highest, and it would contain the true
    mean in 3 of 4 studies. With a single seed, the interval is over groups alone, and the basis is "examples".
    Deviations of G groups are multiplied by √(G / (G − 1)), because resamples vary by that much less than samples. The
    variance of the seeds' means already contains what seeds and groups cause only together (the interaction), so it is
    taken out of the deviations of the groups: its estimate is the mean square of the residuals of the two-way table, as
    in an analysis of variance.

    The random generator is seeded by the numbers themselves, so the same numbers give the same interval.
    """
    import numpy as np  # imported here because most reports do not need it

    values = np.array([list(row) for row in groups], np.float64)
    seeds, count = values.shape
    mean = float(values.mean())
    if not np.isfinite(values).all():
        return _interval(mean, math.nan, "none", None)
    chance = np.random.default_rng(identity(values.ravel().tolist(), seeds))

    groups_drawn = chance.integers(0, count, (RESAMPLES, count))
    off = (values.mean(0) - mean)[groups_drawn].mean(1) * math.sqrt(count / (count - 1))
    if seeds > 1:
        of_groups = values.mean(0).var(ddof=1)
        residuals = values - values.mean(0) - values.mean(1, keepdims=True) + mean
        interaction = (residuals**2).sum() / ((seeds - 1) * (count - 1)) / seeds
        off *= math.sqrt(max(0.0, of_groups - interaction) / of_groups) if of_groups else 1.0
        shares = [(n + 0.5) / RESAMPLES for n in range(RESAMPLES)]
        width = float(values.mean(1).std(ddof=1)) / math.sqrt(seeds)
        off += chance.permutation(_quantiles_t(seeds - 1, tuple(shares))) * width
    tail = (1 - CONFIDENCE) / 2
    low, high = (mean + float(end) for end in np.quantile(off, [tail, 1 - tail], method="hazen"))
    basis: Basis = "seeds and prompts" if seeds > 1 else "examples"
    return Interval(mean, low, high, (high - low) / 2, basis, bootstrap=True)


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


def _interval(mean: float, half_width: float, basis: Basis, bounds: Bounds) -> Interval:
    ends = within(bounds if basis != "none" else None, mean - half_width, mean + half_width)
    return Interval(mean, *ends, half_width, basis)


def within(bounds: Bounds, low: float, high: float) -> tuple[float, float]:
    """Return the ends of an interval, cut to the bounds."""
    return (max(low, bounds[0]), min(high, bounds[1])) if bounds else (low, high)
