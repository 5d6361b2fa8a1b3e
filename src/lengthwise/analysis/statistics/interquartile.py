"""The interquartile mean of scores over tasks and seeds, with a stratified bootstrap (Agarwal et al. 2021).

Source: arXiv:2108.13264.

It is the mean of the middle half of all scores. Unlike the mean, it does not depend on how bad the worst quarter is,
and unlike the median it uses more than one score. rliable, the authors' library, takes the percentiles of the
bootstrap. Its resamples vary by √((S − 1) / S) too little, and its percentiles assume that the variation is known, so
with three seeds its 95 % interval is too narrow (docs/statistics.md). Here the bootstrap only estimates the standard
error, and Student's t takes care of the few seeds. rliable also needs packages for statistics and charts that nothing
else here needs, and it cuts whole scores instead of parts of them, so its interquartile mean of three scores is their
mean.
"""

import math
from collections.abc import Sequence
from typing import Any

from lengthwise.analysis.estimates import RESAMPLES, Bounds, Interval, identity, over_examples, quantile_t, within


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean of the middle half of the values. A value that a quartile divides counts with its part.

    Of 1, 2, 6 and 9 it is (2 + 6) / 2; of 1, 2 and 6 it is (1/4 · 1 + 1 · 2 + 1/4 · 6) / 1.5.
    """
    if not values:
        raise ValueError("an interquartile mean needs at least one value, got none")
    return math.fsum(w * v for w, v in zip(middle_weights(len(values)), sorted(values), strict=True))


def middle_weights(count: int) -> list[float]:
    """Return the weights of sorted values in the interquartile mean: how much of each lies in the middle half."""
    low, high = count / 4, 3 * count / 4
    return [max(0.0, min(place + 1, high) - max(place, low)) / (high - low) for place in range(count)]


def interquartile(strata: Sequence[Sequence[float]], bounds: Bounds = None) -> Interval:
    """Return the interquartile mean of all scores with its 95 % interval over seeds. `strata`: each task's scores, one
    per seed.

    The stratified bootstrap draws seeds with replacement within each task, and multiplies the deviations from the
    task's mean by √(S / (S − 1)). The interval is the interquartile mean ± t · the standard deviation of 1,000
    resamples. t has the degrees of freedom of the tasks that are in the middle half: Welch-Satterthwaite with each
    task's share of the variance. Without at least two seeds in every task there is no interval.
    """
    import numpy as np

    values = [value for stratum in strata for value in stratum]
    mean = interquartile_mean(values)
    if not all(map(math.isfinite, values)) or any(len(stratum) < 2 for stratum in strata):
        return over_examples(mean, math.nan)
    chance = np.random.default_rng(identity(values, len(strata)))
    drawn = [_resampled(np.array(stratum, np.float64), chance) for stratum in strata]
    weights = np.array(middle_weights(len(values)))

    def deviation(samples: list[Any]) -> float:
        return float((np.sort(np.concatenate(samples, axis=1), axis=1) @ weights).std())

    error = deviation(drawn)
    if not error:
        return _interval(mean, 0.0, bounds)
    fixed = [
        np.broadcast_to(np.array(stratum, np.float64), sample.shape)
        for stratum, sample in zip(strata, drawn, strict=True)
    ]
    alone = [deviation([*fixed[:n], sample, *fixed[n + 1 :]]) for n, sample in enumerate(drawn)]
    total = math.fsum(one**2 for one in alone)
    degrees = total**2 / math.fsum(one**4 / (len(s) - 1) for one, s in zip(alone, strata, strict=True)) if total else 1
    return _interval(mean, quantile_t(degrees) * error, bounds)


def _resampled(stratum: Any, chance: Any) -> Any:
    count = len(stratum)
    drawn = stratum[chance.integers(0, count, (RESAMPLES, count))]
    return stratum.mean() + (drawn - stratum.mean()) * math.sqrt(count / (count - 1))


def _interval(mean: float, half_width: float, bounds: Bounds) -> Interval:
    ends = within(bounds, mean - half_width, mean + half_width)
    return Interval(mean, *ends, half_width, "seeds", bootstrap=True)
