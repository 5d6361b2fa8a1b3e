"""What all tasks of words have in common, asked of each of them."""

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.tasks import (
    LEGO,
    PCFG,
    SCAN,
    TASKS,
    Addition,
    Copy,
    Parity,
    Polynomial,
    Reverse,
    Sorting,
    Summation,
    generator,
)
from lengthwise.tasks.sequences import ENUMERABLE, Pairs, SequenceTask, closed, combinations, drawn
from lengthwise.tasks.splits import held_out

OF_WORDS = [
    choose(Copy),
    choose(Copy, times=2),
    choose(Copy, pattern="repeated", symbols=70),
    choose(Copy, pattern="repeated", times=2),
    choose(Copy, pattern="replaced"),
    choose(Reverse),
    choose(Reverse, answer="twice"),
    choose(Reverse, answer="back", symbols=100),
    choose(Addition),
    choose(Addition, scratchpad="full"),
    choose(Addition, scratchpad="no-computation", zeros="published"),
    choose(Summation),
    choose(Summation, scratchpad="minimal"),
    choose(Parity),
    choose(Parity, scratchpad="i1c0o0v0r1"),
    choose(Polynomial),
    choose(Polynomial, scratchpad="full"),
    choose(Sorting),
    choose(Sorting, symbols=4),
    choose(Sorting, items="numbers"),
    choose(Sorting, scratchpad="full", symbols=4),
    choose(Sorting, scratchpad="minimal", items="numbers"),
    choose(LEGO),
    choose(LEGO, scratchpad="full"),
    choose(SCAN),
    choose(SCAN, split="tr25"),
    choose(PCFG),
    choose(PCFG, longest=30),
]

each_task = pytest.mark.parametrize("choice", OF_WORDS, ids=lambda choice: choice.label)


def short_lengths(task):
    """The shortest lengths that a task has."""
    found = []
    for length in range(1, 60):
        try:
            task.check_length(length)
        except ConfigError:
            continue
        found.append(length)
    return found[:4]


def has(task, length, split):
    try:
        task.check_length(length, split)
    except ConfigError:
        return False
    return True


def test_every_task_of_words_is_asked():
    asked = {choice.make for choice in OF_WORDS}
    assert asked == {make for make in TASKS if issubclass(make, SequenceTask)}


@each_task
@pytest.mark.parametrize("split", ["train", "test"])
def test_lengths_are_exact_and_words_round_trip(choice, split):
    task = choice.build()
    for length in filter(lambda n: has(task, n, split), [*short_lengths(task), 12]):
        batch = task.sample(generator(length), 16, length, split)
        assert batch.inputs.shape == batch.targets.shape == batch.scored.shape
        assert batch.inputs.shape[1] <= task.tokens(length)
        for (question, answer), inputs, targets, scored in zip(
            task.pairs(batch), batch.inputs.tolist(), batch.targets.tolist(), batch.scored.tolist(), strict=True
        ):
            assert task.length_of(question, answer) == length
            whole = [task.bos, *task.ids(question), task.sep, *task.ids(answer), task.eos]
            places = len(whole) - 1
            assert inputs[:places] == whole[:-1]
            assert targets[:places] == whole[1:]
            assert set(inputs[places:]) | set(targets[places:]) <= {task.eos}
            assert scored == [len(question) < t < places for t in range(len(scored))]


@each_task
def test_train_and_test_share_no_question(choice):
    task = choice.build()
    for length in filter(lambda n: has(task, n, "train"), [*short_lengths(task), 9]):
        seen = {}
        for split in ("train", "test"):
            batch = task.sample(generator(0, length), 200, length, split)
            seen[split] = {tuple(question) for question, _ in task.pairs(batch)}
        assert bool(seen["train"] & seen["test"]) == ("share" in (task.note(length) or ""))


@each_task
def test_a_question_has_one_answer(choice):
    task = choice.build()
    for length in short_lengths(task):
        answers = {}
        for seed in range(3):
            for question, answer in task.pairs(task.sample(generator(seed), 64, length)):
                assert answers.setdefault(tuple(question), answer) == answer


@each_task
def test_listed_questions_are_those_that_are_drawn(choice):
    """Each once, and nothing is drawn that is not listed; what is listed is drawn."""
    task = choice.build()
    length = short_lengths(task)[0]
    every = task.every(length)
    if every is None or len(every) > ENUMERABLE:
        pytest.skip(f"{choice.label} has more questions than are listed at length {length}")
    listed = [(tuple(q), tuple(a)) for q, a in task.pairs(task.pack(every))]
    assert len({q for q, _ in listed}) == len(listed)
    pairs = Pairs.join([task.draw(generator(0), 40 * len(listed), length)])
    assert {(tuple(q), tuple(a)) for q, a in task.pairs(task.pack(pairs))} == set(listed)


@each_task
def test_the_whole_of_a_length_is_its_two_splits(choice):
    task = choice.build()
    for length in short_lengths(task)[:2]:
        if task.every(length) is None:
            with pytest.raises(ConfigError, match=f"too many questions of {length} {task.unit}"):
                task.whole(length)
            continue
        whole = task.whole(length)
        sizes = {split: len(pairs) for split, pairs in whole.items()}
        assert set(sizes) in ({"train", "test"}, {"train and test"})
        assert sum(sizes.values()) == len(task.every(length))
        for split in ("train", "test"):
            assert task.available(length, split) == sizes.get(split, sizes.get("train and test"))


