"""Scores that keep the means of groups of prompts: the intervals, the verdict and the summary that rest on them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.analysis.estimates import Interval, over_seeds_and_groups, with_wilson
from lengthwise.analysis.ranks import over_lengths
from lengthwise.analysis.reading import verdict

Make = Callable[..., Any]
Rows = Sequence[Sequence[Sequence[float]]]  # by seed and length: the groups' means


@pytest.fixture
def grouped(make_run: Make, make_score: Make) -> Callable[..., Findings]:
    def make(rows: Rows, **changes: Any) -> Findings:
        runs = [make_run(seed=seed, **changes) for seed in range(len(rows))]
        scores = [
            make_score(run, sum(groups) / len(groups), question=asked, groups=groups)
            for run, by_length in zip(runs, rows, strict=True)
            for asked, groups in zip(run.questions, by_length, strict=True)
        ]
        return from_rows([], runs, scores)

    return make


STEADY = [[2.0, 2.2, 2.4, 2.2], [2.0, 2.2, 2.4, 2.2], [2.01, 2.21, 2.41, 2.21]]
ALSO = [[2.1, 2.3, 2.5, 2.3], [2.1, 2.3, 2.5, 2.3], [2.12, 2.32, 2.52, 2.32]]


def test_a_points_interval_is_over_seeds_and_prompts(grouped: Callable[..., Findings]) -> None:
    point = grouped([STEADY, ALSO]).tasks[0].series[0].points[2]
    assert point.interval == over_seeds_and_groups([STEADY[2], ALSO[2]])
    assert point.interval.basis == "seeds and prompts"
    assert [s.groups for s in point.seeds] == [tuple(STEADY[2]), tuple(ALSO[2])]
    alone = grouped([STEADY]).tasks[0].series[0].points[2]
    assert alone.interval == over_seeds_and_groups([STEADY[2]])
    assert alone.interval.basis == "examples"


def test_losses_are_paired_by_prompts(grouped: Callable[..., Findings]) -> None:
    """Prompts differ by 0.4, and what a length costs differs by no more than 0.01."""
    task = grouped([STEADY, ALSO, STEADY]).tasks[0]
    assert task.series[0].points[2].interval.half_width > 0.1
    assert verdict(task, task.series[0], 80) == "holds"


def test_prompts_that_differ_in_what_they_lose_leave_it_open(grouped: Callable[..., Findings]) -> None:
    """Both seeds lose 0.1, on one group of prompts out of four."""
    torn = [[2.0, 2.2, 2.4, 2.2], [2.0, 2.2, 2.4, 2.2], [2.0, 2.2, 2.8, 2.2]]
    task = grouped([torn, torn]).tasks[0]
    assert verdict(task, task.series[0], 80) == "open"


def test_shared_prompts_count_once_in_wilsons_interval(grouped: Callable[..., Findings]) -> None:
    none_right = [[0.0] * 4] * 3
    task = grouped([none_right, none_right], metric="exact match").tasks[0]
    zero = Interval(0.0, 0.0, 0.0, 0.0, "seeds and prompts")
    assert task.series[0].points[0].interval.high == with_wilson(zero, 64).high
    found = over_lengths(task, task.series[0], "longer")
    assert found is not None
    assert found.high == with_wilson(zero, 64).high


def test_the_score_over_all_lengths_is_over_seeds_and_prompts(grouped: Callable[..., Findings]) -> None:
    task = grouped([STEADY, ALSO]).tasks[0]
    expected = [[(a + b) / 2 for a, b in zip(rows[1], rows[2], strict=True)] for rows in (STEADY, ALSO)]
    found = over_lengths(task, task.series[0], "longer")
    assert found is not None
    assert found.basis == "seeds and prompts"
    assert found.mean == pytest.approx(over_seeds_and_groups(expected).mean)
    assert found.half_width == pytest.approx(over_seeds_and_groups(expected).half_width, rel=0.1)
