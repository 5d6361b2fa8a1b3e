import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE
from lengthwise.positions import Coupled, Digits
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
    """One digit and two: of 900 questions each, all held-out ones of the smaller of the two pairs."""
    task = Addition()
    digits = torch.cartesian_prod(torch.arange(1, 10), torch.arange(10), torch.arange(10))
    two, one = digits[:, :2], torch.stack([torch.full((len(digits),), -1), digits[:, 2]], 1)
    there = [int(held_out(task.make_pairs(*rows).questions).sum()) for rows in ((two, one), (one, two))]
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
    batch = task.pack(task.make_pairs(torch.tensor([[5, 7]]), torch.tensor([[6, 8]])))
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


def in_one_text(task, batch):
    return ["".join(question) + "=" + "".join(answer) for question, answer in task.pairs(batch)]


def sums_of(task, *operands):
    """The example of these digits from every start of the list, as texts."""
    pairs = task.make_pairs(*map(torch.tensor, operands))
    return {in_one_text(task, task.pack(task.add_random_words(pairs, generator(n), 2)))[0] for n in range(60)}


def test_the_worked_examples_of_index_hints():
    """42 + 39 = 81 is printed by Zhou et al. 2024; the others follow from the definition."""
    forward = {"a4b2+a3b9=a8b1", "b4c2+b3c9=b8c1", "c4d2+c3d9=c8d1", "d4a2+d3a9=d8a1"}
    assert sums_of(Addition(hints=4), [[4, 2]], [[3, 9]]) == forward
    padded = {"a4b2+a3b9=d0a8b1", "b4c2+b3c9=a0b8c1", "c4d2+c3d9=b0c8d1", "d4a2+d3a9=c0d8a1"}
    assert sums_of(Addition(hints=4, pad=True), [[4, 2]], [[3, 9]]) == padded
    assert "b6c1+c9=b7c0" in sums_of(Addition(hints=3), [[6, 1]], [[-1, 9]])
    assert "b6c1+b4c9=a1b1c0" in sums_of(Addition(hints=3), [[6, 1]], [[4, 9]])
    reversed_sum = {"b4a2+b3a9=a1b8", "c4b2+c3b9=b1c8", "a4c2+a3c9=c1a8"}
    assert sums_of(Addition(hints=3, reverse=True), [[4, 2]], [[3, 9]]) == reversed_sum
    whole = {"a2b4+a9b3=a1b8c0", "b2c4+b9c3=b1c8a0", "c2a4+c9a3=c1a8b0"}
    assert sums_of(Addition(hints=3, reverse=True, pad=True, reverse_operands=True), [[4, 2]], [[3, 9]]) == whole


FORMATS = list(itertools.product((False, True), repeat=3))


def test_a_separate_program_writes_the_same_hinted_sums():
    """2,000 examples of all formats: the program sees only the text of each question."""
    asked, expected = [], []
    for number, (reverse, pad, reverse_operands) in enumerate(FORMATS):
        settings = {"reverse": reverse, "pad": pad, "reverse_operands": reverse_operands}
        for length, hints, split in [
            (1, 2, "test"),
            (1, 9, "train"),
            (2, 12, "test"),
            (5, 6, "train"),
            (20, 40, "test"),
        ]:
            task = Addition(hints=hints, **settings)
            batch = task.sample(generator(number, length), 50, length, split)
            expected += in_one_text(task, batch)
            symbols = "".join(task.words[11:])
            assert len(symbols) == hints
            asked += [{"question": "".join(q), "symbols": symbols, **settings} for q, _ in task.pairs(batch)]
            assert all(task.length_of(*pair) == length for pair in task.pairs(batch))
    assert len(expected) == 2000
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("hinted_sums.py"))]
    lines = "\n".join(map(json.dumps, asked))
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize(("length", "hints"), [(1, 2), (2, 5), (6, 7)])
def test_the_list_starts_anywhere_and_hints_do_not_count_in_the_split(length, hints):
    task, plain = Addition(hints=hints), Addition()
    starts = Counter(text[0] for text in in_one_text(task, task.sample(generator(0), 4000, length)))
    assert len(starts) == hints
    assert all(count == pytest.approx(4000 / hints, rel=0.25) for count in starts.values())

    def bare(texts):
        return ["".join(letter for letter in text if letter in "0123456789+=") for text in texts]

    test = bare(in_one_text(task, task.examples(3, 60, length)))
    assert test == in_one_text(plain, plain.examples(3, 60, length)), "the same test as without hints"
    assert not set(test) & set(bare(in_one_text(task, task.sample(generator(1), 4000, length))))
    assert task.available(length) == plain.available(length)


def test_a_fixed_set_and_all_questions_of_a_length_have_hints():
    task = Addition(hints=4, reverse=True)
    for text in in_one_text(task, task.fixed_examples(0, range(20), 1, 3)):
        assert len(text.replace("+", "").replace("=", "")) % 2 == 0
        assert text[0] in "abcd"
    every = [text for pairs in task.whole(1).values() for text in in_one_text(task, task.pack(pairs))]
    assert len(every) == 100
    assert all(text[0] == text[3] == text[6] for text in every)


def test_more_symbols_than_letters_have_numbers():
    task = Addition(hints=102)
    [(question, _)] = task.pairs(task.sample(generator(0), 1, 101))
    first = task.words.index(question[0]) - 11
    assert question[2] == f"h{(first + 1) % 102}"
    assert len(set(task.words)) == 11 + 102


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Addition(hints=4).sample(generator(0), 1, 4),
            "Addition.hints must be at least 5 for numbers of 4 digits, one symbol for each digit and one for the last "
            "carry, got 4; use more hints, or shorter numbers",
        ),
        (lambda: Addition(hints=4).examples(0, 1, 4), "must be at least 5 for numbers of 4 digits"),
        (lambda: Addition(hints=1), "Addition: hints must be a whole number of at least 2, got 1"),
        (lambda: Addition(hints=True), "hints"),
        (
            lambda: Addition(hints=5, scratchpad="full"),
            "Addition.hints=5 cannot be combined with a scratchpad, got full",
        ),
        (lambda: Addition(reverse_operands=True, scratchpad="full"), "reverse_operands=true cannot be combined with a"),
        (lambda: Coupled().for_task(Addition(hints=5, reverse=True)), "only without reverse_operands and hints"),
    ],
)
def test_hints_that_cannot_be_written_are_refused(make, words):
    with pytest.raises(ConfigError) as error:
        make()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_runs_without_the_newer_settings_keep_their_keys():
    """The keys were computed before Addition had hints and reversed operands."""

    def key(**settings):
        training = TrainingConfig(train_length=5)
        return Run(encoding=choose(FIRE), task=choose(Addition, **settings), training=training).key

    known = {
        "a9f8f88583b1fb24": {},
        "fe67da9bf659601b": {"reverse": True, "pad": True},
        "c9ce594755217983": {"scratchpad": "full"},
    }
    assert {name: key(**settings) for name, settings in known.items()} == {name: name for name in known}
    assert key(hints=None, reverse_operands=False) == key()
    assert len({key(), key(hints=8), key(hints=9), key(reverse_operands=True)}) == 4
    assert choose(Addition, hints=8).label == "Addition(hints=8)"
