"""The mean of shares of correct answers over few seeds, when their distribution is far from normal.

Near 1 (or 0), most seeds are almost perfect and a few are not, so the distribution of the seeds' shares is skewed. Student's t then
is too narrow: of three, five or ten seeds, its 95 % interval contains the true mean in fewer than 90 % of studies
(docs/statistics.md). Here the shares of the seeds have a beta distribution, whose shape near the ends of the scale is the one of
shares.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

TAIL = 0.025  # of each end of a 95 % interval
RESOLUTION = 64  # see `limits_of_mean`
WIDEST, MEANS, SPREADS = 16.0, 80, 32  # of the grid: the largest logit of a mean, and its points in both directions
WIDE = 0.05  # sample variance of shares, divided by mean (1 − mean), above which Student's t is not too narrow
LEAST = 2.0  # concentration of the widest distribution; at mean 1/2, it is uniform
NEGLIGIBLE = 9.0  # a density that is smaller than the largest by this factor, in nats, is left out


def limits_of_mean(shares: Sequence[float], counts: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % limits of the mean share over all seeds, given the shares of a few. `counts`: each one's number of examples.

    The shares of seeds have a beta distribution with mean μ and concentration φ. The limits are the 2.5th and 97.5th percentiles of
    the posterior distribution of μ, on a grid, so the same shares have the same limits. The priors are Jeffreys' for μ, and for
    ρ = 1 / (1 + φ), which is the variance of the seeds' shares divided by μ (1 − μ), one that is flat in its logarithm from the
    resolution of the shares on. This is the prior for which the same calculation with normal scores gives Student's t.

    A share of n examples has a resolution of 1 / n, and 0 and 1 are possible. Its likelihood is therefore that of a beta-binomial
    distribution, of 64 n examples. With n examples, the variance that the examples cause would be subtracted from that of the
    seeds; like Student's t, this method takes the variance of the seeds as it is.

    Distributions that are wider than a uniform one (φ < 2) are left out: if most seeds could be either near 0 or near 1, three
    seeds near 1 would say little about the mean.
    """
    return _limits(tuple(shares), tuple(counts))


@lru_cache(maxsize=256)  # the two ends of an effective length need the same ones
def _limits(shares: tuple[float, ...], counts: tuple[float, ...]) -> tuple[float, float]:
    import numpy as np

    trials = [RESOLUTION * n for n in counts]
    data = Counter((round(share * n, 6), n) for share, n in zip(shares, trials, strict=True))
    resolution = max(trials)
    spreads = np.linspace(math.log(LEAST), math.log(100 * resolution), SPREADS)
    means = np.linspace(-WIDEST, WIDEST, 97)
    density = _log_density(means, spreads, data, resolution)
    kept = np.flatnonzero(density.max(0) > density.max() - NEGLIGIBLE)
    means = np.linspace(means[max(kept[0] - 1, 0)], means[min(kept[-1] + 1, len(means) - 1)], MEANS)
    density = _log_density(means, spreads, data, resolution)
    weights = np.exp(density - density.max()).sum(0)
    cumulative = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, high = 1 / (1 + np.exp(-np.interp([TAIL, 1 - TAIL], cumulative, means)))
    return float(low), float(high)


def _log_density(means: Any, spreads: Any, data: Counter[tuple[float, float]], resolution: float) -> Any:
    """Return the logarithm of the posterior density at logits of the mean and logarithms of the concentration, up to a constant."""
    import numpy as np
    from scipy.special import betaln  # type: ignore[import-untyped]

    mean, rest = 1 / (1 + np.exp(-means)), 1 / (1 + np.exp(means))
    concentration = np.exp(spreads)[:, None]
    a, b = mean * concentration, rest * concentration
    rho = 1 / (1 + concentration)
    prior = np.log(rho * (1 - rho)) - np.log(rho + 1 / resolution) + 0.5 * np.log(mean * rest)
    likelihood = sum(count * betaln(y + a, n - y + b) for (y, n), count in data.items())
    return likelihood - data.total() * betaln(a, b) + prior
