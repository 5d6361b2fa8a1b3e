from collections import Counter

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.positions import Digits
from lengthwise.tasks import Addition, generator
from lengthwise.tasks.addition import sum_of
from lengthwise.tasks.splits import held_out


def asked(task, length, count, split="train"):
    """The words of so many questions and answers."""
    return task.pairs(task.sample(generator(0), count, length, split))


def numbers(question):
    return tuple("".join(question).split("+"))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 16, 60])
def test_sums_are_right(length, split):
    for question, answer in asked(Addition(), length, 200, split):
        a, b = numbers(question)
        assert "".join(answer) == str(int(a) + int(b))
        assert max(len(a), len(b)) == length
        assert (a, b) == (str(int(a)), str(int(b)))  # no leading zeros


@pytest.mark.parametrize(("reverse", "pad"), [(True, False), (False, True), (True, True)])
def test_reversed_and_padded_sums(reverse, pad):
    task = Addition(reverse=reverse, pad=pad)
    for length in (1, 3, 40):
        for question, answer in asked(task, length, 100):
            a, b = numbers(question)
            total = str(int(a) + int(b)).zfill(length + 1 if pad else 0)
            assert "".join(answer) == (total[::-1] if reverse else total)
            assert (len(a), len(b)) == (length, length) if pad else (a, b) == (str(int(a)), str(int(b)))
            assert task.length_of(question, answer) == length
    assert len({str_pair(pair)[0] for pair in task.pairs(task.examples(0, 318, 2))}) == 318


@pytest.mark.parametrize("name", ["reverse", "pad"])
def test_reversed_and_padded_sums_have_no_scratchpad(name):
    with pytest.raises(ConfigError, match=f"Addition.{name}=true cannot be combined with a scratchpad, got minimal"):
        Addition(scratchpad="minimal", **{name: True})
    with pytest.raises(ConfigError, match=f"Addition: {name} must be true or false, got 1"):
        Addition(**{name: 1})


def test_carries_run_through_nines():
    """Every pair of two digits, and the long runs that random numbers hardly have."""
    every = torch.cartesian_prod(*[torch.arange(10)] * 4)
    rows = sum_of(every[:, :2], every[:, 2:]).tolist()
    for digits, row in zip(every.tolist(), rows, strict=True):
        a, b = 10 * digits[0] + digits[1], 10 * digits[2] + digits[3]
        assert [d for d in row if d >= 0] == [int(d) for d in (str(a + b) if a + b > 99 else f"{a + b:02}")]
    generate = generator(0)
    first = torch.randint(10, (500, 30), generator=generate)
    second = torch.where(torch.rand((500, 30), generator=generate) < 0.9, 9 - first, first)
    for a, b, row in zip(first.tolist(), second.tolist(), sum_of(first, second).tolist(), strict=True):
        total = int("".join(map(str, a))) + int("".join(map(str, b)))
        assert int("".join(str(d) for d in row if d >= 0)) == total


def test_digit_counts_are_uniform_over_the_pairs():
    counts = Counter(tuple(map(len, numbers(q))) for q, _ in asked(Addition(), 4, 21_000))
    assert set(counts) == {(4, n) for n in range(1, 5)} | {(n, 4) for n in range(1, 4)}
    assert all(count == pytest.approx(3000, abs=250) for count in counts.values())


def sizes_of(task, batch):
    return Counter(tuple(map(len, numbers(q))) for q, _ in task.pairs(batch))


@pytest.mark.parametrize(
    ("length", "count", "asked_for"), [(2, 250, 250), (2, 1000, 318), (3, 1000, 1000), (4, 999, 999)]
)
def test_a_test_has_as_many_questions_of_each_pair_of_sizes(length, count, asked_for):
    """Also where small pairs run out: of 2 digits, (2, 2) would otherwise have 779 of 1,000."""
    task = Addition()
    for seed in range(3):
        batch = task.examples(seed, count, length)
        found = sizes_of(task, batch)
        assert len(batch) == asked_for
        assert len({question for question, _ in map(str_pair, task.pairs(batch))}) == asked_for, "none twice"
        assert len(found) == 2 * length - 1
        assert max(found.values()) - min(found.values()) <= (asked_for % len(found) > 0)


