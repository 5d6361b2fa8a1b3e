"""Intervals against numbers worked out by hand (t quantiles from the printed tables)."""

import math

import pytest

from lengthwise.analysis import Interval, over_examples, over_seeds
from lengthwise.analysis.intervals import with_wilson
from lengthwise.analysis.numbers import figure, listing, spread, times


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
    assert interval.overlaps(Interval(100.0, 99.0, 101.0, 1.0, "seeds")), "nothing may be claimed"
    assert spread(interval) == ""


def test_an_interval_over_seeds_needs_two() -> None:
    with pytest.raises(ValueError, match="got 1 seed"):
        over_seeds([1.0])


def test_apart_needs_seeds_on_both_sides_and_no_common_value() -> None:
    low, high = Interval(1.0, 0.9, 1.1, 0.1, "seeds"), Interval(2.0, 1.9, 2.1, 0.1, "seeds")
    touching, single = Interval(1.2, 1.1, 1.3, 0.1, "seeds"), Interval(2.0, 1.9, 2.1, 0.1, "examples")
    assert low.apart(high)
    assert high.apart(low)
    assert not low.apart(touching)
    assert not low.apart(single)


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
    assert [listing(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [times(r) for r in (1, 1.5, 8, 0.25)] == ["1×", "1.5×", "8×", "0.25×"]


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
