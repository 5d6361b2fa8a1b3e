"""Statistics against numbers worked out by hand, and against SciPy's own functions."""

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import optimize, stats

from lengthwise.analysis import Estimate, Findings
from lengthwise.analysis.estimates import over_seeds, over_seeds_and_groups, over_shares
from lengthwise.analysis.ranks import mean_reciprocal_rank
from lengthwise.analysis.statistics import (
    Curve,
    Options,
    area,
    area_weights,
    compare_all,
    detectable_effect,
    effective_length,
    holm,
    interquartile,
    interquartile_mean,
    needed_seeds,
    power,
    statistics_of,
)
from lengthwise.analysis.statistics.effective_length import non_increasing
from lengthwise.analysis.statistics.paired import effect_interval, hedges_factor
from lengthwise.analysis.statistics.seeds import deviation_interval, seeds_for
from lengthwise.config import ConfigError
from lengthwise.metrics import CROSS_ENTROPY, EXACT_MATCH

LENGTHS = (64, 128, 256)
Make = Callable[..., Findings]


def curves(*rows: Sequence[float], n: int = 100) -> list[Curve]:
    return [tuple(Estimate(seed=s, mean=v, standard_error=0.0, n=n) for v in row) for s, row in enumerate(rows)]


# ---- effective lengths ------------------------------------------------------------------------------------------


def test_an_effective_length_is_interpolated_over_the_logarithm() -> None:
    """Losses 2.0, 2.1 and 2.5; at most 2.3 passes. It is reached half-way from 128 to 256: 128 · √2 = 181.02."""
    found = effective_length(LENGTHS, curves([2.0, 2.1, 2.5], [2.0, 2.1, 2.5]), 2.3, CROSS_ENTROPY)
    assert found is not None
    assert found.value == pytest.approx(128 * math.sqrt(2), rel=1e-3)
    assert (found.text, found.tested) == ("181", 128)
    assert found.low == pytest.approx(found.value, rel=1e-3), "the seeds agree"


def test_its_interval_is_where_the_interval_of_the_score_contains_the_threshold() -> None:
    """At 128 + w octaves the three seeds have 2.0 + w and ± 0.1, so the limits are 2.0 + w ± 4.302653 · 0.1 / √3 = ±
    0.24841. They equal 2.5 at w = 0.25159 and 0.74841."""
    rows = ([1.9, 1.9, 2.9], [2.0, 2.0, 3.0], [2.1, 2.1, 3.1])
    found = effective_length(LENGTHS, curves(*rows), 2.5, CROSS_ENTROPY)
    assert found is not None
    assert [found.low, found.value, found.high] == pytest.approx(
        [128 * 2**w for w in (0.25159, 0.5, 0.74841)], rel=1e-3
    )
    assert found.interval_text == "152 … 215"


@pytest.mark.parametrize(
    ("row", "text", "tested"),
    [([0.9, 0.9, 0.85], "≥ 256", 256), ([0.7, 0.9, 0.9], "< 64", None), ([0.9, 0.7, 0.9], "90", 64)],
)
def test_an_effective_length_is_censored_and_ends_at_the_first_certain_failure(
    row: list[float], text: str, tested: int | None
) -> None:
    """From 0.9 to 0.7, the threshold 0.8 is half-way: 64 · √2 = 90.5. A later length that passes again does not count,
    because Wilson's interval of 70 of 100 ends at 0.781."""
    found = effective_length(LENGTHS, curves(row), 0.8, EXACT_MATCH)
    assert found is not None
    assert (found.text, found.tested) == (text, tested)


def test_an_uncertain_failure_is_averaged_with_the_next_length() -> None:
    """The mean of 0.79 and 0.83 passes. The interval still begins where the lower end of 0.79 fails."""
    found = effective_length(LENGTHS, curves([0.9, 0.78, 0.84], [0.9, 0.8, 0.82]), 0.8, EXACT_MATCH)
    assert found is not None
    assert (found.text, found.tested) == ("≥ 256", 256)
    assert found.low < 128
    assert found.high == math.inf


def test_non_increasing() -> None:
    """The values of isotonic regression, by SciPy and by hand."""
    assert non_increasing([3.0, 1.0, 2.0, 2.5, 0.0]) == pytest.approx([3.0, 11 / 6, 11 / 6, 11 / 6, 0.0])
    for values in np.random.default_rng(0).standard_normal((20, 7)).tolist():
        expected = optimize.isotonic_regression(values, increasing=False).x
        assert non_increasing(values) == pytest.approx(expected.tolist())


