"""What needs no training: predictions for every prefix of every prompt, by least squares, averaging, neighbours, constants.

Every function takes prompts `xs` [b, n, d] and labels `ys` [b, n] and gives float64 [b, n]: column i is the prediction for
`xs[:, i]` from the first i examples. What learns from examples predicts 0 where there are none.

Source: Garg et al. 2022, "What Can Transformers Learn In-Context?", and its code, whose baselines these are; Bhattamishra et al.
2023 for the null classifier and the single neighbour.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.config import ConfigError, near_miss

Array = NDArray[np.float64]

RANK = 1e-13  # of the longest row so far: what is left of a row, in directions not seen before, and no rounding of ours
ROUNDED = 16  # ... nor of who made the inputs, in their own precision: so many of its epsilons
PROMPTS = 320  # worked on at once: what they need stays in the processor's cache
PAIRS = 1 << 17  # distances held at once


def least_squares(xs: ArrayLike, ys: ArrayLike) -> Array:
    """Least squares of minimum norm: w = X⁺ y of the prefix, prediction w · x.

    One orthogonal update per example: the row space has an orthonormal basis V, which grows where an example points in a new
    direction, and the examples in its coordinates have a triangular factor R, which takes each as a row by Givens rotations.
    Then w = V R⁻¹ z is the minimum-norm solution at every rank, as exact as a decomposition of each prefix by itself, also
    where examples are repeated or labels contradict each other: nothing is ever squared or subtracted out again.

    A row counts as a new direction when more than `RANK` of the longest row so far remains of it; of float32 inputs more than
    2e-6, for inputs of a subspace leave it by their own rounding, and noise in the labels would be fitted there. (In a few prompts
    it is: in those whose first inputs nearly lie in a smaller subspace yet.)
    """
    given = np.asarray(xs).dtype
    least = max(RANK, ROUNDED * float(np.finfo(given).eps)) if np.issubdtype(given, np.floating) else RANK
    xs, ys = _prompts(xs, ys)
    cuts = [slice(n, n + PROMPTS) for n in range(0, len(xs), PROMPTS)]
    return np.concatenate([_least_squares(xs[cut], ys[cut], least) for cut in cuts])


def _least_squares(xs: Array, ys: Array, least: float) -> Array:
    x, y = np.ascontiguousarray(xs.transpose(1, 2, 0)), np.ascontiguousarray(ys.T)  # prompts last: [n, d, b], [n, b]
    n, d, b = x.shape
    found = np.zeros((n, b))
    basis = np.zeros((d, d, b))  # [direction, coordinate, prompt]; zero where there is no direction yet
    factor, side = np.zeros((d, d, b)), np.zeros((d, b))  # R and z; R w = z
    rank, longest = np.zeros(b, np.int64), np.zeros(b)
    for i in range(n):
        here = _within(basis, x[i])
        if i:
            found[i] = (here * _solve(factor, side, rank)).sum(0)
        if rank.min() < d:
            np.maximum(longest, np.sqrt((x[i] ** 2).sum(0)), out=longest)
            _grow(basis, here, x[i], rank, least * longest)
        _append(factor, side, here, y[i].copy())
    return found.T


def _within(basis: Array, row: Array) -> Array:
    """The coordinates of a row in the basis [d, b]."""
    return np.einsum("kdb,db->kb", basis, row)


def _grow(basis: Array, here: Array, row: Array, rank: NDArray[np.int64], least: Array) -> None:
    """Add the direction of what is left of `row` to the basis, where that is something; and its coordinate to `here`."""
    left = row - np.einsum("kdb,kb->db", basis, here)
    left -= np.einsum("kdb,kb->db", basis, _within(basis, left))  # once more: then it is orthogonal to the last digit
    size = np.sqrt((left**2).sum(0))
    (new,) = np.nonzero((size > least) & (rank < len(basis)))
    basis[rank[new], :, new] = (left[:, new] / size[new]).T
    here[rank[new], new] = size[new]
    rank[new] += 1


def _append(factor: Array, side: Array, row: Array, label: Array) -> None:
    """Rotate a row into the triangular factor, in place."""
    row = row.copy()
    for k in range(len(factor)):
        across = np.hypot(factor[k, k], row[k])
        turned = across > 0
        scale = np.divide(1.0, across, out=np.zeros_like(across), where=turned)
        cos, sin = np.where(turned, factor[k, k] * scale, 1.0), row[k] * scale
        upper, lower = factor[k, k:], row[k:]
        factor[k, k:], row[k:] = cos * upper + sin * lower, cos * lower - sin * upper
        side[k], label = cos * side[k] + sin * label, cos * label - sin * side[k]


def _solve(factor: Array, side: Array, rank: NDArray[np.int64]) -> Array:
    """R⁻¹ z in the first `rank` coordinates, 0 in the others."""
    found = np.zeros_like(side)
    for k in reversed(range(len(factor))):
        rest = side[k] - (factor[k, k + 1 :] * found[k + 1 :]).sum(0)
        np.divide(rest, factor[k, k], out=found[k], where=k < rank)
    return found


def averaging(xs: ArrayLike, ys: ArrayLike) -> Array:
    """w = mean of y x over the prefix, prediction w · x."""
    xs, ys = _prompts(xs, ys)
    sums = np.cumsum(ys[..., None] * xs, 1)
    found = np.zeros(ys.shape)
    found[:, 1:] = np.einsum("bnd,bnd->bn", sums[:, :-1], xs[:, 1:]) / np.arange(1, ys.shape[1])
    return found


def nearest(xs: ArrayLike, ys: ArrayLike, k: int = 3) -> Array:
    """Mean label of the k nearest examples by Euclidean distance, equal ones in the order given; of all while there are fewer."""
    xs, ys = _prompts(xs, ys)
    if k < 1:
        raise ValueError(f"k is {k}; a prediction needs at least 1 neighbour")
    b, n, _ = xs.shape
    found = np.zeros((b, n))
    queries = min(n, 64)
    prompts = max(1, PAIRS // (queries * n))
    for start in range(0, b, prompts):
        cut = slice(start, start + prompts)
        x, y = np.ascontiguousarray(xs[cut].transpose(2, 0, 1)), ys[cut]
        for first in range(0, n, queries):
            last = min(first + queries, n)
            found[cut, first:last] = _nearest(x[:, :, first:last], x[:, :, :last], y[:, :last], first, k)
    return found


def _nearest(queries: Array, keys: Array, labels: Array, first: int, k: int) -> Array:
    """Predictions for queries that stand at `first`, ... among the keys; coordinates first [d, b, n]."""
    distance = np.zeros((*queries.shape[1:], keys.shape[2]))
    apart = np.empty_like(distance)
    for query, key in zip(queries, keys, strict=True):  # differences, not products: equal examples are equally far
        np.subtract(query[:, :, None], key[:, None], out=apart)
        np.multiply(apart, apart, out=apart)
        distance += apart
    places = np.arange(first, first + queries.shape[2])
    distance[:, places[:, None] <= np.arange(keys.shape[2])] = np.inf
    total = np.zeros(queries.shape[1:])
    for nth in range(k):
        best = distance.argmin(2)  # the first of equal ones
        total += np.where(nth < places, np.take_along_axis(labels, best, 1), 0.0)
        np.put_along_axis(distance, best[..., None], np.inf, 2)
    return total / np.clip(places, 1, k)


def lasso(
    xs: ArrayLike,
    ys: ArrayLike,
    at: Sequence[int] | None = None,
    alpha: float = 0.01,
    iterations: int = 100_000,
) -> Array:
    """The w that minimises |y − X w|² / 2i + alpha |w|₁ over the prefix of i examples, no intercept: scikit-learn's `Lasso`.

    One fit for every prompt and prefix, so it can be asked for the columns `at` alone; the result has these, in that order.
    `ConfigError` where scikit-learn is not installed.
    """
    require(["lasso"])
    from sklearn import config_context
    from sklearn.linear_model import Lasso

    xs, ys = _prompts(xs, ys)
    places = range(xs.shape[1]) if at is None else at
    found = np.zeros((len(xs), len(places)))
    fit = Lasso(alpha=alpha, fit_intercept=False, max_iter=iterations)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
            for column, i in enumerate(places):
                if i:
                    found[n, column] = fit.fit(x[:i], y[:i]).coef_ @ x[i]
    return found


def constant(xs: ArrayLike, ys: ArrayLike, value: float) -> Array:
    """One number, whatever the prompt: −1 is the null classifier, 0 the zero estimator."""
    _, ys = _prompts(xs, ys)
    return np.full(ys.shape, value)


def mean_label(xs: ArrayLike, ys: ArrayLike) -> Array:
    """The mean of the labels so far, whatever their inputs."""
    _, ys = _prompts(xs, ys)
    found = np.zeros(ys.shape)
    found[:, 1:] = np.cumsum(ys, 1)[:, :-1] / np.arange(1, ys.shape[1])
    return found


def best_constant_label(xs: ArrayLike, ys: ArrayLike) -> Array:
    """The label, 1 or −1, that is the more frequent one among all of these prompts' labels; 1 where both are equally so."""
    _, ys = _prompts(xs, ys)
    return np.full(ys.shape, 1.0 if (ys > 0).sum() >= (ys <= 0).sum() else -1.0)


