import string
from collections import Counter

import pytest

from lengthwise.config import ConfigError, choose
from lengthwise.positions import Digits
from lengthwise.tasks import Sorting, generator

ORDER = string.digits + string.ascii_lowercase + string.ascii_uppercase


def asked(task, length, count, split="train"):
    """The words of so many questions and answers."""
    return task.pairs(task.sample(generator(0), count, length, split))


def numbers(words):
    return [int(number) for number in "".join(words).split(",")]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 2, 3, 20, 60])
@pytest.mark.parametrize("symbols", [2, 50, 62])
def test_symbols_are_sorted(symbols, length, split):
    for question, answer in asked(Sorting(symbols=symbols), length, 100, split):
        assert answer == sorted(question, key=ORDER.index)
        assert set(question) <= set(ORDER[:symbols])


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 2, 3, 20])
def test_numbers_are_sorted(length, split):
    for question, answer in asked(Sorting(items="numbers"), length, 200, split):
        assert numbers(answer) == sorted(numbers(question))
        assert all(10 <= number <= 9999 for number in numbers(question))
        assert len(numbers(question)) == length
        for words in (question, answer):  # digit by digit, no leading zeros
            assert words == " , ".join(" ".join(str(number)) for number in numbers(words)).split()


def test_symbols_are_uniform_and_repeat():
    pairs = asked(Sorting(), 10, 5000)
    counts = Counter(symbol for question, _ in pairs for symbol in question)
    assert set(counts) == set(ORDER[:50])
    assert all(count == pytest.approx(1000, abs=150) for count in counts.values())
    repeats = sum(len(set(question)) < 10 for question, _ in pairs) / 5000
    assert repeats == pytest.approx(0.6183, abs=0.03)  # 1 - 50! / 40! / 50^10


@pytest.mark.medium
def test_numbers_are_uniform_from_10_to_9999():
    drawn = [n for question, _ in asked(Sorting(items="numbers"), 10, 30_000) for n in numbers(question)]
    assert {min(drawn), max(drawn)} == {10, 9999}
    sizes = Counter(len(str(n)) for n in drawn)
    for digits in (2, 3, 4):
        share = 9 * 10 ** (digits - 1) / 9990
        assert sizes[digits] / len(drawn) == pytest.approx(share, rel=0.06)


def test_published_texts():
    order = Sorting(symbols=62)
    assert order.repository_text(["M", "E", "F", "F", "O"], ["E", "F", "F", "M", "O"]) == (
        "Sort the following list [ M, E, F, F, O ]. ",
        "The sorted list is [ E, F, F, M, O ].",
    )
    question, answer = "3 1 , 4 1 2 6 , 5 9".split(), "3 1 , 5 9 , 4 1 2 6".split()  # noqa: SIM905 (as people read it)
    assert Sorting(items="numbers").repository_text(question, answer) == (
        "Sort the following list [ 3 1, 4 1 2 6, 5 9 ]. ",
        "The sorted list is [ 3 1, 5 9, 4 1 2 6 ].",
    )


def test_digits_are_of_numbers_only_in_numbers():
    assert Digits().for_task(Sorting(items="numbers")).digits == tuple(range(10))
    with pytest.raises(ConfigError, match="digits would be none"):
        Digits().for_task(Sorting(symbols=62))


@pytest.mark.parametrize("symbols", [-1, 0, 1, 63])
def test_more_symbols_than_there_are(symbols):
    with pytest.raises(ConfigError, match=rf"Sorting.symbols must be between 2 and 62, .* got {symbols}$"):
        choose(Sorting, symbols=symbols)


def test_numbers_have_no_symbols():
    with pytest.raises(ConfigError, match=r"Sorting.symbols is 20, but items=numbers.*leave symbols out"):
        choose(Sorting, items="numbers", symbols=20)