def shares_of_seeds(chance: np.random.Generator, means: Sequence[float], seeds: int) -> list[Curve]:
    """Return curves of seeds with beta distributions of concentration 60, and of 512 independent examples."""
    shares = chance.beta(60 * np.array(means), 60 - 60 * np.array(means), (seeds, len(means)))
    return curves(*(chance.binomial(512, shares) / 512).tolist(), n=512)


def test_the_estimate_is_not_too_short_where_scores_stay_near_the_threshold() -> None:
    """The true one is ≥ 512. The first failure of means would be below 512 in 73 % of studies, below 128 in 36 %."""
    chance, lengths = np.random.default_rng(1), (64, 128, 256, 512)
    values = []
    for _ in range(400):
        found = effective_length(lengths, shares_of_seeds(chance, (0.83, 0.82, 0.81, 0.81), 3), 0.8, EXACT_MATCH)
        assert found is not None
        values.append(found.value)
    assert np.mean(np.array(values) < 512) == pytest.approx(0.49, abs=0.08)
    assert np.mean(np.array(values) < 128) == pytest.approx(0.12, abs=0.05)


def test_a_single_seed_has_no_interval() -> None:
    found = effective_length(LENGTHS, curves([0.9, 0.7, 0.5]), 0.8, EXACT_MATCH)
    assert found is not None
    assert found.interval_text == ""
    assert effective_length(LENGTHS, [], 0.8, EXACT_MATCH) is None


def test_the_interval_of_a_censored_length_reaches_below_the_longest() -> None:
    rows = ([1.0, 0.95, 0.95], [1.0, 0.97, 0.85], [1.0, 0.96, 0.75])
    found = effective_length(LENGTHS, curves(*rows), 0.8, EXACT_MATCH)
    assert found is not None
    assert (found.text, found.high) == ("≥ 256", math.inf)
    assert 128 < found.low < 256


# ---- areas ------------------------------------------------------------------------------------------------------


def test_area_weights() -> None:
    """Octaves from 64: 0, 1 and 3. Trapezoids: 1/2 · 1, 1/2 · 3 and 1/2 · 2, over the whole width of 3."""
    assert area_weights([64, 128, 512]) == pytest.approx([1 / 6, 1 / 2, 1 / 3])
    for lengths in ([64], [128, 64], [64, 64]):
        with pytest.raises(ValueError, match="at least two lengths in increasing order"):
            area_weights(lengths)


def test_an_area_is_a_mean_over_seeds() -> None:
    """Octaves 0, 1 and 2 have the weights 1/4, 1/2, 1/4: areas 2.25 and 2.45."""
    found = area(LENGTHS, curves([2.0, 2.0, 3.0], [2.2, 2.2, 3.2]), CROSS_ENTROPY)
    assert found == over_seeds([2.25, 2.45])
    shares = area(LENGTHS, curves([1.0, 0.8, 0.4], [1.0, 0.6, 0.2]), EXACT_MATCH)  # 100 examples: 1 / Σ w²/100 = 266.7
    assert shares == over_shares([0.75, 0.6], [800 / 3, 800 / 3])
    assert area((64,), curves([1.0]), EXACT_MATCH) is None


# ---- interquartile means ----------------------------------------------------------------------------------------


def test_the_interquartile_mean() -> None:
    assert interquartile_mean([9, 1, 6, 2]) == pytest.approx(4)
    assert interquartile_mean([1, 2, 6]) == pytest.approx((1 / 4 + 2 + 6 / 4) / 1.5)
    assert interquartile_mean([5]) == 5
    values = np.random.default_rng(0).normal(size=40).tolist()
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25)), "a multiple of four"
    with pytest.raises(ValueError, match="at least one value"):
        interquartile_mean([])


def test_the_interval_of_two_equal_tasks_is_like_students() -> None:
    """With equal tasks of many seeds: about t · s / √n of the middle half; without variation, no width."""
    assert interquartile([[0.5, 0.5], [0.7, 0.7]]).half_width == pytest.approx(0, abs=1e-12)
    assert interquartile([[0.5], [0.7, 0.7]]).basis == "none", "a single seed"
    first, second = np.random.default_rng(1).normal(size=(2, 200)).tolist()
    found = interquartile([first, second])
    # Asymptotic variance of a 25 % trimmed mean: that of the values cut to the quartiles, divided by (1/2)².
    cut = np.clip([*first, *second], *np.quantile([*first, *second], [0.25, 0.75]))
    assert found.half_width == pytest.approx(1.966 * cut.std() / 0.5 / math.sqrt(400), rel=0.15)
    assert interquartile([first, second]) == found, "the same numbers have the same interval"


# ---- paired comparisons -----------------------------------------------------------------------------------------


