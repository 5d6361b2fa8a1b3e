"""Estimates of single models, counted by hand: weighted sums, paired differences and intervals over models."""

import math
from collections.abc import Sequence

import pytest

from lengthwise.analysis import Estimate, Interval, over_examples, over_seeds
from lengthwise.analysis.estimates import (
    difference,
    interval_of,
    over_seeds_and_groups,
    over_shares,
    weighted,
    with_wilson,
)

GROUPS = [[1.0, 1.2, 0.8, 1.0], [1.4, 1.5, 1.3, 1.4]]


def estimates(means: Sequence[float], groups: Sequence[Sequence[float]] = ((), (), ())) -> list[Estimate]:
    return [
        Estimate(mean=mean, standard_error=0.2, n=64, groups=tuple(row))
        for mean, row in zip(means, groups, strict=False)
    ]


def interval_of_shares(*scores: Estimate) -> Interval:
    return interval_of(scores, (0.0, 1.0), share=True)


def test_each_kind_of_score_has_its_interval() -> None:
    """Losses of seeds that are scored on the same texts may agree more closely than their standard errors."""
    means = [0.75, 0.76, 0.77]
    assert interval_of(estimates(means)) == over_seeds(means)
    assert interval_of_shares(*estimates(means)) == over_shares(means, [64] * 3)
    assert interval_of(estimates(means[:1])) == over_examples(0.75, 0.2)
    single = interval_of_shares(Estimate(mean=1.0, standard_error=0.0, n=256))
    assert single == with_wilson(over_examples(1.0, 0.0, (0.0, 1.0)), 256)
    assert interval_of_shares(*estimates([1.0, math.nan])).basis == "none"
    assert interval_of_shares(Estimate(mean=0.5), Estimate(mean=0.6)) == over_seeds([0.5, 0.6], (0.0, 1.0))


def test_groups_of_examples_give_an_interval_over_seeds_and_prompts() -> None:
    assert interval_of(estimates([1.0, 1.4], GROUPS)) == over_seeds_and_groups(GROUPS)
    assert interval_of(estimates([1.0], GROUPS)) == over_seeds_and_groups(GROUPS[:1])
    off = interval_of(estimates([1.01, 1.41], GROUPS), (-9.0, 1.45))  # groups of 6 and of 7 examples
    assert off.mean == pytest.approx(1.21)
    assert (off.low, off.high) == pytest.approx((over_seeds_and_groups(GROUPS).low + 0.01, 1.45))


@pytest.mark.parametrize("groups", [[[], []], [[1.0, 1.2], []], [[1.0, 1.2], [1.4, 1.5, 1.3]], [[1.0], [1.4]]])
def test_groups_that_do_not_belong_together_are_not_used(groups: list[list[float]]) -> None:
    assert interval_of(estimates([1.0, 1.4], groups)) == over_seeds([1.0, 1.4])


def test_a_weighted_share_has_the_examples_that_give_its_variance() -> None:
    score = weighted([(300, Estimate(mean=0.5, n=300)), (100, Estimate(mean=0.9, n=100))], 400)
    assert (score.mean, score.n) == (pytest.approx(0.6), pytest.approx(400))
    half = weighted(
        [(0.5, Estimate(mean=0.5, standard_error=0.3, n=10)), (0.5, Estimate(mean=0.5, standard_error=0.4, n=40))]
    )
    assert (half.standard_error, half.n) == (pytest.approx(0.25), pytest.approx(32))


def test_the_same_examples_at_several_lengths_count_once() -> None:
    first, second = (Estimate(mean=sum(row) / 4, n=64, groups=tuple(row), seed=3) for row in GROUPS)
    score = weighted([(0.25, first), (0.75, second)])
    assert (score.n, score.seed) == (64, 3)
    assert score.groups == pytest.approx([0.25 * a + 0.75 * b for a, b in zip(*GROUPS, strict=True)])
    assert weighted([(0.5, first), (0.5, Estimate(mean=1.0, n=32, groups=(1.0,) * 4))]).groups == ()


def test_differences_are_paired_by_groups() -> None:
    first, second = estimates([1.0, 1.4], GROUPS)
    change = difference(second, first)
    assert (change.mean, change.groups) == (pytest.approx(0.4), pytest.approx((0.4, 0.3, 0.5, 0.4)))
    assert math.isnan(change.standard_error)
    assert difference(second, Estimate(mean=1.0)).groups == ()
