"""Baselines for every prefix of a prompt: least squares, averaging, nearest neighbours, lasso and constants.

Every function takes prompts `xs` [b, n, d] and labels `ys` [b, n] and returns float64 [b, n]: column i is the
prediction for `xs[:, i]` from the first i examples. Before the first example, methods that learn from examples predict
0.

Source: Garg et al. 2022, "What Can Transformers Learn In-Context?", and its code; Bhattamishra et al. 2023 for the null
classifier and the single neighbour.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.config import ConfigError, near_miss
from lengthwise.values import install_extra

Array = NDArray[np.float64]

# A row adds a direction to the row space if the part of it outside that space is longer than this share of the longest
# row so far. Shorter parts are rounding errors: of these computations, or (in units of the inputs' machine epsilon) of
# the inputs.
RANK_TOLERANCE = 1e-13
INPUT_EPSILONS = 16
CHUNK = 320  # prompts that are processed at once, so that their data stays in the CPU cache
MAX_DISTANCES = 1 << 17  # distances held in memory at once


def least_squares(xs: ArrayLike, ys: ArrayLike) -> Array:
    """Return least-squares predictions w · x with w = X⁺ y of the prefix, the solution of minimum norm.

    Each example is one orthogonal update. The row space has an orthonormal basis V, which grows when an example has a
    new direction. In its coordinates the examples have a triangular factor R, which Givens rotations update with each
    example. Then w = V R⁻¹ z is the minimum-norm solution at every rank. It is as accurate as a separate decomposition
    of each prefix, also for repeated examples and contradictory labels, because nothing is squared or subtracted out
    again.

    A new direction must be longer than `RANK_TOLERANCE` of the longest row so far, or than 2e-6 for float32 inputs:
    inputs of a subspace leave it by their own rounding errors, and label noise would be fitted there. (That still
    happens in a few prompts, whose first inputs nearly lie in a smaller subspace.)
    """
    dtype = np.asarray(xs).dtype
    epsilon = float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else 0.0
    tolerance = max(RANK_TOLERANCE, INPUT_EPSILONS * epsilon)
    xs, ys = _prompts(xs, ys)
    chunks = [slice(n, n + CHUNK) for n in range(0, len(xs), CHUNK)]
    return np.concatenate([_least_squares(xs[chunk], ys[chunk], tolerance) for chunk in chunks])


def _least_squares(xs: Array, ys: Array, tolerance: float) -> Array:
    x, y = np.ascontiguousarray(xs.transpose(1, 2, 0)), np.ascontiguousarray(ys.T)  # prompts last: [n, d, b], [n, b]
    n, d, b = x.shape
    predicted = np.zeros((n, b))
    basis = np.zeros((d, d, b))  # [direction, coordinate, prompt]; 0 for directions that do not exist yet
    factor, rhs = np.zeros((d, d, b)), np.zeros((d, b))  # R and z; R w = z
    rank, longest = np.zeros(b, np.int64), np.zeros(b)
    for i in range(n):
        coordinates = _project(basis, x[i])
        if i:
            predicted[i] = (coordinates * _solve(factor, rhs, rank)).sum(0)
        if rank.min() < d:
            np.maximum(longest, np.sqrt((x[i] ** 2).sum(0)), out=longest)
            _extend_basis(basis, coordinates, x[i], rank, tolerance * longest)
        _append_row(factor, rhs, coordinates, y[i].copy())
    return predicted.T


def _project(basis: Array, row: Array) -> Array:
    """Return the coordinates of a row in the basis [d, b]."""
    return np.einsum("kdb,db->kb", basis, row)


def _extend_basis(basis: Array, coordinates: Array, row: Array, rank: NDArray[np.int64], min_length: Array) -> None:
    """Extend the basis by the part of `row` outside it, if that is longer than `min_length`. In place.

    Also sets the row's coordinate in the new direction, and raises the rank.
    """
    residual = row - np.einsum("kdb,kb->db", basis, coordinates)
    residual -= np.einsum("kdb,kb->db", basis, _project(basis, residual))  # again, to be orthogonal to the last digit
    length = np.sqrt((residual**2).sum(0))
    (new,) = np.nonzero((length > min_length) & (rank < len(basis)))
    basis[rank[new], :, new] = (residual[:, new] / length[new]).T
    coordinates[rank[new], new] = length[new]
    rank[new] += 1


def _append_row(factor: Array, rhs: Array, row: Array, label: Array) -> None:
    """Rotate a row and its label into the triangular factor and the right-hand side, in place."""
    row = row.copy()
    for k in range(len(factor)):
        radius = np.hypot(factor[k, k], row[k])
        nonzero = radius > 0
        scale = np.divide(1.0, radius, out=np.zeros_like(radius), where=nonzero)
        cos, sin = np.where(nonzero, factor[k, k] * scale, 1.0), row[k] * scale
        upper, lower = factor[k, k:], row[k:]
        factor[k, k:], row[k:] = cos * upper + sin * lower, cos * lower - sin * upper
        rhs[k], label = cos * rhs[k] + sin * label, cos * label - sin * rhs[k]


def _solve(factor: Array, rhs: Array, rank: NDArray[np.int64]) -> Array:
    """Return R⁻¹ z in the first `rank` coordinates, and 0 in the others."""
    solution = np.zeros_like(rhs)
    for k in reversed(range(len(factor))):
        rest = rhs[k] - (factor[k, k + 1 :] * solution[k + 1 :]).sum(0)
        np.divide(rest, factor[k, k], out=solution[k], where=k < rank)
    return solution


def averaging(xs: ArrayLike, ys: ArrayLike) -> Array:
    """Return the predictions w · x, where w is the mean of y x over the prefix."""
    xs, ys = _prompts(xs, ys)
    sums = np.cumsum(ys[..., None] * xs, 1)
    predicted = np.zeros(ys.shape)
    predicted[:, 1:] = np.einsum("bnd,bnd->bn", sums[:, :-1], xs[:, 1:]) / np.arange(1, ys.shape[1])
    return predicted


def nearest(xs: ArrayLike, ys: ArrayLike, k: int = 3) -> Array:
    """Return the mean label of the k nearest examples by Euclidean distance, or of all examples while there are fewer.

    Among equally distant examples the earlier ones count.
    """
    xs, ys = _prompts(xs, ys)
    b, n, _ = xs.shape
    predicted = np.zeros((b, n))
    queries = min(n, 64)
    prompts = max(1, MAX_DISTANCES // (queries * n))
    for start in range(0, b, prompts):
        rows = slice(start, start + prompts)
        x, y = np.ascontiguousarray(xs[rows].transpose(2, 0, 1)), ys[rows]
        for first in range(0, n, queries):
            last = min(first + queries, n)
            predicted[rows, first:last] = _nearest(x[:, :, first:last], x[:, :, :last], y[:, :last], first, k)
    return predicted


def _nearest(queries: Array, keys: Array, labels: Array, first: int, k: int) -> Array:
    """Return predictions for queries whose indices among the keys start at `first`. Inputs are [d, b, n]."""
    distance = np.zeros((*queries.shape[1:], keys.shape[2]))
    difference = np.empty_like(distance)
    for query, key in zip(queries, keys, strict=True):
        # Differences, not products, so that equal examples have equal distances.
        np.subtract(query[:, :, None], key[:, None], out=difference)
        np.multiply(difference, difference, out=difference)
        distance += difference
    indices = np.arange(first, first + queries.shape[2])
    distance[:, indices[:, None] <= np.arange(keys.shape[2])] = np.inf
    total = np.zeros(queries.shape[1:])
    for neighbour in range(k):
        best = distance.argmin(2)  # the first one if several are equally near
        total += np.where(neighbour < indices, np.take_along_axis(labels, best, 1), 0.0)
        np.put_along_axis(distance, best[..., None], np.inf, 2)
    return total / np.clip(indices, 1, k)


def lasso(
    xs: ArrayLike, ys: ArrayLike, columns: Sequence[int] | None = None, alpha: float = 0.01, iterations: int = 100_000
) -> Array:
    """Return the predictions w · x of scikit-learn's `Lasso` without intercept.

    w minimises |y − X w|² / 2i + alpha |w|₁ over the prefix of i examples. Every prompt and prefix needs its own fit,
    so `columns` selects the columns to compute; the result has these, in this order.
    """
    from sklearn import config_context
    from sklearn.linear_model import Lasso

    xs, ys = _prompts(xs, ys)
    prefixes = range(xs.shape[1]) if columns is None else columns
    predicted = np.zeros((len(xs), len(prefixes)))
    model = Lasso(alpha=alpha, fit_intercept=False, max_iter=iterations)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
            for column, i in enumerate(prefixes):
                if i:
                    predicted[n, column] = model.fit(x[:i], y[:i]).coef_ @ x[i]
    return predicted


def constant(xs: ArrayLike, ys: ArrayLike, value: float) -> Array:
    """Return the same number for every prompt: −1 is the null classifier, 0 the zero estimator."""
    _, ys = _prompts(xs, ys)
    return np.full(ys.shape, value)


def mean_label(xs: ArrayLike, ys: ArrayLike) -> Array:
    """Return the mean of the labels so far."""
    _, ys = _prompts(xs, ys)
    predicted = np.zeros(ys.shape)
    predicted[:, 1:] = np.cumsum(ys, 1)[:, :-1] / np.arange(1, ys.shape[1])
    return predicted


def best_constant_label(xs: ArrayLike, ys: ArrayLike) -> Array:
    """Return in each column the label, 1 or −1, that most prompts have in this column; 1 if both are as frequent.

    So the chance level of each length is that of its own labels, as for the constant answer of tasks with few answers.
    """
    _, ys = _prompts(xs, ys)
    return np.broadcast_to(np.where((ys > 0).sum(0) >= (ys <= 0).sum(0), 1.0, -1.0), ys.shape).copy()


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
CONSTANTS = ("mean label", "zero", "always −1", "best constant label")  # do not use the inputs
FITTED = ("lasso",)  # need a fit for every prompt and prefix


def require(names: Iterable[str]) -> None:
    """Raise `ConfigError` for a baseline that does not exist, or that needs scikit-learn where it is not installed."""
    for name in names:
        if name not in BASELINES:
            available = ", ".join(BASELINES)
            raise ConfigError(f"there is no baseline {name!r}{near_miss(name, BASELINES)}; available: {available}")
        if name == "lasso":
            try:
                import sklearn.linear_model  # noqa: F401
            except ImportError as error:
                raise ConfigError(
                    f'the baseline "lasso" needs scikit-learn, which cannot be imported ({error}); '
                    f"{install_extra('baselines')}"
                ) from error


def predictions(name: str, xs: ArrayLike, ys: ArrayLike, columns: Sequence[int] | None = None) -> Array:
    """Return the predictions of a baseline in `BASELINES`. `columns`: return only these columns, in this order."""
    if columns is None:
        return BASELINES[name](xs, ys)
    if name == "lasso":
        return lasso(xs, ys, columns)
    last = max(columns) + 1  # later examples do not change earlier predictions
    return BASELINES[name](np.asarray(xs)[:, :last], np.asarray(ys)[:, :last])[:, list(columns)]


def _prompts(xs: ArrayLike, ys: ArrayLike) -> tuple[Array, Array]:
    return np.asarray(xs, np.float64), np.asarray(ys, np.float64)
