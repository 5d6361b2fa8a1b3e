"""Baselines against numbers by hand, a decomposition of every prefix by itself, and their expected errors."""

from collections.abc import Callable

import numpy as np
import pytest

from lengthwise.baselines import in_context
from lengthwise.baselines.in_context import BASELINES, Array, averaging, least_squares, nearest, predictions, require
from lengthwise.config import ConfigError

# By hand: w = (1.5, −2), four examples of two coordinates.
XS = [[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]]]
YS = [[1.5, -2.0, -0.5, 5.0]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("least squares", [0, 0, -0.5, 5]),
        ("averaging", [0, 0, -0.25, 1.5]),
        ("nearest neighbour", [0, 1.5, 1.5, 1.5]),
        ("3 nearest neighbours", [0, 1.5, -0.25, -1 / 3]),
        ("mean label", [0, 1.5, -0.25, -1 / 3]),
        ("zero", [0, 0, 0, 0]),
        ("always −1", [-1, -1, -1, -1]),
        ("best constant label", [1, -1, -1, 1]),
    ],
)
def test_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(predictions(name, XS, YS), [expected], rtol=0, atol=1e-14)


# ---- least squares ----------------------------------------------------------------------------------------------


def by_itself(xs: Array, ys: Array) -> Array:
    """Minimum-norm least squares of each prefix by NumPy."""
    found = np.zeros(ys.shape)
    for p, (x, y) in enumerate(zip(xs, ys, strict=True)):
        for i in range(1, len(x)):
            found[p, i] = np.linalg.lstsq(x[:i], y[:i], rcond=None)[0] @ x[i]
    return found


def gaussian(d: int, n: int = 40, prompts: int = 12) -> tuple[Array, Array]:
    chance = np.random.default_rng(d)
    xs = chance.standard_normal((prompts, n, d))
    return xs, np.einsum("bnd,bd->bn", xs, chance.standard_normal((prompts, d)))


def boolean(d: int) -> tuple[Array, Array]:
    xs, ys = gaussian(d)
    return np.sign(xs), np.sign(ys)


def duplicated(d: int) -> tuple[Array, Array]:
    """Some directions never occur, and repeated examples contradict themselves."""
    xs, ys = boolean(d)
    for n, x in enumerate(xs):
        x[:] = x[np.random.default_rng(n).integers(0, 2 + n % d, len(x))]
    return xs, ys


