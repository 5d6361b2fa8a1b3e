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
COARSE = 97  # logits from −`WIDEST` to `WIDEST`, among which the ends of the grid are found
WIDE = 0.05  # sample variance of shares, divided by mean (1 − mean), above which Student's t is not too narrow
LEAST = 2.0  # concentration of the widest distribution; at mean 1/2, it is uniform
NEGLIGIBLE = 9.0  # a density that is smaller than the largest by this factor, in nats, is left out
ANALYTIC, DIGITS = 3.0, 25.0  # of the interpolation: see `_nodes`


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


@lru_cache(maxsize=1 << 14)  # several tables of a page need the same ones
def _limits(shares: tuple[float, ...], counts: tuple[float, ...]) -> tuple[float, float]:
    import numpy as np

    trials = [RESOLUTION * n for n in counts]
    posterior = _Posterior(Counter((round(share * n, 6), n) for share, n in zip(shares, trials, strict=True)))
    left, right = posterior.range()
    means = np.linspace(left, right, MEANS)
    density = posterior.interpolated(means)
    weights = np.exp(density - density.max()).sum(0)
    cumulative = (np.cumsum(weights) - weights / 2) / weights.sum()
    low, high = 1 / (1 + np.exp(-np.interp([TAIL, 1 - TAIL], cumulative, means)))
    return float(low), float(high)


class _Posterior:
    """The logarithm of the posterior density, up to a constant: a row for each concentration, a column for each logit of a mean.

    `data`: how often each number of correct answers and of trials occurs.
    """

    def __init__(self, data: Counter[tuple[float, float]]) -> None:
        import numpy as np

        correct, trials = np.array(list(data), float).T
        self.times = np.array(list(data.values()), float)
        self.counts = np.concatenate([correct, trials - correct]).reshape(2, -1, 1, 1)
        self.start = (correct @ self.times + 0.5) / (trials @ self.times + 1)
        self.concentration, self.of_concentration = _concentrations(tuple(trials), tuple(self.times))

    def at(self, means: Any) -> Any:
        """Return the density at logits of the mean."""
        import numpy as np
        from scipy.special import gammaln  # type: ignore[import-untyped]

        mean = 1 / (1 + np.exp(np.stack([-means, means])))  # of correct and of wrong answers
        parameters = mean[:, None, :] * self.concentration
        terms = gammaln(self.counts + parameters[:, None]).sum(0) - gammaln(parameters).sum(0)
        likelihood = (self.times @ terms.reshape(len(self.times), -1)).reshape(terms.shape[1:])
        return likelihood + (self.of_concentration + 0.5 * np.log(mean).sum(0))

    def range(self) -> tuple[float, float]:
        """Return the logits between which the density is not negligible, among `COARSE` ones.

        For each concentration, the logarithm of the density is a concave function of the mean, so it has one maximum. The search
        goes from the mean of the shares to both sides, and ends where every concentration is negligible and falls.
        """
        import numpy as np

        logits = np.linspace(-WIDEST, WIDEST, COARSE)
        middle = int(np.argmin(np.abs(logits - math.log(self.start / (1 - self.start)))))
        first, last = max(middle - 2, 0), min(middle + 3, COARSE)
        density = self.at(logits[first:last])
        while True:
            least = density.max() - NEGLIGIBLE
            if first > 0 and not _ends(density[:, 0], density[:, 1], least):
                further = max(first - 3, 0)
                density, first = np.hstack([self.at(logits[further:first]), density]), further
            elif last < COARSE and not _ends(density[:, -1], density[:, -2], least):
                further = min(last + 3, COARSE)
                density, last = np.hstack([density, self.at(logits[last:further])]), further
            else:
                kept = first + np.flatnonzero(density.max(0) > least)
                return float(logits[max(kept[0] - 1, 0)]), float(logits[min(kept[-1] + 1, COARSE - 1)])

    def interpolated(self, means: Any) -> Any:
        """Return the density at equidistant logits of the mean, by interpolation if that takes fewer points."""
        nodes = _nodes((means[-1] - means[0]) / 2)
        if nodes >= len(means):
            return self.at(means)
        places, matrix = _interpolation(nodes, len(means))
        return self.at((means[0] + means[-1]) / 2 + (means[-1] - means[0]) / 2 * places) @ matrix


@lru_cache(maxsize=64)
def _concentrations(trials: tuple[float, ...], times: tuple[float, ...]) -> tuple[Any, Any]:
    """Return the concentrations, and what depends on nothing else: the prior and a part of the likelihood."""
    import numpy as np
    from scipy.special import gammaln

    concentration = np.exp(np.linspace(math.log(LEAST), math.log(100 * max(trials)), SPREADS))[:, None]
    rho = 1 / (1 + concentration)
    of_all = (gammaln(np.array(trials) + concentration) - gammaln(concentration)) @ np.array(times)
    return concentration, np.log(rho * (1 - rho)) - np.log(rho + 1 / max(trials)) - of_all[:, None]


def _ends(outer: Any, inner: Any, least: float) -> bool:
    return bool(((outer <= least) & (outer <= inner)).all())


def _nodes(half_width: float) -> int:
    """Return how many Chebyshev points interpolate the density to all digits in a range of logits.

    As a function of a complex logit, the density has no singularity within π of the real axis. In an ellipse that stays within
    `ANALYTIC`, with the range between its foci, the sum of its half-axes is `rate` times half the range, and the error of n points
    is proportional to rate^−n (Trefethen, Approximation Theory and Approximation Practice, 2013, chapter 8).
    """
    rate = ANALYTIC / half_width + math.hypot(ANALYTIC / half_width, 1)
    return math.ceil(DIGITS / math.log(rate))


@lru_cache(maxsize=128)
def _interpolation(nodes: int, points: int) -> tuple[Any, Any]:
    """Return Chebyshev points between −1 and 1, and the matrix that interpolates from them to equidistant points (barycentric)."""
    import numpy as np

    angles = (np.arange(nodes) + 0.5) * math.pi / nodes
    places, weights = np.cos(angles), np.sin(angles) * (-1.0) ** np.arange(nodes)
    distances = np.linspace(-1, 1, points) - places[:, None]
    distances[distances == 0] = 1e-300  # the point itself
    terms = weights[:, None] / distances
    return places, terms / terms.sum(0)
