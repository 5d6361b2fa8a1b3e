"""Intervals against numbers worked out by hand (t quantiles from the printed tables)."""

import math
import random

import numpy as np
import pytest

from lengthwise.analysis import Interval, over_examples, over_seeds
from lengthwise.analysis.estimates import (
    over_rounds,
    over_seeds_and_groups,
    over_shares,
    sample_variance,
    with_wilson,
)
from lengthwise.analysis.numbers import figure, spread, times
from lengthwise.values import join_names


def test_three_seeds() -> None:
    interval = over_seeds([1.0, 1.2, 1.4])  # s = 0.2, t(2) = 4.302653
    assert interval.mean == pytest.approx(1.2)
    assert interval.half_width == pytest.approx(4.302653 * 0.2 / math.sqrt(3), rel=1e-6)
    assert (interval.low, interval.high) == pytest.approx((1.2 - 0.4968275, 1.2 + 0.4968275))
    assert interval.basis == "seeds"


def test_two_seeds_are_wide() -> None:
    assert over_seeds([2.0, 3.0]).half_width == pytest.approx(12.706205 * math.sqrt(0.5) / math.sqrt(2), rel=1e-6)


def test_bounds_cut_the_ends_and_not_the_half_width() -> None:
    interval = over_seeds([0.8, 0.9, 1.0], (0.0, 1.0))  # s = 0.1, half width 0.2484
    assert interval.half_width == pytest.approx(0.24841, abs=1e-5)
    assert (interval.low, interval.high) == pytest.approx((0.65159, 1.0), abs=1e-5)


def test_equal_seeds_have_no_width() -> None:
    interval = over_seeds([1.0, 1.0, 1.0], (0.0, 1.0))
    assert (interval.low, interval.high, interval.half_width) == (1.0, 1.0, 0.0)


def test_the_variance_is_exact_although_the_mean_is_rounded() -> None:
    assert sample_variance([0.1, 0.1, 0.1]) == 0.0  # the rounded mean is 0.10000000000000002
    assert sample_variance([1e8, 1e8 + 1, 1e8 + 2]) == 1.0


def test_one_seed_is_normal_over_its_examples() -> None:
    interval = over_examples(0.5, 0.02, (0.0, 1.0))
    assert (interval.low, interval.high) == pytest.approx((0.5 - 0.0391993, 0.5 + 0.0391993))
    assert interval.basis == "examples"


@pytest.mark.parametrize(
    "interval", [over_examples(1.0, math.nan), over_seeds([1.0, math.nan]), over_seeds([math.inf, 1.0])]
)
def test_no_interval_where_a_number_is_missing(interval: Interval) -> None:
    assert interval.basis == "none"
    assert math.isnan(interval.half_width)
    assert not interval.differs_from(Interval(100.0, 99.0, 101.0, 1.0, "seeds")), "nothing may be claimed"
    assert spread(interval) == ""


def test_an_interval_over_seeds_needs_two() -> None:
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        over_seeds([1.0])


def test_apart_needs_seeds_on_both_sides_and_no_common_value() -> None:
    low, high = Interval(1.0, 0.9, 1.1, 0.1, "seeds"), Interval(2.0, 1.9, 2.1, 0.1, "seeds")
    touching, single = Interval(1.2, 1.1, 1.3, 0.1, "seeds"), Interval(2.0, 1.9, 2.1, 0.1, "examples")
    assert low.differs_from(high)
    assert high.differs_from(low)
    assert not low.differs_from(touching)
    assert not low.differs_from(single)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.7764, "1.776"),
        (-0.5, "−0.500"),
        (0.0, "0.000"),
        (-0.0001, "0.000"),
        (99.9994, "99.999"),
        (12345.6, "12,346"),
        (3e9, "3e+09"),
        (math.nan, "not finite"),
        (math.inf, "not finite"),
    ],
)
def test_figure(value: float, text: str) -> None:
    assert figure(value) == text


def test_spread_says_both_ends_where_the_scale_cut_it() -> None:
    assert spread(over_seeds([1.0, 1.2, 1.4])) == "±\u00a00.497"
    assert spread(over_seeds([0.8, 0.9, 1.0], (0.0, 1.0))) == "0.652\u00a0… 1.000"