def half_subspace(d: int) -> tuple[Array, Array]:
    xs, ys = gaussian(d)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((d, max(1, d // 2))))[0]
    return xs @ basis @ basis.T, ys


def noisy(d: int) -> tuple[Array, Array]:
    xs, ys = gaussian(d)
    return xs, ys + np.random.default_rng(2).standard_normal(ys.shape)


def skewed(d: int) -> tuple[Array, Array]:
    xs, ys = noisy(d)
    return xs * np.logspace(0, -4, d), ys


def with_zeros(d: int) -> tuple[Array, Array]:
    """A dimension curriculum's inputs, and examples that are zero altogether."""
    xs, ys = gaussian(d)
    xs[:, :, d // 2 + 1 :] = 0
    xs[:, ::3] = 0
    return xs, ys


def nearly_equal(d: int) -> tuple[Array, Array]:
    """Every second example repeats the one before with differences of a millionth."""
    xs, _ = gaussian(d)
    xs[:, 1::2] = xs[:, ::2] + 1e-6 * xs[:, 1::2]
    return xs, xs @ np.arange(1.0, d + 1)


@pytest.mark.parametrize("kind", [gaussian, boolean, duplicated, half_subspace, noisy, skewed, with_zeros])
@pytest.mark.parametrize("d", [1, 2, 5, 16, 50])
def test_least_squares_is_that_of_each_prefix_by_itself(kind: Callable[[int], tuple[Array, Array]], d: int) -> None:
    xs, ys = kind(d)
    found, expected = least_squares(xs, ys), by_itself(xs, ys)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_least_squares_of_examples_that_are_nearly_equal() -> None:
    """Squared, a condition of a million would leave four digits; noiseless labels are found to more."""
    xs, ys = nearly_equal(8)
    np.testing.assert_allclose(least_squares(xs, ys)[:, 8:], ys[:, 8:], rtol=0, atol=1e-7)


@pytest.mark.medium
def test_prompts_with_different_ranks_do_not_touch_each_other() -> None:
    pairs = [kind(6) for kind in (gaussian, duplicated, half_subspace, boolean, with_zeros)]
    xs, ys = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    alone = np.concatenate([least_squares(x[None], y[None]) for x, y in zip(xs, ys, strict=True)])
    np.testing.assert_allclose(least_squares(xs, ys), alone, rtol=1e-9, atol=1e-9)


@pytest.mark.medium
def test_the_error_of_least_squares_is_the_dimension_less_the_examples() -> None:
    """x, w ~ N(0, I): E (y − ŷ)² = max(d − i, 0) after i examples."""
    chance = np.random.default_rng(3)
    d, prompts = 16, 20_000
    xs = chance.standard_normal((prompts, 24, d))
    ys = np.einsum("bnd,bd->bn", xs, chance.standard_normal((prompts, d)))
    errors = (least_squares(xs, ys) - ys) ** 2
    mean, se = errors.mean(0), errors.std(0, ddof=1) / np.sqrt(prompts)
    expected = np.maximum(d - np.arange(24), 0)
    assert (np.abs(mean - expected) <= 4 * se + 1e-9).all()
    assert (se[:d] < 0.2).all()


# ---- neighbours -------------------------------------------------------------------------------------------------


def one_by_one(xs: Array, ys: Array, k: int) -> Array:
    found = np.zeros(ys.shape)
    for p, (x, y) in enumerate(zip(xs, ys, strict=True)):
        for i in range(1, len(x)):
            far = [sum((a - b) ** 2 for a, b in zip(x[i], other, strict=True)) for other in x[:i]]
            order = sorted(range(i), key=lambda j: (far[j], j))[:k]
            found[p, i] = np.mean(y[order])
    return found


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("kind", [gaussian, boolean, duplicated])
def test_nearest_neighbours_and_ties(k: int, kind: Callable[[int], tuple[Array, Array]]) -> None:
    xs, ys = kind(5)
    ys = ys + np.arange(40)  # every label says which example it is from
    np.testing.assert_allclose(nearest(xs, ys, k), one_by_one(xs, ys, k), rtol=0, atol=1e-12)


def test_neighbours_across_blocks() -> None:
    chance = np.random.default_rng(4)
    xs, ys = np.sign(chance.standard_normal((3, 150, 4))), chance.standard_normal((3, 150))
    np.testing.assert_allclose(nearest(xs, ys), one_by_one(xs, ys, 3), rtol=0, atol=1e-12)


# ---- the others -------------------------------------------------------------------------------------------------


def test_averaging_one_by_one() -> None:
    xs, ys = noisy(5)
    expected = [
        [(y[:i, None] * x[:i]).mean(0) @ x[i] if i else 0 for i in range(40)] for x, y in zip(xs, ys, strict=True)
    ]
    np.testing.assert_allclose(averaging(xs, ys), expected, rtol=0, atol=1e-12)


def test_the_best_constant_label_is_that_of_all_prompts_at_each_length() -> None:
    """The labels of one length do not change the chance level of another, as for the constant answer of other tasks."""
    xs, ys = np.ones((3, 4, 3)), [[1, -1, -1, 1], [1, 1, -1, -1], [1, -1, -1, 1]]
    assert predictions("best constant label", xs, ys).tolist() == [[1, -1, -1, 1]] * 3
    assert predictions("best constant label", xs, ys, columns=[3, 1]).tolist() == [[1, -1]] * 3
    tie = [[1], [-1]]
    assert predictions("best constant label", np.ones((2, 1, 3)), tie).tolist() == [[1], [1]]


@pytest.mark.medium
def test_lasso_minimises_its_objective() -> None:
    pytest.importorskip("sklearn")
    xs, ys = gaussian(4, n=12, prompts=3)
    found = in_context.lasso(xs, ys)
    for x, y, row in zip(xs, ys, found, strict=True):
        for i in (1, 3, 11):
            w = coordinate_descent(x[:i], y[:i], 0.01)
            assert row[i] == pytest.approx(w @ x[i], abs=2e-3)
    assert (found[:, 0] == 0).all()


def coordinate_descent(x: Array, y: Array, alpha: float) -> Array:
    """|y − X w|² / 2n + alpha |w|₁, at most 500 rounds of the closed form in one coordinate."""
    w = np.zeros(x.shape[1])
    for _ in range(500):
        before = w.copy()
        for j in range(len(w)):
            rest = y - x @ w + x[:, j] * w[j]
            pull = x[:, j] @ rest / len(x)
            w[j] = np.sign(pull) * max(abs(pull) - alpha, 0) / (x[:, j] @ x[:, j] / len(x))
        if np.abs(w - before).max() < 1e-9:
            break
    return w


def test_lasso_without_scikit_learn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"needs scikit-learn, .*pip install '\.\[baselines\]'"):
        require(["lasso"])


@pytest.mark.parametrize("name", BASELINES)
def test_columns_asked_for_are_those_of_all(name: str) -> None:
    if name == "lasso":
        pytest.importorskip("sklearn")
    xs, ys = boolean(5)
    np.testing.assert_allclose(
        predictions(name, xs, ys, columns=[17, 0, 9]), predictions(name, xs, ys)[:, [17, 0, 9]], rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", [n for n in BASELINES if n not in ("best constant label", "lasso")])
def test_a_prediction_knows_nothing_of_its_own_label_or_later_examples(name: str) -> None:
    xs, ys = noisy(3)
    later_xs, later_ys = xs.copy(), ys.copy()
    later_ys[:, 9:] += 5
    later_xs[:, 10:] += 5
    before, after = predictions(name, xs, ys), predictions(name, later_xs, later_ys)
    np.testing.assert_array_equal(before[:, :10], after[:, :10])


def test_a_subspace_in_float32_stays_one() -> None:
    """Rounded, its inputs have a little in every direction; noisy labels must not be fitted there."""
    chance = np.random.default_rng(5)
    basis = np.linalg.qr(chance.standard_normal((16, 8)))[0]
    xs, ys = chance.standard_normal((200, 24, 16)) @ basis @ basis.T, chance.standard_normal((200, 24))
    exact, rounded = least_squares(xs, ys)[:, 12:], least_squares(xs.astype(np.float32), ys.astype(np.float32))[:, 12:]
    same = np.isclose(exact, rounded, rtol=1e-2, atol=1e-2)
    assert same.mean() > 0.97, "all but those whose first eight inputs nearly lie in fewer dimensions"
    everywhere = least_squares(xs.astype(np.float32).astype(float), ys)[:, 12:]
    assert np.isclose(exact, everywhere, rtol=1e-2, atol=1e-2).mean() < 0.2
    np.testing.assert_array_equal(
        predictions("least squares", xs.astype(np.float32), ys.astype(np.float32), columns=[20])[:, 0], rounded[:, 8]
    )


def test_float32_is_worked_on_in_float64() -> None:
    xs, ys = (part.astype(np.float32) for part in gaussian(5))
    assert least_squares(xs, ys).dtype == np.float64
    np.testing.assert_array_equal(least_squares(xs, ys), least_squares(xs.astype(float), ys.astype(float)))


def test_an_unknown_baseline() -> None:
    with pytest.raises(ConfigError, match=r"there is no baseline 'averagin'.*averaging"):
        require(["averagin"])
