"""Scores by position: over seeds, at the longest length that has some."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.position_scores import position_scores


def row(*means: float, n: int = 4) -> Any:
    ranges = [(0, 0), (1, 1), (2, 3), (4, 7)]
    parts = [
        {"first": first, "last": last, "mean": mean, "n": n * (last - first + 1)}
        for (first, last), mean in zip(ranges, means, strict=False)
    ]
    return SimpleNamespace(facts={"details": {"by_position": parts}} if parts else {})


def test_means_and_intervals_are_over_seeds() -> None:
    found = position_scores({"RoPE": {8: [row(4, 3, 2), row(6, 3, 4)], 4: [row(1, 1)]}}, (0.0, math.inf))
    assert found is not None
    assert found.length == 8, "the longest"
    assert found.ranges == ((0, 0), (1, 1), (2, 3))
    assert found.targets == (4, 4, 8)
    (series,) = found.series
    assert (series.label, series.seeds) == ("RoPE", 2)
    assert [score.mean for score in series.scores if score] == [5, 3, 3]
    first, same, last = (score for score in series.scores if score)
    assert first.high - first.mean == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2), rel=1e-3)  # t of one degree
    assert first.low == 0, "cut at the limit of the metric"
    assert same.high == same.mean
    assert last.mean == 3


def test_a_single_seed_has_no_interval() -> None:
    found = position_scores({"RoPE": {8: [row(4, 3)]}}, None)
    assert found is not None
    (series,) = found.series
    assert series.seeds == 1
    assert [score.basis for score in series.scores if score] == ["none", "none"]


def test_encodings_without_scores_at_the_longest_length_are_left_out() -> None:
    rows = {"RoPE": {8: [row(4, 3)], 4: [row(1)]}, "NoPE": {4: [row(2)]}, "ALiBi": {8: [row()]}}
    found = position_scores(rows, None)
    assert found is not None
    assert [series.label for series in found.series] == ["RoPE"]


def test_an_encoding_with_fewer_ranges() -> None:
    found = position_scores({"RoPE": {8: [row(4, 3, 2)]}, "NoPE": {8: [row(5, 4)]}}, None)
    assert found is not None
    assert [score and score.mean for score in found.series[1].scores] == [5, 4, None]


def test_without_any_there_are_none() -> None:
    assert position_scores({"RoPE": {8: [row()]}}, None) is None
    assert position_scores({}, None) is None