def test_words() -> None:
    assert [join_names(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [times(r) for r in (1, 1.5, 8, 0.25, 1400)] == ["1×", "1.5×", "8×", "0.25×", "1,400×"]


def test_wilson_gives_a_width_where_everything_agrees() -> None:
    # By hand: z = 1.959964, p = 0, n = 256: high = z² / (n + z²).
    high = 1.959964**2 / (256 + 1.959964**2)
    interval = with_wilson(over_seeds([0.0, 0.0, 0.0], (0.0, 1.0)), 256)
    assert (interval.low, interval.high) == pytest.approx((0.0, high), abs=1e-7)
    assert spread(interval) == "0.000\u00a0… 0.015"
    interval = with_wilson(over_examples(1.0, 0.0, (0.0, 1.0)), 256)
    assert (interval.low, interval.high) == pytest.approx((1 - high, 1.0), abs=1e-7)


def test_wilson_never_narrows() -> None:
    wide = over_seeds([0.2, 0.9], (0.0, 1.0))
    assert with_wilson(wide, 10_000) == wide
    # p = 0.5, n = 100: (0.5 + z²/200 ± z·sqrt(0.0025 + z²/40000)) / (1 + z²/100)
    z = 1.959964
    half = z * math.sqrt(0.0025 + z * z / 40_000) / (1 + z * z / 100)
    interval = with_wilson(over_examples(0.5, 1e-6, (0.0, 1.0)), 100)
    assert (interval.low, interval.high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-6)


# ---- shares over seeds ------------------------------------------------------------------------------------------


def logit(share: float) -> float:
    return math.log(share / (1 - share))


def test_shares_have_students_t_on_the_logit_of_their_mean() -> None:
    """By hand: p = (0.9 · 1536 + 1/2) / 1537, h = 4.302653 · 0.05 / √3 = 0.124207, divided by p (1 − p) = 0.0902077."""
    interval = over_shares([0.85, 0.9, 0.95], [512] * 3)
    p = 1382.9 / 1537
    assert interval.mean == pytest.approx(0.9)
    assert [logit(interval.low), logit(interval.high)] == pytest.approx(
        [logit(p) - 0.124207 / 0.0902077, logit(p) + 0.124207 / 0.0902077], rel=1e-5
    )
    assert interval.mean - interval.low > 2 * (interval.high - interval.mean), "a fourth seed may be worse"


def test_shares_in_the_middle_have_nearly_students_t() -> None:
    shares = [0.48, 0.5, 0.51, 0.49, 0.52]
    expected, interval = over_seeds(shares), over_shares(shares, [10_000] * 5)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high), abs=1e-4)


@pytest.mark.parametrize("shares", [[1.0, 1.0, 1.0], [0.75, 0.75], [0.5, 0.52, 0.51]])
def test_seeds_that_agree_by_chance_have_the_width_of_their_examples(shares: list[float]) -> None:
    """Its logit is the normal one, 1.96 / √(N p (1 − p)). It narrows with more examples, and contains the mean."""
    seeds, widths = len(shares), []
    for n in (4, 16, 64):
        interval = over_shares(shares, [n] * seeds)
        p = (math.fsum(shares) * n + 0.5) / (seeds * n + 1)
        assert logit(interval.low) == pytest.approx(logit(p) - 1.959964 / math.sqrt(seeds * n * p * (1 - p)))
        assert interval.low <= interval.mean <= interval.high
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 0


def test_shares_of_0_and_1_are_mirrored_and_finite() -> None:
    right, wrong = over_shares([1.0] * 3, [64] * 3), over_shares([0.0] * 3, [64] * 3)
    assert (right.high, wrong.low) == (1.0, 0.0)
    # p = 192.5 / 193, and 1.959964 / √(192 p (1 − p)) = 2.78262.
    assert logit(right.low) == pytest.approx(math.log(385) - 2.78262, abs=1e-5)
    assert right.low == pytest.approx(1 - wrong.high)
    low, high = over_shares([1.0, 0.99, 0.97], [512] * 3).low, over_shares([0.0, 0.01, 0.03], [512] * 3).high
    assert low == pytest.approx(1 - high)


def test_seeds_with_few_examples_widen_the_interval() -> None:
    """The variance of a mean over seeds with 10 and 1,000 examples is that of 2 · 19.8 examples."""
    interval = over_shares([0.5, 0.5], [10, 1000])
    assert interval == over_shares([0.5, 0.5], [20 / 1.01] * 2)
    assert interval.half_width > over_shares([0.5, 0.5], [505] * 2).half_width


# ---- over seeds and prompts -------------------------------------------------------------------------------------


def test_prompts_that_all_agree_leave_students_t() -> None:
    expected = over_seeds([1.0, 1.2, 1.4])
    interval = over_seeds_and_groups([[1.0] * 20, [1.2] * 20, [1.4] * 20])
    assert (interval.mean, interval.low, interval.high) == pytest.approx((1.2, expected.low, expected.high), rel=0.005)
    assert interval.basis == "seeds and prompts"