def str_pair(pair):
    return "".join(pair[0]), "".join(pair[1])


def test_who_runs_out_has_all_of_its_questions():
    """One digit and two: of 900 questions each, all that the hash holds out for tests in the smaller of the two pairs."""
    task = Addition()
    digits = torch.cartesian_prod(torch.arange(1, 10), torch.arange(10), torch.arange(10))
    two, one = digits[:, :2], torch.stack([torch.full((len(digits),), -1), digits[:, 2]], 1)
    there = [int(held_out(task.lazy_pairs(*rows).questions).sum()) for rows in ((two, one), (one, two))]
    found = sizes_of(task, task.examples(0, 5000, 2))
    assert found == dict.fromkeys([(2, 1), (1, 2), (2, 2)], min(there))
    assert len(task.examples(0, 10**12, 2)) == 3 * min(there), "however many are asked for"
    assert len(task.examples(0, 0, 2)) == 0
    note = "at length 2 there are only 318 different test examples with as many of each of the pairs of sizes"
    assert task.note(2, 318) == note
    assert task.note(2) is None


def test_a_test_of_fewer_questions_than_pairs_has_none_of_a_pair_twice():
    task, every = Addition(), set()
    for seed in range(40):
        found = sizes_of(task, task.examples(seed, 4, 5))
        assert set(found.values()) == {1}
        every |= set(found)
    assert len(every) == 9, "any pair may be among them"


def test_a_test_s_questions_are_uniform_within_a_pair_and_in_no_order():
    task = Addition()
    batch = task.examples(0, 700, 6)
    pairs = [numbers(question) for question, _ in task.pairs(batch)]
    first = Counter(a[0] for a, b in pairs if len(a) == 6)
    assert set(first) == set("123456789")
    assert all(20 < count < 75 for count in first.values())
    begin = [len(a) for a, _ in pairs[:100]]
    assert len(set(begin)) == 6


def test_numbers_are_uniform():
    """Of one digit from 0, of more from 10, 100, ... on, at each place."""
    ones, pairs = Counter(), [numbers(q) for q, _ in asked(Addition(), 2, 60_000)]
    for a, b in pairs:
        ones.update(x for x in (a, b) if len(x) == 1)
    assert set(ones) == set("0123456789")
    assert all(count == pytest.approx(sum(ones.values()) / 10, rel=0.1) for count in ones.values())
    twos = Counter(a for a, _ in pairs if len(a) == 2)
    assert set(twos) == set(map(str, range(10, 100)))
    assert all(count == pytest.approx(sum(twos.values()) / 90, rel=0.25) for count in twos.values())


def test_the_example_of_the_docstring_and_the_published_text():
    task = Addition()
    batch = task.pack(task.lazy_pairs(torch.tensor([[5, 7]]), torch.tensor([[6, 8]])).compute())
    assert task.render(batch) == [{"input": "5 7 + 6 8", "target": "1 2 5", "length": 2}]
    assert task.texts(batch) == [{"prompt": "Compute 5 7 + 6 8 ? ", "separator": "", "target": "The answer is 1 2 5."}]
    assert task.repository_text(["3", "+", "9", "0", "5"], ["9", "0", "8"]) == (
        "Compute 3 + 9 0 5 ? ",
        "The answer is 9 0 8.",
    )
    assert task.operands(["3", "+", "9", "0", "5"]) == ([3], [9, 0, 5])


def test_its_digits_are_those_of_numbers():
    task = Addition()
    assert [task.words[n] for n in task.digit_tokens] == list("0123456789")
    scheme = Digits().for_task(task)
    inputs = torch.tensor([[task.bos, *task.ids(["5", "7", "+", "6"]), task.sep, *task.ids(["6", "3"])]])
    assert scheme.positions(inputs, None, generator(0), training=False).tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
