"""The mean of shares of correct answers over few seeds, when their distribution is far from normal.

Near 1 (or 0), most seeds are almost perfect and a few are not, so the distribution of the seeds' shares is skewed. Student's t then
is too narrow: of three, five or ten seeds, its 95 % interval contains the true mean in fewer than 90 % of studies
(docs/statistics.md). Here the shares of the seeds have a beta distribution, whose shape near the ends of the scale is the one of
shares.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln  # type: ignore[import-untyped]

TAIL = 0.025  # of each end of a 95 % interval
RESOLUTION = 64  # see `limits_of_mean`
WIDEST, MEANS, SPREADS = 16.0, 160, 32  # of the grid: the largest logit of a mean, and its points in both directions
COARSE = 97  # logits from −`WIDEST` to `WIDEST`, among which the ends of the grid are found
WINDOWS = (9, 17, 33, COARSE)  # logits around the mean of the shares, of which the first sufficient number is used
SHARP = 2.0  # nats from the largest to the third largest density on these logits: from there on, they are too far apart
FEWER = 2  # the ends of a range are found with every second concentration
ZOOM = 11  # points among which the ends of a narrower range are found
TOGETHER = 8  # samples that are computed at once: their numbers fit into the cache of a processor
REMEMBERED = 1 << 15  # samples whose limits are kept: several tables of a page need the same ones
WIDE = 0.05  # sample variance of shares, divided by mean (1 − mean), above which Student's t is not too narrow
LEAST = 2.0  # concentration of the widest distribution; at mean 1/2, it is uniform
NEGLIGIBLE = 9.0  # a density that is smaller than the largest by this factor, in nats, is left out
ANALYTIC, DIGITS = 3.0, 25.0  # of the interpolation: see `_nodes`
MANY = 50  # numbers from which on Stirling's series needs two terms: the third one is 1 / (360 · 50³) = 2e-8

Sample = tuple[Sequence[float], Sequence[float]]
_Key = tuple[tuple[float, ...], tuple[float, ...]]
_known: dict[_Key, tuple[float, float]] = {}
_LOGITS, _STEP = np.linspace(-WIDEST, WIDEST, COARSE, retstep=True)
_EQUIDISTANT = np.linspace(-1, 1, MEANS)


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
    return limits_of_means([(shares, counts)])[0]


def limits_of_means(samples: Iterable[Sample]) -> list[tuple[float, float]]:
    """Return what `limits_of_mean` returns for each of these pairs of shares and numbers of examples.

    NumPy takes about as long for a few numbers as for a thousand, so many samples at once take a fraction of the time.
    """
    keys = [(tuple(shares), tuple(counts)) for shares, counts in samples]
    found = {key: limits for key in keys if (limits := _known.get(key)) is not None}
    similar: defaultdict[tuple[float, ...], list[_Key]] = defaultdict(list)
    for key in dict.fromkeys(keys):
        if key not in found:
            similar[key[1]].append(key)
    for counts, members in similar.items():
        found.update(zip(members, _limits([shares for shares, _ in members], counts), strict=True))
    if len(_known) > REMEMBERED:
        _known.clear()
    _known.update(found)
    return [found[key] for key in keys]


def _limits(shares: Sequence[Sequence[float]], counts: Sequence[float]) -> list[tuple[float, float]]:
    posteriors = _Posteriors(np.array(shares, float), RESOLUTION * np.array(counts, float))
    ranges = np.concatenate([posteriors.ranges(which) for which in _parts(np.arange(len(shares)))])
    limits = np.empty((len(shares), 2))
    for half_width in np.unique(ranges[:, 1]):  # the same width needs the same number of points
        for which in _parts(np.flatnonzero(ranges[:, 1] == half_width)):
            middle = ranges[which, 0]
            density = posteriors.interpolated(which, middle, float(half_width))
            weights = np.exp(density - density.max((1, 2), keepdims=True)).sum(1)
            cumulative = (np.cumsum(weights, 1) - weights / 2) / weights.sum(1, keepdims=True)
            for n, place in enumerate(which):
                means = middle[n] + half_width * _EQUIDISTANT
                limits[place] = np.interp([TAIL, 1 - TAIL], cumulative[n], means)
    return [(float(low), float(high)) for low, high in 1 / (1 + np.exp(-limits))]


def _parts(places: Any) -> list[Any]:
    return [places[n : n + TOGETHER] for n in range(0, len(places), TOGETHER)]


class _Posteriors:
    """The logarithms of the posterior densities of some samples, up to a constant: [sample, concentration, logit of the mean].

    `shares`: [sample, seed]. `trials`: the number of trials of each seed.
    """

    def __init__(self, shares: Any, trials: Any) -> None:
        correct = np.round(shares * trials, 6)
        self.correct, self.wrong = correct, np.maximum(trials - correct, 0)
        self.start = (correct.sum(1) + 0.5) / (trials.sum() + 1)
        self.concentration, self.of_concentration = _concentrations(tuple(trials))

    def at(self, which: Any, means: Any, every: int = 1) -> Any:
        """Return the densities of some samples, at logits of the mean of each. `every`: leave out concentrations between these."""
        concentration = self.concentration[::every]
        odds = np.exp(means)[:, None, :]
        right, wrong = odds / (1 + odds), 1 / (1 + odds)  # the mean shares of correct and of wrong answers
        likelihood = _likelihood(self.correct[which], right * concentration)
        likelihood += _likelihood(self.wrong[which], wrong * concentration)
        return likelihood + (self.of_concentration[::every] + 0.5 * np.log(right * wrong))

    def ranges(self, which: Any) -> Any:
        """Return the range of logits in which the density of each of these samples is not negligible: middle, and half the width.

        For each concentration, the logarithm of the density is a concave function of the mean, so it has one maximum. A window
        around the mean of the shares is wide enough if at both ends every concentration is negligible and falls.
        """
        start = self.start[which]
        middle = np.abs(_LOGITS - np.log(start / (1 - start))[:, None]).argmin(1)
        ends, sharp = np.empty((len(which), 2), int), np.empty(len(which), bool)
        remaining = np.arange(len(which))
        for width in WINDOWS:
            first = np.clip(middle[remaining] - width // 2, 0, COARSE - width)
            density = self.at(which[remaining], _LOGITS[first[:, None] + np.arange(width)], FEWER)
            least = density.max((1, 2), keepdims=True) - NEGLIGIBLE
            ends[remaining] = np.clip(first[:, None] + _kept(density), 0, COARSE - 1)
            highest = np.sort(density.max(1), 1)
            sharp[remaining] = highest[:, -1] - highest[:, -3] > SHARP
            enough = (first == 0) | _ends(density[:, :, 0], density[:, :, 1], least[:, 0])
            enough &= (first == COARSE - width) | _ends(density[:, :, -1], density[:, :, -2], least[:, 0])
            remaining = remaining[~enough]
            if not len(remaining):
                break
        widths = (ends[:, 1] - ends[:, 0]) * _STEP
        return np.stack(self._narrowed(which, _LOGITS[ends].mean(1), widths / 2, np.flatnonzero(sharp)), 1)

    def _narrowed(self, which: Any, middle: Any, half_width: Any, wide: Any) -> tuple[Any, Any]:
        """Return narrower ranges for the samples `wide`, until the density is not negligible in more than half of each."""
        while len(wide):
            points = middle[wide, None] + half_width[wide, None] * np.linspace(-1, 1, ZOOM)
            ends = np.clip(_kept(self.at(which[wide], points, FEWER)), 0, ZOOM - 1)
            narrower = (ends[:, 1] - ends[:, 0]) <= (ZOOM - 1) / 2
            wide, ends, points = wide[narrower], ends[narrower], points[narrower]
            middle[wide] = np.take_along_axis(points, ends, 1).mean(1)
            half_width[wide] *= (ends[:, 1] - ends[:, 0]) / (ZOOM - 1)
        return middle, half_width

    def interpolated(self, which: Any, middle: Any, half_width: float) -> Any:
        """Return the densities at `MEANS` equidistant logits up to `half_width` from `middle`, by interpolation from fewer."""
        nodes = _nodes(half_width)
        if nodes >= MEANS:
            return self.at(which, middle[:, None] + half_width * _EQUIDISTANT)
        places, matrix = _interpolation(nodes)
        return self.at(which, middle[:, None] + half_width * places) @ matrix


def _likelihood(counts: Any, parameters: Any) -> Any:
    """Return the sum over seeds of ln Γ(count + a) − ln Γ(a), up to a constant. `counts`: [sample, seed]. `parameters`: a."""
    a = parameters.reshape(len(counts), 1, -1)
    counts = counts[:, :, None]
    found = -counts.shape[1] * gammaln(a)
    few = counts.min((1, 2)) < MANY
    if not few.any():
        found += _stirling(counts, a)
    else:
        found[few] += gammaln(counts[few] + a[few]).sum(1, keepdims=True)
        found[~few] += _stirling(counts[~few], a[~few])
    return found.reshape(parameters.shape)


def _stirling(counts: Any, a: Any) -> Any:
    """Return the sum over seeds of ln Γ(x) for x = count + a, up to a constant, where each count is at least `MANY`.

    By Stirling's series, ln Γ(x) = (x − 1/2) ln x − x + 1 / (12 x) + constant. NumPy computes this in a third of the time of
    SciPy's `gammaln`.
    """
    x = counts + a
    seeds = counts.shape[1]
    logarithms = np.concatenate([np.ones_like(counts), counts - 0.5], 2).swapaxes(1, 2) @ np.log(x)
    return a * (logarithms[:, :1] - seeds) + logarithms[:, 1:] + np.full((1, seeds), 1 / 12) @ (1 / x)


@lru_cache(maxsize=64)
def _concentrations(trials: tuple[float, ...]) -> tuple[Any, Any]:
    """Return the concentrations, and what depends on nothing else: the prior and a part of the likelihood."""
    concentration = np.exp(np.linspace(math.log(LEAST), math.log(100 * max(trials)), SPREADS))[:, None]
    rho = 1 / (1 + concentration)
    of_all = (gammaln(np.array(trials) + concentration) - gammaln(concentration)).sum(1, keepdims=True)
    return concentration, np.log(rho * (1 - rho)) - np.log(rho + 1 / max(trials)) - of_all


def _kept(density: Any) -> Any:
    """Return the places next to the first and to the last mean whose density is not negligible, for each sample."""
    kept = (density > density.max((1, 2), keepdims=True) - NEGLIGIBLE).any(1)
    return np.stack([kept.argmax(1) - 1, kept.shape[1] - kept[:, ::-1].argmax(1)], 1)


def _ends(outer: Any, inner: Any, least: Any) -> Any:
    return ((outer <= least) & (outer <= inner)).all(1)


def _nodes(half_width: float) -> int:
    """Return how many Chebyshev points interpolate the density to all digits in a range of logits.

    As a function of a complex logit, the density has no singularity within π of the real axis. In an ellipse that stays within
    `ANALYTIC`, with the range between its foci, the sum of its half-axes is `rate` times half the range, and the error of n points
    is proportional to rate^−n (Trefethen, Approximation Theory and Approximation Practice, 2013, chapter 8).
    """
    rate = ANALYTIC / half_width + math.hypot(ANALYTIC / half_width, 1)
    return math.ceil(DIGITS / math.log(rate))


@lru_cache(maxsize=128)
def _interpolation(nodes: int) -> tuple[Any, Any]:
    """Return Chebyshev points between −1 and 1, and the matrix of the barycentric interpolation at `MEANS` equidistant points."""
    angles = (np.arange(nodes) + 0.5) * math.pi / nodes
    places, weights = np.cos(angles), np.sin(angles) * (-1.0) ** np.arange(nodes)
    distances = _EQUIDISTANT - places[:, None]
    distances[distances == 0] = 1e-300  # the point itself
    terms = weights[:, None] / distances
    return places, terms / terms.sum(0)
