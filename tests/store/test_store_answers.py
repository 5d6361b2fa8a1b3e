"""Answers of measurements: rows that hang on a run's key, each named by what was asked."""

from typing import Any

import pytest

from lengthwise.store import Store, StoreError

NAME = "attention-distance"
ASKED = {"against": "b200000000000000", "length": 8, "examples": 10}
ASKED |= {"seed": 0, "variant": "jensen-shannon"}


def result(*layers: float, **more: Any) -> dict[str, Any]:
    return {"layers": list(layers), "standard_errors": [0.1 for _ in layers], "n": 10, **more}


@pytest.fixture
def filled(store: Store, make: Any) -> Store:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000"), make.run("b200000000000000")])
    return store


def test_what_is_stored_comes_back(filled: Store) -> None:
    found = result(0.25, 0.5, none=None)
    filled.add_answer("a100000000000000", NAME, ASKED, found, {"device": "cpu"})
    (row,) = filled.answers(["b200000000000000", "a100000000000000"])
    assert (row.key, row.measurement) == ("a100000000000000", NAME)
    assert (row.question, row.rows, row.facts) == (ASKED, found, {"device": "cpu"})
    assert row.created > 1.6e9
    assert filled.answer("a100000000000000", NAME, dict(reversed(ASKED.items()))) == row, (
        "the order of what is asked says nothing"
    )
    assert filled.answer("a100000000000000", NAME, {**ASKED, "length": 16}) is None
    assert filled.answer("b200000000000000", NAME, ASKED) is None


def test_a_question_that_has_an_answer_keeps_it(filled: Store) -> None:
    filled.add_answer("a100000000000000", NAME, ASKED, result(1.0), {})
    filled.add_answer("a100000000000000", NAME, ASKED, result(2.0), {})
    filled.add_answer("a100000000000000", NAME, {**ASKED, "length": 16}, result(3.0), {})
    assert [row.rows["layers"] for row in filled.answers(["a100000000000000"])] == [[1.0], [3.0]], "by length"


def test_a_new_list_of_runs_keeps_them(filled: Store, make: Any) -> None:
    filled.add_answer("a100000000000000", NAME, ASKED, result(0.5), {})
    filled.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    assert len(filled.answers(["a100000000000000"])) == 1


def test_bad_input(filled: Store) -> None:
    for arguments, words in (
        (("zz", NAME, ASKED, result(0.5), {}), "has no run 'zz'"),
        (("a100000000000000", NAME, ASKED, {"layers": [float("inf")]}, {}), "cannot be stored as JSON"),
    ):
        with pytest.raises(StoreError) as caught:
            filled.add_answer(*arguments)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert filled.answers(["a100000000000000", "b200000000000000"]) == []


def test_published_numbers_of_a_study(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    assert store.studies()[0].published is None
    numbers = {"source": "A paper", "scores": {"Copy": {"FIRE": 0.5}}}
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")], published=numbers)
    assert store.studies()[0].published == numbers
    store.add_study("s", evaluation={}, runs=[make.run("a100000000000000")])
    assert store.studies()[0].published is None, "what the study's file says now"
