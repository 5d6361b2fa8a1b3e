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
    CopyColumn,
    Counting,
    Parity,
    Permutations,
    Polynomial,
    Recall,
    Reverse,
    Sorting,
    Summation,
    generator,
)
from lengthwise.tasks.chomsky.base import ChomskyTask
from lengthwise.tasks.pairs import Pairs, close_gaps, draw_distinct, draw_pairs
from lengthwise.tasks.sequences import ENUMERABLE, SequenceTask, combinations
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
    choose(Addition, hints=20, reverse=True, pad=True),
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
    choose(Recall),
    choose(Recall, keys=4, values=3, depth=0.0),
    choose(Permutations),
    choose(Permutations, elements=3, moves="swaps", answer="all"),
    choose(Counting),
    choose(Counting, symbols=2),
    choose(CopyColumn),
    choose(CopyColumn, symbols=2, columns=1),
    *(choose(make) for make in TASKS if issubclass(make, ChomskyTask)),
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
    asked = {choice.cls for choice in OF_WORDS}
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
    every = task.all_examples(length)
    if every is None or len(every) > ENUMERABLE:
        pytest.skip(f"{choice.label} has more questions than are listed at length {length}")
    listed = [(tuple(q), tuple(a)) for q, a in task.pairs(task.pack(every))]
    assert len({q for q, _ in listed}) == len(listed)
    pairs = Pairs.join([task.draw(generator(0), 15 * len(listed), length)])
    assert {(tuple(q), tuple(a)) for q, a in task.pairs(task.pack(pairs))} == set(listed)


@each_task
def test_the_whole_of_a_length_is_its_two_splits(choice):
    task = choice.build()
    for length in short_lengths(task)[:2]:
        if task.all_examples(length) is None:
            with pytest.raises(ConfigError, match=f"too many questions of {length} {task.unit}"):
                task.whole(length)
            continue
        whole = task.whole(length)
        sizes = {split: len(pairs) for split, pairs in whole.items()}
        assert set(sizes) in ({"train", "test"}, {"train and test"})
        assert sum(sizes.values()) == len(task.all_examples(length))
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
    assert held_out(rows).equal(held_out(close_gaps(rows)))
    assert held_out(rows).tolist() == [bool(held_out(row[None, row >= 0])) for row in rows]


@pytest.mark.parametrize("split", ["train", "test"])
def test_what_is_drawn_is_the_first_of_its_split(split):
    """Answers go with their questions."""
    every = Sorting(items="numbers").draw(generator(0), 5000, 4)
    kept = draw_pairs(lambda count: every[:count], 300, split)
    first = every[(held_out(every.questions) == (split == "test")).nonzero()[:300, 0]]
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
        every = task.all_examples(3)
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
    with pytest.raises(ConfigError, match=r"Copy.times must be 1 or 2, got 3"):
        choose(Copy, times=3)
    with pytest.raises(ConfigError, match=r"pattern=replaced"):
        choose(Copy, pattern="replaced", times=2)
    with pytest.raises(ConfigError, match=r"Reverse.symbols must be between 2 and 65536, got 1"):
        choose(Reverse, symbols=1)


CROWDED = [  # more questions than are listed, fewer tests than are asked for here
    (choose(Copy, pattern="replaced", symbols=78), 21, 5000),
    (choose(Copy, pattern="repeated", symbols=6052), 30, 5000),
    (choose(Parity), 13, 1250),
    (choose(Summation), 4, 1000),
    (choose(Reverse, symbols=20), 3, 1500),
]


def all_questions(task, length):
    """Every question of the length, by its words alone: a question is one if the task makes an answer for it."""
    if isinstance(task, Summation):
        return combinations([9] * length, limit=10**6) + 1
    if isinstance(task, Parity):
        return combinations([2] * length, limit=10**6)
    if isinstance(task, Reverse):
        return combinations([task.symbols] * length, limit=10**6)
    if task.pattern == "repeated":
        return torch.arange(task.symbols)[:, None].expand(-1, length)
    pairs = combinations([task.symbols] * 2, limit=10**6)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    first, second = pairs.split(1, 1)
    return torch.cat([first, second, torch.full_like(first, task.symbols), first.expand(-1, length)], 1)


