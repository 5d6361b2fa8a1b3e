"""PCFG SET: its functions on published examples, and the set against what was asked of it."""

import hashlib
import itertools
from collections import Counter
from fractions import Fraction

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import PCFG, generator
from lengthwise.tasks.pcfg import (
    BINARY,
    KINDS,
    SYMBOLS,
    UNARY,
    WORDS,
    answer_to,
    draw_questions,
    draw_trees,
    training_sizes,
)

TESTS = {9: 3232, 10: 2296, 11: 1738, 12: 1175, 13: 811, 14: 631, 15: 411, 16: 271, 17: 225, 18: 154, 19: 103, 20: 68}
TESTS |= {21: 67, 22: 46, 23: 34, 24: 18, 25: 28, 26: 5, 27: 6, 28: 5, 29: 2, 30: 4, 32: 2, 35: 1}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("repeat append shift A1 B2 C3 , echo D4", "B2 C3 A1 D4 D4 B2 C3 A1 D4 D4"),
        ("prepend reverse A1 B2 , remove_first C3 , swap_first_last D4 E5 F6", "F6 E5 D4 B2 A1"),
        ("shift A1 B2 C3", "B2 C3 A1"),
        ("echo A1 B2", "A1 B2 B2"),
        ("append A1 B2 , C3", "A1 B2 C3"),
        ("prepend A1 B2 , C3", "C3 A1 B2"),
        ("remove_first A1 B2 , C3", "C3"),
        ("remove_second A1 B2 , C3", "A1 B2"),
        ("copy reverse A1 B2 C3", "C3 B2 A1"),
        ("swap_first_last A1 B2 C3 D4", "D4 B2 C3 A1"),
        ("swap_first_last A1", "A1"),
        ("repeat A1 B2", "A1 B2 A1 B2"),
    ],
)
def test_published_examples(question, answer):
    found = answer_to([WORDS.index(word) for word in question.split()], 100)
    assert [WORDS[n] for n in found] == answer.split()


def by_rewriting(question):
    """The answer again: the last function of the text has strings alone behind it, so it is done first."""
    words = list(question)
    while True:
        at = max((n for n, word in enumerate(words) if word in UNARY or word in BINARY), default=None)
        if at is None:
            return words
        name, rest = words[at], words[at + 1 :]
        parts = [list(group) for comma, group in itertools.groupby(rest, ",".__eq__) if not comma]
        taken = 1 if name in UNARY else 2
        x, y = parts[0], parts[1] if taken == 2 else []
        value = {
            "copy": x,
            "reverse": list(reversed(x)),
            "shift": [*x[1:], x[0]],
            "echo": [*x, x[-1]],
            "swap_first_last": [x[-1], *x[1:-1], x[0]],
            "repeat": [*x, *x],
            "append": [*x, *y],
            "prepend": [*y, *x],
            "remove_first": y,
            "remove_second": x,
        }[name]
        used = sum(map(len, parts[:taken])) + taken - 1
        words = [*words[:at], *value, *rest[used:]]


@pytest.mark.parametrize("length", [1, 2, 5, 8, 9, 13, 20, 30, 35])
def test_answers_are_those_of_a_second_program(length):
    task = PCFG()
    for question, answer in task.pairs(task.pack(task.all_examples(length)[:400])):
        assert answer == by_rewriting(question)
        assert sum(word in UNARY or word in BINARY for word in question) == length
        assert 1 <= len(answer) <= 100


def test_the_set_has_the_sizes_asked_for():
    task = PCFG()
    assert {n: size for n, size in task.sizes.items() if n > 8} == TESTS
    assert sum(TESTS.values()) == 11_333
    assert sum(task.sizes.values()) - 11_333 == 81_010
    weights = {n: Fraction(n**2) * Fraction(54, 100) ** n for n in range(1, 9)}
    for n, size in training_sizes().items():
        assert abs(size - 81_010 * weights[n] / sum(weights.values())) < 1
    for n in (1, 9, 14, 30, 35):
        assert len(task.all_examples(n)) == task.sizes[n]


@pytest.mark.parametrize("length", [1, pytest.param(3, marks=pytest.mark.slow), 9, 20])
def test_no_question_and_no_string_occurs_twice(length):
    task = PCFG()
    pairs = task.pairs(task.pack(task.all_examples(length)))
    assert len({tuple(question) for question, _ in pairs}) == len(pairs)
    strings = Counter()
    for question, _ in pairs:
        assert len(" ".join(question)) < 500
        for symbols, group in itertools.groupby(question, SYMBOLS.__contains__):
            if symbols:
                strings[tuple(group)] += 1
    assert max(strings.values()) == 1
    assert {len(string) for string in strings} == {2, 3, 4, 5}


def test_texts_are_below_500_letters():
    """A quarter of the questions of 30 functions would be longer."""
    sizes = [len(" ".join(WORDS[n] for n in question)) for question in itertools.islice(draw_questions(30), 3000)]
    assert 490 < max(sizes) < 500


