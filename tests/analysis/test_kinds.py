"""Which lengths count as trained."""

from typing import Any

import pytest

from lengthwise.analysis.kinds import kind_of, trained_lengths


def test_three_kinds() -> None:
    found = {n: kind_of(n, (5, 6)) for n in (1, 4, 5, 6, 7)}
    assert found == {1: "shorter", 4: "shorter", 5: "trained", 6: "trained", 7: "longer"}


@pytest.mark.parametrize(
    ("training", "question", "trained"),
    [
        ({"min_length": 5}, {"length": 2, "examples": 9, "seed": 0}, (5, 8)),
        ({"min_length": 8}, {"length": 2, "examples": 9, "seed": 0}, (8, 8)),
        ({}, {"length": 2, "examples": 9, "seed": 0}, (8, 8)),  # a run without the setting
        ({"min_length": 8, "curriculum": {"length": 3}}, {"length": 2, "examples": 9, "seed": 0}, (3, 8)),
        ({"min_length": 8, "curriculum": {"length": None, "dims": 2}}, {"length": 2, "examples": 9, "seed": 0}, (8, 8)),
        ({"min_length": 8}, {"length": 2, "tokens": 99, "seed": 0}, (1, 8)),  # text: its beginnings were trained
        ({"min_length": 8}, {"length": 2, "examples": 9, "seed": 0, "prompt": 40}, (1, 8)),  # prompts likewise
    ],
)
def test_from_which_length_to_which(
    training: dict[str, Any], question: dict[str, Any], trained: tuple[int, int]
) -> None:
    assert trained_lengths({"training": training}, 8, question) == trained