BASELINES: Mapping[str, Callable[[ArrayLike, ArrayLike], Array]] = {
    "least squares": least_squares,
    "averaging": averaging,
    "nearest neighbour": partial(nearest, k=1),
    "3 nearest neighbours": partial(nearest, k=3),
    "lasso": lasso,
    "mean label": mean_label,
    "zero": partial(constant, value=0.0),
    "always −1": partial(constant, value=-1.0),
    "best constant label": best_constant_label,
}
CONSTANTS = ("mean label", "zero", "always −1", "best constant label")  # do not look at the inputs
FITTED = ("lasso",)  # one fit for every prompt and prefix


def require(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a baseline that does not exist, or that cannot be fitted here for want of scikit-learn."""
    for name in names:
        if name not in BASELINES:
            there = ", ".join(BASELINES)
            raise ConfigError(f"there is no baseline {name!r}{near_miss(name, BASELINES)}; there are: {there}")
        if name == "lasso":
            try:
                import sklearn.linear_model  # noqa: F401
            except ImportError as error:
                raise ConfigError(
                    f'the baseline "lasso" needs scikit-learn, which cannot be imported ({error}); '
                    'pip install "lengthwise[baselines]"'
                ) from error


def predictions(name: str, xs: ArrayLike, ys: ArrayLike, at: Sequence[int] | None = None) -> Array:
    """What the baseline of that name (in `BASELINES`) predicts; `at`: these columns alone, in that order."""
    require([name])
    if at is None:
        return BASELINES[name](xs, ys)
    last = max(at, default=-1) + 1  # what comes later changes nothing before
    if name == "best constant label":  # but for this one, which is about all labels
        return best_constant_label(xs, ys)[:, list(at)]
    xs, ys = np.asarray(xs), np.asarray(ys)
    if xs.ndim == 3 and (min(at, default=0) < 0 or last > xs.shape[1]):
        raise ValueError(f"columns {list(at)} of prompts of {xs.shape[1]} examples; they are 0 to {xs.shape[1] - 1}")
    if name == "lasso":
        return lasso(xs, ys, at)
    return BASELINES[name](xs[:, :last], ys[:, :last])[:, list(at)]


def _prompts(xs: ArrayLike, ys: ArrayLike) -> tuple[Array, Array]:
    """Both in float64. `ValueError` for shapes that do not belong together, and for numbers that are none."""
    x, y = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
    if x.ndim != 3 or y.shape != x.shape[:2] or 0 in x.shape:
        raise ValueError(
            f"prompts of shape {list(x.shape)} and labels of shape {list(y.shape)} are not [b, n, d] and [b, n], with "
            "at least 1 of each"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("a prompt or a label has a number that is not finite: it has no prediction; leave it out")
    return x, y
