import math
import string
from collections import Counter

import pytest

from lengthwise.config import ConfigError
from lengthwise.tasks import LEGO, generator


def asked(length, count, split="train"):
    """The words of so many questions and answers."""
    task = LEGO()
    return task.pairs(task.sample(generator(0), count, length, split))


def solved(question):
    """The value of every variable in the order of the chain, and what is asked, read from the text of the question."""
    first, value, *rest = question
    values = {first: int(value)}
    *clauses, mark, query = rest
    assert mark == "?"
    for name, sign, other in zip(*(iter(clauses),) * 3, strict=True):
        assert name not in values
        assert other == list(values)[-1]  # of the one before it
        values[name] = {"+": 1, "-": -1}[sign] * values[other]
    return values, query


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [2, 3, 8, 9, 26])
def test_values_are_right(length, split):
    for question, answer in asked(length, 200, split):
        values, query = solved(question)
        assert len(values) == length
        assert answer == [f"{values[query]:+d}"]


@pytest.mark.parametrize("length", [2, 5, 8])
def test_what_is_asked_is_uniform_over_the_later_half(length):
    places = Counter()
    for question, _ in asked(length, 4000):
        values, query = solved(question)
        places[list(values).index(query)] += 1
    half = range(math.ceil(length / 2), length)
    assert set(places) == set(half)
    assert all(count == pytest.approx(4000 / len(half), rel=0.12) for count in places.values())


def test_names_and_values_are_uniform_and_independent():
    names, signs, pairs = [Counter() for _ in range(4)], Counter(), 13_000
    for question, _ in asked(4, pairs):
        values, _ = solved(question)
        for place, name in enumerate(values):
            names[place][name] += 1
        signs[tuple(values.values())] += 1
    for counts in names:
        assert set(counts) == set(string.ascii_lowercase)
        assert all(count == pytest.approx(500, rel=0.25) for count in counts.values())
    assert len(signs) == 16
    assert all(count == pytest.approx(pairs / 16, rel=0.15) for count in signs.values())


def test_published_text():
    question = "a -1 b - a c + b d - c ? d".split()  # noqa: SIM905 (as people read it)
    prompt, target = LEGO().repository_text(question, ["-1"])
    assert prompt == "If a = -1, b = - a, c = + b, d = - c. Then, what is the value of d? "
    assert target == "The answer is -1."
    assert solved(question) == ({"a": -1, "b": 1, "c": 1, "d": -1}, "d")
    clauses = [("a", "-", "1"), ("b", "-", "a"), ("c", "+", "b"), ("d", "-", "c")]
    assert LEGO().chain(question) == (clauses, "d")


@pytest.mark.parametrize(("length", "words"), [(27, "at most 26 variables.*letters, got 27"), (1, "at least 2")])
def test_chains_that_cannot_be(length, words):
    for ask in (LEGO().check_length, LEGO().note, lambda n: LEGO().sample(generator(0), 1, n)):
        with pytest.raises(ConfigError, match=words):
            ask(length)
