"""The limits of the mean of shares, against the same posterior distribution at every point of its grid, and on a fine grid."""

import math

import numpy as np
import pytest
from scipy.special import betaln

from lengthwise.analysis import shares
from lengthwise.analysis.shares import limits_of_mean, limits_of_means
from lengthwise.analysis.statistics.effective_length import STEPS, _last_step


def density(found: list[float], counts: list[float], means: np.ndarray) -> np.ndarray:
    """Return the logarithm of the posterior density at logits of the mean, from the beta-binomial distribution itself."""
    trials = [shares.RESOLUTION * n for n in counts]
    mean, rest = 1 / (1 + np.exp(-means)), 1 / (1 + np.exp(means))
    spreads = np.linspace(math.log(shares.LEAST), math.log(100 * max(trials)), shares.SPREADS)
    concentration = np.exp(spreads)[:, None]
    a, b, rho = mean * concentration, rest * concentration, 1 / (1 + concentration)
    prior = np.log(rho * (1 - rho)) - np.log(rho + 1 / max(trials)) + 0.5 * np.log(mean * rest)
    pairs = [(round(share * n, 6), n) for share, n in zip(found, trials, strict=True)]
    return sum(betaln(y + a, n - y + b) - betaln(a, b) for y, n in pairs) + prior


def limits_at_every_point(found: list[float], counts: list[float]) -> tuple[float, float]:
    """Return the limits on the method's own grid of means, without interpolation."""
    trials = shares.RESOLUTION * np.array(counts)
    ((middle, half_width),) = shares._Posteriors(np.array([found]), trials).ranges(np.array([0]))
    return limits_on(np.linspace(middle - half_width, middle + half_width, shares.MEANS), found, counts)


def limits_on_a_fine_grid(found: list[float], counts: list[float]) -> tuple[float, float]:
    """Return the limits on a grid of 4,001 means, whose range is found by another search."""
    left, right, narrower = -shares.WIDEST, shares.WIDEST, True
    while narrower:  # until the density is not negligible in half of the range
        means = np.linspace(left, right, 1001)
        coarse = density(found, counts, means).max(0)
        kept = np.flatnonzero(coarse > coarse.max() - 12)
        ends = means[max(kept[0] - 1, 0)], means[min(kept[-1] + 1, 1000)]
        narrower = ends[1] - ends[0] < 0.5 * (right - left)
        left, right = ends
    return limits_on(np.linspace(left, right, 4001), found, counts)


def limits_on(means: np.ndarray, found: list[float], counts: list[float]) -> tuple[float, float]:
    fine = density(found, counts, means)
    weights = np.exp(fine - fine.max()).sum(0)
    low, high = np.interp([0.025, 0.975], (np.cumsum(weights) - weights / 2) / weights.sum(), means)
    return 1 / (1 + math.exp(-low)), 1 / (1 + math.exp(-high))


@pytest.mark.parametrize(
    ("found", "counts"),
    [
        ([0.9, 0.93, 0.86], [512.0] * 3),
        ([0.301, 0.324, 0.255, 0.41, 0.333, 0.347, 0.298, 0.36, 0.31, 0.29], [512.0] * 10),
        ([1.0, 1.0, 1.0], [256.0] * 3),
        ([0.0, 0.0], [10.0, 1000.0]),
        ([1.0, 0.0, 1.0], [64.0] * 3),  # far apart, so the range of means is wide
        ([0.999, 1.0, 0.4, 1.0, 1.0], [64.0, 256.0, 64.0, 10.0, 1000.0]),
        ([0.5] * 5, [5000.0] * 5),
        ([0.7995, 0.8003, 0.8, 0.8011, 0.799], [50_000.0] * 5),  # narrow
        ([0.37454, 0.36869, 0.37251], [512.0] * 3),
        ([0.25, 0.75], [4.0, 4.0]),
    ],
)
def test_the_limits_are_those_of_the_whole_grid(found: list[float], counts: list[float]) -> None:
    limits = limits_of_mean(found, counts)
    for expected, share_of_width in (
        (limits_at_every_point(found, counts), 1e-6),
        (limits_on_a_fine_grid(found, counts), 0.02),
    ):
        assert limits == pytest.approx(expected, rel=0, abs=share_of_width * (expected[1] - expected[0]))


def test_many_samples_at_once_have_the_same_limits_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    samples = [
        (chance.binomial(512, chance.beta(4 * mean, 4 - 4 * mean, seeds)) / 512, [512.0 + n % 2] * seeds)
        for n, mean in enumerate([0.5, 0.999, 0.001, 0.97, 0.2, 0.5] * 4)
        for seeds in (2, 5)
    ]
    monkeypatch.setattr(shares, "_known", {})
    together = limits_of_means([*samples, samples[0]])
    monkeypatch.setattr(shares, "_known", {})
    assert together == [limits_of_mean(*sample) for sample in [*samples, samples[0]]]


@pytest.mark.slow
def test_the_limits_of_random_shares_are_those_of_the_whole_grid() -> None:
    """The grid itself is fine enough: half of the limits have an error below 0.2 % of the width, and all of them below 6 %."""
    chance, errors = np.random.default_rng(0), []
    for n in range(1000):
        seeds, examples = int(chance.choice([2, 3, 5, 10])), float(chance.choice([1, 10, 64, 512]))
        mean, concentration = chance.uniform(), math.exp(chance.uniform(-2, 9))
        drawn = chance.beta(mean * concentration, (1 - mean) * concentration, seeds)
        found = [float(share) for share in (np.round(drawn * examples) / examples if chance.uniform() < 0.5 else drawn)]
        limits = limits_of_mean(found, [examples] * seeds)
        low, high = expected = limits_at_every_point(found, [examples] * seeds)
        assert limits == pytest.approx(expected, rel=0, abs=1e-6 * (high - low)), found
        if n % 5 == 0:  # the fine grid takes long
            low, high = limits_on_a_fine_grid(found, [examples] * seeds)
            errors.append(max(abs(limits[0] - low), abs(limits[1] - high)) / (high - low))
    assert np.median(errors) < 0.002
    assert np.quantile(errors, 0.95) < 0.008
    assert max(errors) < 0.06


def test_the_first_failure_between_two_lengths_is_found_in_a_few_steps() -> None:
    """The step is that of halving, for curves that are straight, bent, flat, or that jump, and it never takes many tries."""
    chance = np.random.default_rng(1)
    for shape in ("straight", "bent", "jump"):
        for _ in range(50):
            root, power, tries = chance.uniform(), math.exp(chance.uniform(-2, 2)), 0

            def value(share: float, shape: str = shape, root: float = root, power: float = power) -> float:
                nonlocal tries
                tries += 1
                away = root - share
                size = 1.0 if shape == "jump" else abs(away) ** (power if shape == "bent" else 1.0)
                return math.copysign(size, away)

            step = _last_step(value(0.0), value(1.0), value)
            assert value(step / STEPS) >= 0 > value((step + 1) / STEPS)
            assert tries <= (8 if shape == "straight" else 24)
