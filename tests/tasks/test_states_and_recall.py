"""Recall, Permutations and Counting: their answers, computed again from the words, and what they refuse."""

from collections import Counter

import pytest

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import Counting, Permutations, Recall, generator


def drawn(task, length, count=200):
    return task.pairs(task.sample(generator(0, length), count, length))


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_the_value_is_that_of_the_key(length):
    places = Counter()
    for question, answer in drawn(Recall(keys=50, values=5), length):
        *words, mark, asked = question
        keys, values = words[::2], words[1::2]
        assert mark == "?" and len(set(keys)) == length
        assert answer == [values[keys.index(asked)]]
        places[keys.index(asked)] += 1
    assert len(places) > 0.8 * min(length, 40)


@pytest.mark.parametrize(("depth", "place"), [(0.0, 0), (0.5, 4), (1.0, 8), (0.3, 2)])
def test_the_pair_at_a_depth(depth, place):
    for question, _ in drawn(Recall(depth=depth), 9, 20):
        assert question[:-2:2].index(question[-1]) == place


def test_every_pair_is_asked_for_equally_often():
    places = Counter(question[:-2:2].index(question[-1]) for question, _ in drawn(Recall(), 4, 4000))
    assert all(900 < count < 1100 for count in places.values()) and len(places) == 4


@pytest.mark.parametrize("moves", ["all", "swaps"])
@pytest.mark.parametrize("answer", ["last", "all"])
def test_the_product_of_permutations(moves, answer):
    task = Permutations(moves=moves, answer=answer)
    used = set()
    for question, found in drawn(task, 12):
        arrangement, steps = "12345", []
        for word in question:
            arrangement = "".join(arrangement[int(place) - 1] for place in word)
            steps.append(arrangement)
        assert found == (steps if answer == "all" else steps[-1:])
        used |= set(question)
    swaps = {"21345", "13245", "12435", "12354"}
    assert used == swaps if moves == "swaps" else len(used) == 120


def test_the_example_of_the_docstring():
    task = Permutations(elements=3)
    examples = task.all_examples(3)
    answers = {tuple(q): a for q, a in task.pairs(task.pack(examples))}
    assert answers["213", "132", "312"] == ["123"]


def test_the_number_of_a_symbol():
    numbers = Counter()
    for question, answer in drawn(Counting(), 120, 2000):
        *symbols, mark, asked = question
        assert mark == "?"
        assert "".join(answer) == str(symbols.count(asked))
        numbers[symbols.count(asked)] += 1
    assert set(numbers) == set(range(121)) and max(numbers.values()) < 50  # uniform: 16.5 of each


def test_what_cannot_be():
    with pytest.raises(
        ConfigError, match=r"Recall has 8 keys, so a question has at most 8 pairs, got 9; use Recall\(keys=9\)"
    ):
        Recall(keys=8).check_length(9)
    for settings, words in (({"depth": 1.5}, "depth must be between 0"), ({"values": 1}, "values must be between 2")):
        with pytest.raises(ConfigError, match=words):
            choose(Recall, **settings)
    with pytest.raises(ConfigError, match=r"Permutations.elements must be between 2 and 6, .* got 7"):
        choose(Permutations, elements=7)
    with pytest.raises(ConfigError, match=r"Counting.symbols must be between 2 and 26, got 1"):
        choose(Counting, symbols=1)