@each_task
def test_examples_are_a_function_of_their_arguments(choice):
    for length in short_lengths(choice.build())[-2:]:
        one, other = (choice.build().examples(3, 20, length) for _ in range(2))
        assert one.inputs.equal(other.inputs)
        assert one.targets.equal(other.targets)


@each_task
def test_published_texts_are_text(choice):
    task = choice.build()
    batch = task.sample(generator(0), 4, short_lengths(task)[-1])
    for text in task.texts(batch):
        assert set(text) == {"prompt", "separator", "target"}
        assert text["prompt"].isprintable()
        assert text["target"].strip()


@each_task
def test_lengths_that_cannot_be(choice):
    with pytest.raises(ConfigError, match="at least"):
        choice.build().check_length(0)


def test_ragged_rows_are_packed_without_gaps():
    task = Copy(symbols=4)
    pairs = Pairs(torch.tensor([[0, 1, -1], [2, -1, -1]]), torch.tensor([[3, -1], [0, 1]]))
    batch = task.pack(pairs)
    b, s, e = task.bos, task.sep, task.eos
    assert batch.inputs.tolist() == [[b, 0, 1, s, 3], [b, 2, s, 0, 1]]
    assert batch.targets.tolist() == [[0, 1, s, 3, e], [2, s, 0, 1, e]]
    assert batch.scored.tolist() == [[False, False, False, True, True], [False, False, True, True, True]]
    shorter = task.pack(pairs[:1])
    assert shorter.inputs.tolist() == [[b, 0, 1, s, 3]]
    longer = Pairs.join([pairs, Pairs(torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0]]))])
    assert longer.questions.tolist() == [[0, 1, -1, -1], [2, -1, -1, -1], [0, 1, 2, 3]]
    assert task.pack(longer).inputs.tolist()[1] == [b, 2, s, 0, 1, e, e]  # filled up with EOS
    assert task.pack(longer).scored.tolist()[1] == [False, False, True, True, True, False, False]


def test_what_fills_a_row_does_not_decide_its_split():
    rows = torch.randint(30, (500, 6), generator=generator(0))
    assert held_out(rows).equal(held_out(torch.nn.functional.pad(rows, (0, 3), value=-1)))


def test_gaps_in_a_row_do_not_decide_its_split():
    rows = torch.randint(30, (500, 12), generator=generator(0))
    rows = rows.masked_fill(torch.rand(rows.shape, generator=generator(1)) < 0.4, -1)
    assert held_out(rows).equal(held_out(closed(rows)))
    assert held_out(rows).tolist() == [bool(held_out(row[None, row >= 0])) for row in rows]


@pytest.mark.parametrize("split", ["train", "test"])
def test_what_is_drawn_is_the_first_of_its_split(split):
    """However many questions are written and hashed at a time, and answers go with their questions."""
    every = Sorting(items="numbers").draw(generator(0), 5000, 4)
    kept = drawn(lambda count: every[:count], 300, split)
    written = every.write()
    first = written[(held_out(written.questions) == (split == "test")).nonzero()[:300, 0]]
    assert kept.questions.equal(first.questions)
    assert kept.answers.equal(first.answers)


def test_combinations_by_hand():
    assert combinations([2, 3]).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert combinations([3]).tolist() == [[0], [1], [2]]
    assert combinations([10] * 4) is None


def test_a_word_that_there_is_not():
    with pytest.raises(ConfigError, match=r"Reverse has no word '\[NXT\]'"):
        Reverse(answer="twice").ids(["[NXT]"])


def test_published_copies():
    def text(task, question):
        """Of the one example that has this question."""
        every = task.every(3)
        at = [q for q, _ in task.pairs(task.pack(every))].index(question)
        return task.texts(task.pack(every[at : at + 1]))[0]

    few = {"symbols": 4}
    assert text(Copy(**few), ["a", "b", "c"]) == {"prompt": "Copy: a b c ", "separator": "[SEP] ", "target": "a b c"}
    assert text(Copy(times=2, **few), ["a", "b", "c"])["target"] == "a b c [NEXT] a b c"
    assert text(Copy(pattern="repeated", times=2, **few), ["a"] * 3)["target"] == "a a a a a a"
    replaced = text(Copy(pattern="replaced", **few), ["a", "b", ":", "a", "a", "a"])
    assert replaced == {"prompt": "Replace a with b in a a a ", "separator": "[SEP] ", "target": "b b b"}
    assert text(Reverse(**few), ["a", "b", "c"])["prompt"] == "Reverse: a b c "
    assert text(Reverse(answer="twice", **few), ["a", "b", "c"])["target"] == "c b a [NEXT] c b a"
    assert text(Reverse(answer="back", **few), ["a", "b", "c"])["target"] == "c b a [NEXT] a b c"


def test_copies_that_cannot_be():
    with pytest.raises(ConfigError, match=r"Copy.times is 3"):
        choose(Copy, times=3)
    with pytest.raises(ConfigError, match=r"pattern=replaced"):
        choose(Copy, pattern="replaced", times=2)
    with pytest.raises(ConfigError, match=r"Reverse.symbols is 1; it has to lie in 2"):
        choose(Reverse, symbols=1)