@pytest.mark.slow
def test_symbols_and_sizes_of_strings_are_uniform():
    task = PCFG()
    sizes, symbols = Counter(), Counter()
    for question, _ in task.pairs(task.pack(task.all_examples(3))):
        for is_symbol, group in itertools.groupby(question, SYMBOLS.__contains__):
            string = list(group)
            if is_symbol:
                sizes[len(string)] += 1
                symbols.update(string)
    for size in sizes:
        assert sizes[size] / sizes.total() == pytest.approx(1 / 4, abs=0.01)
    assert len(symbols) == 520
    expected = symbols.total() / 520
    assert sum((n - expected) ** 2 / expected for n in symbols.values()) < 520 + 5 * (2 * 520) ** 0.5


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_trees_have_the_grammar_s_chances_given_their_size(size):
    """Every tree of so many functions, its chance under the published grammar over that of all of them together."""
    chance = {"s": Fraction(3, 4), "f": Fraction(1, 4)}
    own = {
        kind: (Fraction(3, 4) if len(kind) == 1 else Fraction(1, 4))
        * chance[kind[0]]
        * chance[kind[-1]] ** (len(kind) - 1)
        for kind in KINDS
    }

    def trees(n):
        """Kinds in the order in which they are written."""
        for kind in KINDS:
            if kind.count("f") == 0 and n == 1:
                yield (kind,)
            elif kind.count("f") == 1 and n > 1:
                yield from ((kind, *below) for below in trees(n - 1))
            elif kind == "ff" and n > 2:
                for left in range(1, n - 1):
                    yield from ((kind, *a, *b) for a in trees(left) for b in trees(n - 1 - left))

    wanted = {tree: Fraction(1) for tree in trees(size)}
    for tree in wanted:
        for kind in tree:
            wanted[tree] *= own[kind]
    total = sum(wanted.values())
    number = 40_000
    drawn = Counter(tuple(KINDS[k] for k in row) for row in draw_trees(generator("trees", size), number, size).tolist())
    assert set(drawn) <= set(wanted)
    for tree, part in wanted.items():
        expected = float(part / total)
        assert drawn[tree] / number == pytest.approx(expected, abs=5 * (expected / number) ** 0.5)


def test_functions_of_a_kind_are_equally_frequent():
    names = Counter(word for question in itertools.islice(draw_questions(5), 8000) for word in question if word < 10)
    for kinds in (range(6), range(6, 10)):
        total = sum(names[k] for k in kinds)
        for k in kinds:
            assert names[k] / total == pytest.approx(1 / len(kinds), abs=0.01)


def test_long_answers_are_left_out_and_nothing_else():
    drawn = list(itertools.islice(draw_questions(9), 3000))
    for longest in (20, 100):
        task = PCFG(longest=longest)
        kept = [task.ids(question) for question, _ in task.pairs(task.pack(task.all_examples(9)))]
        short = [question for question in drawn if len(by_rewriting([WORDS[n] for n in question])) <= longest]
        assert kept[: len(short)] == short
        assert len(kept) == 3232


def test_the_set_is_always_the_same():
    """Models that were trained on it are tested with it, in other versions too."""
    task = PCFG()
    rows = [row for length in (1, 8, 12) for row in task.render(task.pack(task.all_examples(length)))]
    assert rows[0] == {"input": "copy R15 S15 C8 N19 I3", "target": "R15 S15 C8 N19 I3", "length": 1}
    found = hashlib.sha256("".join(f"{row['input']}\t{row['target']}\n" for row in rows).encode()).hexdigest()
    assert found == "a51cb8397341372ddb43c63e9496bc1d61a89fe881c96804bbb669435b546e07"


@pytest.mark.medium
def test_splits_and_widths():
    task = PCFG()
    seen = {split: {tuple(q) for q, _ in task.pairs(task.pack(pairs))} for split, pairs in task.whole(5).items()}
    assert not seen["train"] & seen["test"]
    assert len(seen["test"]) / task.sizes[5] == pytest.approx(1 / 8, abs=0.01)
    assert set(task.whole(9)) == {"test"}
    for length in (1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 35):
        asked, said = task.widths(length)
        for shorter in range(1, length + 1) if length <= 8 else [length]:  # a training batch has shorter ones too
            assert task.all_examples(shorter).questions.shape[1] <= asked
            assert task.all_examples(shorter).answers.shape[1] <= said
    assert task.all_examples(30).questions.shape[1] != task.all_examples(35).questions.shape[1] == task.widths(35)[0]
    assert task.note(35) == "at length 35 there is only one test example"


def test_a_training_batch():
    task = PCFG()
    batch = task.training_batch(generator(0), 3000, 1, 5)
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.inputs.shape[1] <= task.tokens(5)
    lengths = Counter(task.length_of(*pair) for pair in task.pairs(batch))
    for n in range(1, 6):
        share = task.available(n, "train") / sum(task.available(k, "train") for k in range(1, 6))
        assert lengths[n] / 3000 == pytest.approx(share, abs=0.04)


def test_published_text():
    task = PCFG()
    text = task.repository_text(["append", "A1", "B2", ",", "C3"], ["A1", "B2", "C3"])
    assert text == ("Solve: append A1 B2 , C3", "A1 B2 C3")
    assert task.separator == "[SEP] "


def test_lengths_and_settings_that_cannot_be():
    task = PCFG()
    with pytest.raises(ConfigError, match=r"PCFG has no example of 31 functions; the nearest .* 30 and 32$"):
        task.check_length(31)
    with pytest.raises(ConfigError, match=r"no example of 33 functions; the nearest .* 32 and 35"):
        task.tokens(33)
    with pytest.raises(ConfigError, match=r"nearest length with examples is 35"):
        task.check_length(36)
    with pytest.raises(ConfigError, match=r"training length must be at most 8 functions for PCFG, got 9"):
        task.check_length(9, "train")
    with pytest.raises(ConfigError, match=r"PCFG.longest must be between 20 and 1000, got 5"):
        choose(PCFG, longest=5)