@pytest.mark.parametrize(("choice", "length", "count"), CROWDED, ids=lambda value: getattr(value, "label", value))
def test_no_example_is_counted_twice(choice, length, count):
    """Too few to be asked so many, too many to be listed: every one, once, in the order of the draws."""
    task = choice.build()
    assert task.available(length) is None
    asked = task.examples(0, count, length)
    questions = [tuple(question) for question, _ in task.pairs(asked)]
    assert len(set(questions)) == len(questions)
    assert len(questions) == int(held_out(all_questions(task, length)).sum()) < count
    assert (
        task.note(length, len(questions))
        == f"at length {length} there are only {len(questions)} different test examples"
    )
    assert task.note(length) is None
    half = task.examples(0, len(questions) // 2, length)
    assert len({tuple(question) for question, _ in task.pairs(half)}) == len(questions) // 2


def test_where_nothing_is_drawn_twice_the_draws_are_the_examples():
    """Scores of models asked before repeats were dropped stand, where there were none."""
    for task, length in ((Copy(symbols=20), 12), (Polynomial(), 9), (Sorting(items="numbers"), 6), (LEGO(), 12)):
        for split in ("test", "train"):
            whole, draws = (
                task.examples(3, 400, length, split),
                task.sample(generator(3, split, length), 400, length, split),
            )
            assert whole.inputs.equal(draws.inputs)
            assert whole.targets.equal(draws.targets)


@pytest.mark.parametrize("split", ["train", "test"])
def test_different_questions_by_hand(split):
    """Those of the split that come first, each once, with their answers; it ends where all have come."""
    every = Parity().draw(generator(1), 300, 5)  # of 32 questions
    begins = [0]

    def draw(kinds):  # the same 300 again and again
        begins.append(begins[-1] + len(kinds))
        return every[torch.arange(*begins[-2:]) % 300]

    own = every.questions[held_out(every.questions) == (split == "test")].tolist()
    found = draw_distinct(draw, torch.tensor([0]), 300, split)
    assert found.questions.tolist() == [list(row) for row in dict.fromkeys(map(tuple, own))]
    assert found.answers.tolist() == [[2 if sum(row) % 2 else 3] for row in found.questions.tolist()]
    begins[:] = [0]
    assert draw_distinct(draw, torch.tensor([0]), 3, split).questions.equal(found.questions[:3])


class OneQuestion(SequenceTask):
    """A task that does not list its questions, though it has only one."""

    unit = "words"

    def __init__(self):
        super().__init__(["a", "b"])

    def draw(self, generator, count, length):
        return Pairs(torch.zeros(count, length).long(), torch.zeros(count, 1).long())

    def widths(self, length):
        return length, 1

    def length_of(self, question, answer):
        return len(question)


def test_a_split_without_questions_is_an_error_and_no_endless_search():
    task = OneQuestion()
    split = "train" if held_out(torch.zeros(1, 3).long())[0] else "test"
    for ask in (lambda: task.examples(0, 4, 3, split), lambda: task.sample(generator(0), 4, 3, split)):
        with pytest.raises(
            ConfigError, match=f"none belongs to the {split} split.*define the task's method all_examples"
        ):
            ask()


def test_a_task_that_no_study_published_is_written_in_its_own_words():
    assert OneQuestion().repository_text(["a", "b"], ["b"]) == ("a b ", "b")


def test_an_empty_list_of_words_is_named():
    class NoWords(OneQuestion):
        def __init__(self):
            super(OneQuestion, self).__init__([])

    with pytest.raises(ConfigError, match=r"test_sequences\.py, line \d+: the words of NoWords must be .*, got \[\];"):
        NoWords()


@pytest.mark.parametrize("split", ["train", "test"])
def test_draw_is_never_called_for_no_example(split, monkeypatch):
    task = Copy()
    counts = []
    draw = task.draw
    monkeypatch.setattr(task, "draw", lambda g, count, length: counts.append(count) or draw(g, count, length))
    assert len(task.sample(generator(0), 3, 9, split)) == len(task.examples(0, 3, 9, split)) == 3
    assert len(task.sample(generator(0), 0, 9, split)) == 0
    assert min(counts) > 0