def test_holm() -> None:
    """0.01 · 4, 0.02 · 3 = 0.06, then 0.03 · 2 = 0.06 and 0.04 · 1, which is not below the earlier 0.06."""
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_paired_comparison() -> None:
    """Differences 1, 2, 3: mean 2, s = 1, t = 2 √3 = 3.4641 for two degrees of freedom; d = 2 Γ(1) / Γ(1/2)."""
    (found,) = compare_all({"A": {0: 1.0, 1: 2.0, 2: 3.0, 7: 9.0}, "B": {0: 0.0, 1: 0.0, 2: 0.0}}, "higher")
    assert (found.first, found.second, found.seeds, found.deviation) == ("A", "B", (0, 1, 2), 1.0)
    assert found.difference == over_seeds([1.0, 2.0, 3.0])
    assert found.p == found.p_holm == pytest.approx(0.0741799, abs=1e-6)  # t table: 2 · (1 − F(3.4641))
    assert found.p == pytest.approx(stats.ttest_rel([1, 2, 3], [0, 0, 0]).pvalue)
    assert found.effect == pytest.approx(2 / math.sqrt(math.pi))
    assert found.superiority is not None
    assert found.superiority[0] == pytest.approx(statistics.NormalDist().cdf(2 / math.sqrt(math.pi)))
    assert not found.resolved


def test_the_better_encoding_is_first() -> None:
    (found,) = compare_all({"A": {0: 3.0, 1: 3.2, 2: 3.4}, "B": {0: 1.0, 1: 1.0, 2: 1.0}}, "lower")
    assert (found.first, found.difference.mean) == ("B", pytest.approx(-2.2))
    assert found.effect is not None
    assert found.effect > 0


def test_comparisons_without_a_test() -> None:
    """One common seed, none, and the same difference for every seed. Two seeds have a p value, and no effect size."""
    one, equal = {"A": {0: 1.0}, "B": {0: 0.5, 1: 0.4}}, {"A": {0: 0.3, 1: 0.5}, "B": {0: 0.1, 1: 0.3}}
    (single,) = compare_all(one, "higher")
    assert (single.p, single.effect, single.difference.basis) == (None, None, "none")
    assert math.isnan(single.deviation)
    (same,) = compare_all(equal, "higher")
    assert (same.p, same.p_holm, same.deviation) == (None, None, 0.0)
    assert compare_all({"A": {0: 1.0}, "B": {1: 1.0}, "C": {}}, "higher") == ()
    (two,) = compare_all({"A": {0: 1.0, 1: 2.0}, "B": {0: 0.0, 1: 0.0}}, "higher")
    assert two.p is not None
    assert two.superiority is None


def test_the_interval_of_an_effect_size_inverts_the_noncentral_t() -> None:
    for t, seeds in ((3.0, 3), (-2.0, 5), (0.0, 10)):
        low, high = effect_interval(t, seeds)
        assert stats.nct.cdf(t, seeds - 1, low * math.sqrt(seeds)) == pytest.approx(0.975, abs=1e-4)
        assert stats.nct.cdf(t, seeds - 1, high * math.sqrt(seeds)) == pytest.approx(0.025, abs=1e-4)
    assert hedges_factor(9) == pytest.approx(1 - 3 / (4 * 9 - 1), rel=1e-3), "the usual approximation"


# ---- needed seeds -----------------------------------------------------------------------------------------------


def test_needed_seeds() -> None:
    """Tables of the paired t test (power 80 %, level 5 %): 34 pairs for d = 0.5, 10 for d = 1, 199 for d = 0.2."""
    assert [seeds_for(d) for d in (0.2, 0.5, 1.0)] == [199, 34, 10]
    assert seeds_for(0.001) is None
    found = needed_seeds(0.1, 3, 0.05)
    assert found is not None
    assert found.seeds == 34
    # χ²(2) at 2.5 and 97.5 %: 0.050636 and 7.377759, so 0.1 may be 0.0521 ... 0.6285.
    assert deviation_interval(0.1, 3) == pytest.approx((0.052066, 0.628469), rel=1e-4)
    assert (found.low, found.high) == (seeds_for(0.05 / 0.052066), seeds_for(0.05 / 0.628469))
    assert needed_seeds(math.nan, 1, 0.05) is None
    assert needed_seeds(0.0, 3, 0.05) is None
    with pytest.raises(ConfigError, match="above 0, got -1"):
        needed_seeds(0.1, 3, -1)


def test_power() -> None:
    assert power(0.0, 5) == pytest.approx(0.05)
    assert power(0.5, 34) == pytest.approx(0.8, abs=0.01)
    assert power(100, 3) == 1
    for seeds in (2, 3, 5, 10):
        assert power(detectable_effect(seeds), seeds) == pytest.approx(0.8)
    assert detectable_effect(3) == pytest.approx(3.26, abs=0.01)


