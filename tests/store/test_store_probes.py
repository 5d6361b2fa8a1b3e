"""Probes: rows that hang on a run's key, each named by what was asked."""

from typing import Any

import pytest

from lengthwise.store import Store, StoreError

ASKED = {"probe": "attention-distance", "against": "b2", "length": 8, "examples": 10}


@pytest.fixture
def filled(store: Store, make: Any) -> Store:
    store.add_study("s", evaluation={}, runs=[make.run("a1"), make.run("b2")])
    return store


def test_what_is_stored_comes_back(filled: Store) -> None:
    result = {"layers": [0.25, 0.5], "n": 10, "none": None}
    filled.add_probe("a1", ASKED, result, {"device": "cpu"})
    (row,) = filled.probes(["b2", "a1"])
    assert (row.key, row.asked, row.result, row.facts) == ("a1", ASKED, result, {"device": "cpu"})
    assert row.created > 1.6e9
    assert filled.probe("a1", dict(reversed(ASKED.items()))) == row, "the order of what is asked says nothing"
    assert filled.probe("a1", {**ASKED, "length": 16}) is None
    assert filled.probe("b2", ASKED) is None


def test_a_question_that_has_an_answer_keeps_it(filled: Store) -> None:
    filled.add_probe("a1", ASKED, {"layers": [1.0]}, {})
    filled.add_probe("a1", ASKED, {"layers": [2.0]}, {})
    filled.add_probe("a1", {**ASKED, "length": 16}, {"layers": [3.0]}, {})
    assert [row.result["layers"] for row in filled.probes(["a1"])] == [[3.0], [1.0]]


def test_a_new_list_of_runs_keeps_them(filled: Store, make: Any) -> None:
    filled.add_probe("a1", ASKED, {}, {})
    filled.add_study("s", evaluation={}, runs=[make.run("a1")])
    assert len(filled.probes(["a1"])) == 1


def test_bad_input(filled: Store) -> None:
    for arguments, words in (
        (("zz", ASKED, {}, {}), "there is no run 'zz'"),
        (("a1", {"length": 8}, {}, {}), 'at least {"probe": NAME}'),
        (("a1", ASKED, {"layers": [float("inf")]}, {}), "cannot be stored as JSON"),
        (("a1", ASKED, {}, {"x": object()}), "cannot be stored as JSON"),
    ):
        with pytest.raises(StoreError) as caught:
            filled.add_probe(*arguments)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert filled.probes(["a1", "b2"]) == []


def test_published_numbers_of_a_study(store: Store, make: Any) -> None:
    store.add_study("s", evaluation={}, runs=[make.run("a1")])
    assert store.studies()[0].published is None
    numbers = {"Copy": {"FIRE": {"40": 0.5}}}
    store.add_study("s", evaluation={}, runs=[make.run("a1")], published=numbers)
    assert store.studies()[0].published == numbers
    store.add_study("s", evaluation={}, runs=[make.run("a1")])
    assert store.studies()[0].published is None, "what the study's file says now"
