from collections import Counter

import pytest

from lengthwise.tasks import Polynomial, generator


def asked(length, count, split="train"):
    """The words of so many questions and answers."""
    task = Polynomial()
    return task.pairs(task.sample(generator(0), count, length, split))


def parsed(question):
    """x and [(coefficient, degree)], by another way than the task's."""
    at, terms = "".join(question).split(":")
    return int(at), [tuple(map(int, term.split("x"))) for term in terms.split("+")]


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 20])
def test_values_are_right(length, split):
    for question, answer in asked(length, 200, split):
        at, terms = parsed(question)
        assert len(terms) == length
        assert answer == [str(sum(c * at**d for c, d in terms) % 10)]
        assert Polynomial().terms(question) == (at, terms)


def test_numbers_are_uniform_and_independent():
    counts, xs = Counter(), Counter()
    for question, _ in asked(8, 3500):
        at, terms = parsed(question)
        xs[at] += 1
        counts.update(terms)
    assert set(xs) == set(range(-2, 3))
    assert all(count == pytest.approx(700, abs=120) for count in xs.values())
    assert set(counts) == {(c, d) for c in range(-3, 4) for d in range(4)}
    assert all(count == pytest.approx(1000, abs=150) for count in counts.values())


def test_zero_to_the_zero_is_one():
    task = Polynomial()
    found = {r["input"]: r["target"] for r in task.render(task.pack(task.all_examples(1)))}
    assert len(found) == 5 * 7 * 4
    assert found["0 : 3 x 0"] == "3"
    assert found["0 : - 3 x 0"] == "7"
    assert found["0 : 3 x 1"] == "0"
    assert found["- 2 : 3 x 3"] == "6"  # -24 modulo 10


def test_published_text():
    question = "- 2 : - 2 x 2 + 3 x 0 + 1 x 3".split()  # noqa: SIM905 (as people read it)
    prompt, target = Polynomial().repository_text(question, ["7"])
    assert prompt == "Evaluate at x = - 2 in - 2 * x ** 2 + 3 * x ** 0 + 1 * x ** 3 ? "
    assert target == "The answer is 7."
    at, terms = parsed(question)
    assert sum(c * at**d for c, d in terms) % 10 == 7