# ---- groups and ranks --------------------------------------------------------------------------------------------


def test_what_only_seeds_and_prompts_together_cause_counts_once() -> None:
    """Residuals alone: the variance of groups' means is that of the interaction, so the interval is Student's t."""
    values = np.random.default_rng(3).standard_normal((3, 400))
    values -= values.mean(0) - values.mean()
    values += np.array([[0.0], [1.0], [2.0]])
    found = over_seeds_and_groups(values.tolist())
    assert found.half_width == pytest.approx(over_seeds(values.mean(1).tolist()).half_width, rel=0.01)


def test_the_interval_of_a_mean_reciprocal_rank() -> None:
    """Always the second of four: scaled from 1/4 ... 1 to 0 ... 1, the share of (1/2 − 1/4) / (3/4) = 1/3. In three
    tasks, each encoding is compared with three others, so there are nine examples."""
    found = mean_reciprocal_rank([[0.5, 0.5, 0.5]] * 3, 4)
    scaled = over_shares([1 / 3] * 3, [9] * 3)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (0.5, 0.25 + 0.75 * scaled.low, 0.25 + 0.75 * scaled.high)
    )


# ---- a study ----------------------------------------------------------------------------------------------------


def test_statistics_of_a_study(make_study: Make) -> None:
    scores = {"FIRE": [[1.0, 0.9, 0.6], [1.0, 0.95, 0.7], [1.0, 0.9, 0.65]], "NoPE": [[0.9, 0.5, 0.1]] * 3}
    found = statistics_of(make_study(scores, metric="exact match"), Options(difference=0.01))
    (task,) = found.tasks
    assert task.rule == "a score of at least 0.8"
    assert [row.effective.tested for row in task.encodings if row.effective] == [20, 10]
    ((pair,), where) = task.comparisons, task.where
    assert (pair.first, where, task.difference) == ("FIRE", "all longer lengths", 0.01)
    assert pair.difference.mean == pytest.approx((0.75 + 0.825 + 0.775) / 3 - 0.3)
    assert task.needed[pair.first, pair.second].seeds is not None
    assert (
        "With 3 seeds, a comparison finds a difference with a probability of 80 % only if it is at least 3.3"
        in task.notes[0]
    )
    assert found.over_tasks == ()
    assert found.ranking is None
    at = statistics_of(make_study(scores, metric="exact match"), Options(length=80, threshold=0.5)).tasks[0]
    assert (at.where, at.rule) == ("80 bytes", "a score of at least 0.5")
    assert at.comparisons[0].difference.mean == pytest.approx(0.55)


def test_losses_pass_by_their_own_seeds_score_at_the_training_length(make_study: Make) -> None:
    """Limit 0.05: both seeds lose 0.02 at 20 and 0.12 at 80, so the effective length is 20 · 4^0.3 = 30.3 for both."""
    found = statistics_of(make_study({"A": [[2.0, 2.02, 2.12], [3.0, 3.02, 3.12]]})).tasks[0]
    assert found.rule == "a score at most 0.05 nats per byte worse than the same seed's at 10 bytes"
    (row,) = found.encodings
    assert row.effective is not None
    assert row.effective.value == pytest.approx(20 * 4**0.3, rel=1e-3)
    assert row.effective.interval_text == "30"


def test_one_seed_is_said(make_study: Make) -> None:
    found = statistics_of(make_study({"A": [[2.0, 2.1, 2.2]], "B": [[2.0, 2.0, 2.1]]})).tasks[0]
    assert found.notes == (
        "A and B have one seed each: there is no interval between seeds, no comparison and no effect size.",
    )
    assert found.comparisons[0].p is None


def test_many_pairs_without_a_test_are_counted(make_study: Make) -> None:
    found = statistics_of(make_study({name: [[2.0, 2.1, 2.2]] * 5 for name in "ABCDE"})).tasks[0]
    assert found.notes == (
        "The difference is the same for every seed, so there is no test: A and B; A and C; A and D; A and E; B and C; "
        "B and D; and 4 more pairs.",
    )


def test_options_are_checked(make_study: Make) -> None:
    data = make_study({"A": [[2.0, 2.1, 2.2]]})
    with pytest.raises(ConfigError, match=r"--length must be an evaluated length, got 11; evaluated: 10, 20, 80$"):
        statistics_of(data, Options(length=11))
    for name, value in (("threshold", math.nan), ("difference", 0.0), ("difference", math.inf), ("length", 0)):
        with pytest.raises(ConfigError, match=f"--{name} must be"):
            Options(**{name: value})
