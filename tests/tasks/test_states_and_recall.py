"""Recall, Permutations and Counting: their answers, computed again from the words, and what they refuse."""

import itertools
from collections import Counter

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.evaluation import untrained
from lengthwise.metrics import Metric
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


@pytest.mark.parametrize("length", [1, 3, 8])
def test_several_keys_are_answered_in_their_order(length):
    task = Recall(keys=30, values=4, queries=3)
    answers = set()
    for question, answer in drawn(task, length):
        *words, mark, first, second, third = question
        values = dict(zip(words[::2], words[1::2], strict=True))
        assert mark == "?" and len(values) == length
        assert answer == [word for key in (first, second, third) for word in (key, values[key])]
        assert task.length_of(question, answer) == length
        answers.add((first, second, third) == (first,) * 3)
    assert answers == ({True} if length == 1 else {True, False})


def test_several_queries_are_scored_one_by_one():
    task = Recall(keys=30, values=4, queries=3)
    batch = task.examples(0, 200, 5)
    right = torch.nn.functional.one_hot(batch.targets, task.output_size).double()
    logits = right.clone()
    first_value = batch.scored.int().argmax(1) + 1  # after the first key
    rows = torch.arange(200)
    logits[rows, first_value] = logits[rows, first_value].roll(1, -1)  # another word
    logits[:100, :-1][batch.targets[:100, :-1] < task.keys] = 0.0  # keys count in exact matches alone
    assert torch.equal(task.score(right, batch), torch.ones(200, dtype=torch.float64))
    assert task.score(logits, batch) == pytest.approx(torch.full((200,), 2 / 3))
    assert task.further_scores(right, batch)["exact match"].sum() == 200
    assert task.further_scores(logits, batch)["exact match"].sum() == 0
    words = [[*answer] for _, answer in task.pairs(batch)]
    for answer in words:
        answer[3] = "?"
    grades = task.grade(words, batch)
    assert grades.scores == pytest.approx(torch.full((200,), 2 / 3))
    assert grades.details["exact match"].sum() == 0
    assert task.metric.name == Recall.metric_of({"queries": 3}).name == "token accuracy"


def test_the_most_frequent_value_of_several_queries():
    pairs, curves = beside(Recall(keys=30, values=4, queries=2), 5, 500)
    share = 0.0
    for question, answer in pairs:
        often = Counter(question[1:-3:2])
        best = [value for value, count in often.items() if count == max(often.values())]
        share += ((answer[1] in best) + (answer[3] in best)) / 2 / len(best)
    assert curves["most frequent value"][5] == pytest.approx(share / len(pairs), rel=1e-5)
    assert 0 < share < len(pairs)


@pytest.mark.parametrize(("depth", "place"), [(0.0, 0), (0.5, 4), (1.0, 8), (0.3, 2)])
def test_the_pair_at_a_depth(depth, place):
    for question, _ in drawn(Recall(depth=depth), 9, 20):
        assert question[:-2:2].index(question[-1]) == place


@pytest.mark.parametrize(
    ("depth", "places"),
    [(0.5, [0, 1, 1, 2, 2, 3, 3, 4]), (0.25, [0, 0, 1, 1, 1, 1, 2, 2]), (0.7, [0, 1, 1, 2, 3, 4, 4, 5])],
)
def test_halves_between_two_pairs_are_rounded_up(depth, places):
    """0.5 is always the later of two middle pairs, and 0.7 * 5 is 3.5, which floating-point numbers may miss."""
    for length, place in enumerate(places, 1):
        for question, _ in drawn(Recall(keys=20, values=5, depth=depth), length, 3):
            assert question[:-2:2].index(question[-1]) == place, length
    for question, _ in drawn(Recall(depth=0.58), 26, 3):  # 0.58 * 25 is 14.5
        assert question[:-2:2].index(question[-1]) == 15


def beside(task, length, count=400):
    return task.pairs(batch := task.examples(0, count, length)), untrained.baseline_scores(task, batch, [length])


@pytest.mark.parametrize(("length", "wanted"), [(1, 1.0), (2, 0.53125), (8, 0.2577), (64, 0.1231)])
def test_the_most_frequent_value_needs_no_key(length, wanted):
    """The last two numbers are means of 400,000 sequences of uniform values, drawn without the task."""
    pairs, curves = beside(Recall(keys=64, values=16, depth=None), length, 2000)
    share = 0.0
    for question, answer in pairs:
        often = Counter(question[1:-2:2])
        best = [value for value, count in often.items() if count == max(often.values())]
        share += (answer[0] in best) / len(best)
    assert curves["most frequent value"][length] == pytest.approx(share / len(pairs), rel=1e-5)
    assert share / len(pairs) == pytest.approx(wanted, abs=0.03)


def test_a_subclass_with_another_metric_has_no_baselines():
    for make in (Recall, Permutations):
        other = type(f"Other{make.__name__}", (make,), {"metric": Metric(name="own", better="higher")})
        assert make(**({"moves": "swaps"} if make is Permutations else {})).baselines()
        assert other(**({"moves": "swaps"} if make is Permutations else {})).baselines() == []


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7])
def test_the_likeliest_product_of_swaps(length):
    """All sequences of swaps of four elements are multiplied, and the most frequent product is compared."""
    swaps = ["2134", "1324", "1243"]
    products = Counter()
    for moves in itertools.product(swaps, repeat=length):
        arrangement = "1234"
        for move in moves:
            arrangement = "".join(arrangement[int(place) - 1] for place in move)
        products[arrangement] += 1
    most = max(products.values())
    pairs, curves = beside(Permutations(elements=4, moves="swaps"), length, 3000)
    shares = [
        sum(answer == [product] for _, answer in pairs) / len(pairs) for product, n in products.items() if n == most
    ]
    assert any(curves["likeliest product"][length] == pytest.approx(share, rel=1e-5) for share in shares)
    if length == 7:
        assert curves["likeliest product"][length] == pytest.approx(most / 3**length, abs=0.03)


@pytest.mark.parametrize(("moves", "answer"), [("all", "last"), ("swaps", "all"), ("all", "all")])
def test_other_products_have_no_likeliest(moves, answer):
    names = [baseline.name for baseline in Permutations(moves=moves, answer=answer).baselines()]
    assert names == ["constant answer"]


def test_numbers_of_many_questions_are_more_frequent_in_a_short_test():
    """As the docstring of Counting says. The constant answer scores what the most frequent number has."""
    pairs, curves = beside(Counting(symbols=2), 12)
    numbers = Counter("".join(answer) for _, answer in pairs)
    assert len(pairs) == 400
    assert numbers.most_common(1) == [("6", 58)]
    assert numbers["12"] == 0
    assert curves["constant answer"][12] == 58 / 400


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
        ConfigError, match=r"Recall has 8 keys, so a question has at most 8 pairs, got 9; set keys to 9 or more"
    ):
        Recall(keys=8).check_length(9)
    for settings, words in (
        ({"depth": 1.5}, "depth must be between 0"),
        ({"values": 1}, "values must be between 2"),
        ({"queries": 0}, "queries must be at least 1"),
        ({"queries": 2, "depth": 0.5}, "a depth for one query"),
    ):
        with pytest.raises(ConfigError, match=words):
            choose(Recall, **settings)
    with pytest.raises(ConfigError, match=r"Permutations.elements must be between 2 and 6, .* got 7"):
        choose(Permutations, elements=7)
    with pytest.raises(ConfigError, match=r"Counting.symbols must be between 2 and 26, got 1"):
        choose(Counting, symbols=1)
