from collections import Counter

import pytest

from lengthwise.tasks import Summation, generator


def asked(task, length, count, split="train"):
    """The words of so many questions and answers."""
    return task.pairs(task.sample(generator(0), count, length, split))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 3, 4, 20])
def test_sums_modulo_10(length, split):
    for question, answer in asked(Summation(), length, 200, split):
        assert answer == [str(sum(map(int, question)) % 10)]


def test_digits_are_uniform_from_1():
    counts = Counter(word for question, _ in asked(Summation(), 9, 5000) for word in question)
    assert set(counts) == set("123456789")
    assert all(count == pytest.approx(5000, abs=300) for count in counts.values())


def test_published_text():
    task = Summation()
    assert task.repository_text(["3", "9", "8"], ["0"]) == ("Compute: 3 + 9 + 8 .", "The answer is 0 .")
    assert task.separator == "[SEP] "
    assert task.operands(["3", "9", "8"]) == [3, 9, 8]
    every = task.all_examples(3)
    assert {"input": "3 9 8", "target": "0", "length": 3} in task.render(task.pack(every))
