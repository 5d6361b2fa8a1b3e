from collections import Counter

import pytest

from lengthwise.tasks import Parity, generator


def asked(task, length, count, split="train"):
    """The words of so many questions and answers."""
    return task.pairs(task.sample(generator(0), count, length, split))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 4, 12, 13, 40])
def test_yes_is_even(length, split):
    for question, answer in asked(Parity(), length, 200, split):
        assert answer == ["Yes" if question.count("1") % 2 == 0 else "No"]


def test_bits_are_uniform():
    pairs = asked(Parity(), 20, 4000)
    ones = Counter(place for question, _ in pairs for place, bit in enumerate(question) if bit == "1")
    assert all(ones[place] == pytest.approx(2000, abs=160) for place in range(20))
    assert sum(answer == ["Yes"] for _, answer in pairs) == pytest.approx(2000, abs=160)


def test_published_text():
    task = Parity()
    prompt, target = task.repository_text(["1", "0", "1", "1"], ["No"])
    assert prompt == "Is the number of 1's even in the sequence [ 1, 0, 1, 1 ] ? "
    assert target == "The answer is No."
    assert task.operands(["1", "0", "1", "1"]) == [1, 0, 1, 1]
    assert {"input": "1 0 1 1", "target": "No", "length": 4} in task.render(task.pack(task.all_examples(4)))