def test_seeds_that_all_agree_leave_the_prompts() -> None:
    """Normal over prompts, then: 1.96 · s / √100, s² = 25 · 100 / 99 of half zeros and half tens."""
    groups = [[0.0, 10.0] * 50] * 3
    interval = over_seeds_and_groups(groups)
    assert interval.half_width == pytest.approx(1.96 * 5 * math.sqrt(100 / 99) / 10, rel=0.1)
    alone = over_seeds_and_groups(groups[:1])
    assert alone.half_width == pytest.approx(interval.half_width, rel=0.1)
    assert alone.basis == "examples"


def test_deviations_of_few_groups_are_stretched() -> None:
    """Two groups, 0 and 1: resamples have the means 0, 1/2 and 1 with the chances 1/4, 1/2 and 1/4, so the 2.5 and 97.5
    percent points are 1/2 off the mean, and the stretch by sqrt(2 / (2 - 1)) makes that sqrt(2) / 2."""
    interval = over_seeds_and_groups([[0.0, 1.0]])
    assert interval.basis == "examples"
    assert (interval.low, interval.high) == pytest.approx((0.5 - math.sqrt(0.5), 0.5 + math.sqrt(0.5)), rel=1e-12)


def test_the_same_numbers_have_the_same_interval() -> None:
    groups = [[0.1 * (s + g * g % 7) for g in range(20)] for s in range(3)]
    assert over_seeds_and_groups(groups) == over_seeds_and_groups([tuple(row) for row in groups])
    other = [[value + 1 for value in row] for row in groups]
    assert over_seeds_and_groups(other).half_width != over_seeds_and_groups(groups).half_width, "its own resamples"


def test_numbers_that_are_none() -> None:
    assert over_seeds_and_groups([[1.0, math.nan]]).basis == "none"


def test_a_difference_may_be_claimed_over_seeds_and_prompts() -> None:
    low, high = (over_seeds_and_groups([[x] * 4, [x + 0.01] * 4]) for x in (0.0, 1.0))
    assert low.differs_from(high)
    assert low.differs_from(over_seeds([1.0, 1.01]))
    assert not low.differs_from(over_seeds_and_groups([[1.0] * 4]))


def covered(seeds: int, of_seeds: float, of_prompts: float, studies: int = 600) -> float:
    """How often the interval has the true mean, 0, in studies where seeds, common prompts and both together vary."""
    chance = np.random.default_rng([seeds, studies])
    hits = 0
    for _ in range(studies):
        values = of_seeds * chance.standard_normal((seeds, 1)) + of_prompts * chance.standard_normal(40)
        values = values + 0.3 * chance.standard_normal((seeds, 40))
        interval = over_seeds_and_groups(values.tolist())
        hits += interval.low <= 0 <= interval.high
    return hits / studies


@pytest.mark.medium
@pytest.mark.parametrize(
    ("seeds", "of_seeds", "of_prompts"), [(2, 1, 0), (3, 1, 0), (3, 0.2, 1), (3, 0, 1), (10, 0.2, 1)]
)
def test_coverage(seeds: int, of_seeds: float, of_prompts: float) -> None:
    """95 %, never fewer beyond chance (600 studies: ± 1.7); a little more where seeds and prompts weigh alike."""
    assert 0.93 <= covered(seeds, of_seeds, of_prompts) <= 0.995


@pytest.mark.parametrize("count", [1, 5, 6, 12, 13, 20, 101])
def test_the_interval_over_rounds_is_the_narrowest_with_95_percent(count: int) -> None:
    def missed(rank: int) -> float:  # the median is below the rank-th smallest or above the rank-th largest
        return 2 * sum(math.comb(count, n) for n in range(rank)) / 2**count

    interval = over_rounds([float(n) for n in range(1, count + 1)])
    assert (interval.basis == "none") == (count < 6)
    assert interval.mean == (count + 1) / 2
    rank = int(interval.low) if count >= 6 else 0
    assert missed(rank) <= 0.05 < missed(rank + 1)
    assert count < 6 or interval.high == count + 1 - rank


def test_the_interval_over_rounds_contains_the_median_in_95_percent() -> None:
    chance = random.Random(0)
    intervals = [over_rounds([chance.lognormvariate(0.0, 1.0) for _ in range(12)]) for _ in range(1000)]  # of median 1
    assert 943 <= sum(i.low <= 1.0 <= i.high for i in intervals) <= 978  # 96.1 % are expected
