"""The tasks of the Chomsky hierarchy: answers solved by another program, lengths, distributions and scores."""

import hashlib
import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.evaluation import evaluate, untrained
from lengthwise.metrics import Metric
from lengthwise.tasks import (
    TASKS,
    BinaryAddition,
    BinaryMultiplication,
    BucketSort,
    ComputeSqrt,
    CycleNavigation,
    EvenPairs,
    MissingDuplicate,
    ModularArithmetic,
    ModularArithmeticBrackets,
    OddsFirst,
    Parity,
    ParityCheck,
    Reverse,
    ReverseString,
    SolveEquation,
    Sorting,
    StackManipulation,
    generator,
)
from lengthwise.tasks.chomsky.base import AnsweredTask, ChomskyTask
from lengthwise.tasks.chomsky.expressions import LONGEST_LISTED, all_expressions, draw_expressions
from lengthwise.tasks.pairs import Pairs
from lengthwise.training.setup import build

CHECKER = Path(__file__).with_name("chomsky_checker.py")
MAKES = [make for make in TASKS if issubclass(make, ChomskyTask)]
LENGTHS = (*range(1, 17), 21, 30, 40, 41, 64, 100, 101, 500, 501)

each_task = pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)


def lengths_of(task, lengths=LENGTHS):
    found = []
    for length in lengths:
        try:
            task.check_length(length)
        except ConfigError:
            continue
        found.append(length)
    return found


def problems(examples):
    """What is wrong with [task, length, question, answer], says a program that cannot import lengthwise."""
    command = [sys.executable, "-I", "-S", str(CHECKER)]
    done = subprocess.run(command, input=json.dumps(examples), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [problem for _, problem in json.loads(done.stdout)]


def drawn(task, length, count, seed=0, split="train"):
    return task.pairs(task.sample(generator(seed, length), count, length, split))


@each_task
def test_another_program_solves_two_thousand_samples(make):
    task = make()
    lengths = lengths_of(task)
    each = -(-2000 // (2 * len(lengths)))
    examples = [
        [make.__name__, length, question, answer]
        for length in lengths
        for split in ("train", "test")
        for question, answer in drawn(task, length, each, 3, split)
    ]
    assert len(examples) >= 2000
    assert problems(examples) == []


WORKED = [
    ("EvenPairs", "0 0 1 1 1 0", "0"),
    ("EvenPairs", "0 1 0 1 0 0 1", "1"),
    ("CycleNavigation", "+1 -1 0 -1 -1", "3"),
    ("ModularArithmetic", "1 + 2 * 3", "2"),
    ("ModularArithmetic", "1 - 1 - 1", "4"),
    ("ModularArithmetic", "0 * 1 + 4 * 3 - 2", "0"),
    ("ParityCheck", "1 0 1 0 1 0 0", "1"),
    ("StackManipulation", "0 1 1 0 PUSH1 POP POP", "1 1 0"),
    ("StackManipulation", "1 1 0 POP POP POP", ""),
    ("StackManipulation", "1 POP POP PUSH0 PUSH1", "1 0"),
    ("MissingDuplicate", "0 1 1 0 0 _ 1 0", "1"),
    ("OddsFirst", "1 1 0", "1 0 1"),
    ("OddsFirst", "0 0 1 1 0 1 0 1", "0 1 0 0 0 1 1 1"),
    ("BinaryAddition", "0 0 1 + 0 1 1 0 1", "0 1 0 1 1"),
    ("BinaryAddition", "1 0 0 1 + 0 0 0 0 0 1", "1 0 0 1 0 1"),
    ("BinaryMultiplication", "0 0 1 * 0 1 1 0 1", "0 0 0 1 1 0 1"),
    ("ComputeSqrt", "1 0 0 1 0 1", "1 1 0"),
    ("ComputeSqrt", "1 1 1", "1 0"),
    ("BucketSort", "1 0 2 0 4 1 1 2", "0 0 1 1 1 2 2 4"),
]


@pytest.mark.parametrize(("name", "question", "answer"), WORKED)
def test_worked_examples_of_the_paper_and_its_code(name, question, answer):
    task = TASKS.find(name)()
    assert isinstance(task, AnsweredTask)
    ids = torch.tensor([task.ids(question.split())])
    assert task.pairs(task.pack(Pairs(ids, task.answers(ids)))) == [(question.split(), answer.split())]
    assert problems([[name, len(question.split()), question.split(), answer.split()]]) == []


def test_the_other_program_finds_mistakes():
    wrong = [["OddsFirst", 3, ["1", "1", "0"], ["1", "1", "0"]], ["EvenPairs", 3, ["1", "1"], ["0"]]]
    assert problems(wrong) == [
        "OddsFirst 1 1 0 → 1 1 0: the answer is 1 0 1",
        "EvenPairs 1 1 → 0: 2 symbols instead of 3",
    ]


def test_the_levels_are_those_of_the_paper():
    assert Counter(make.level for make in MAKES) == {"regular": 4, "context-free": 4, "context-sensitive": 7}


@pytest.mark.parametrize(
    ("ours", "other", "names"),
    [
        (ParityCheck(), Parity(), {"0": "0", "1": "1", "Yes": "0", "No": "1"}),
        (ReverseString(), Reverse(symbols=2), {"a": "0", "b": "1"}),
        (BucketSort(), Sorting(symbols=5), dict(zip("01234", "01234", strict=True))),
    ],
    ids=["parity", "reverse", "sort"],
)
def test_the_tasks_that_docstrings_call_equal(ours, other, names):
    assert f"`{type(other).__name__}" in (type(ours).__doc__ or "")
    for question, answer in drawn(other, 9, 50):
        ids = torch.tensor([ours.ids([names[word] for word in question])])
        assert [ours.words[n] for n in ours.answers(ids)[0].tolist()] == [names[word] for word in answer]


# Hashes of the words of 100 drawn examples; tests/versions.json has only lengths whose questions are listed.
EXAMPLES = {
    "EvenPairs": "3a6e3c5783c6",
    "ModularArithmetic": "935490569100",
    "ParityCheck": "53869fb4aeea",
    "CycleNavigation": "b206c572911c",
    "StackManipulation": "7c8d4f29be1d",
    "ReverseString": "4b72a07aa3ad",
    "ModularArithmeticBrackets": "77671c603da0",
    "SolveEquation": "2926b9a968f1",
    "DuplicateString": "239308f64949",
    "MissingDuplicate": "acead3df2b0a",
    "OddsFirst": "d41ba4e2d90a",
    "BinaryAddition": "c73c878c6def",
    "BinaryMultiplication": "2773801c873b",
    "ComputeSqrt": "e1ef38c8e56f",
    "BucketSort": "058b94956a16",
}


@each_task
def test_another_draw_needs_another_version(make):
    task = make()
    (length,) = lengths_of(task, [20 - (20 - task.shortest) % task.length_step])
    words = [side for pair in drawn(task, length, 100) for side in pair]
    assert make.version == 1
    assert hashlib.sha256(repr(words).encode()).hexdigest()[:12] == EXAMPLES[make.__name__]


# ---- lengths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "length", "message"),
    [
        (EvenPairs, 0, "the number of symbols in a question of EvenPairs must be at least 1, got 0"),
        (ModularArithmetic, 4, "of ModularArithmetic must be an odd number, at least 1, got 4"),
        (ModularArithmetic, 0, "must be an odd number, at least 1, got 0"),
        (MissingDuplicate, 7, "of MissingDuplicate must be an even number, at least 2, got 7"),
        (SolveEquation, 2, "of SolveEquation must be at least 3, got 2"),
        (BinaryAddition, 2, "of BinaryAddition must be at least 3, got 2"),
    ],
)
def test_lengths_without_examples(make, length, message):
    task = make()
    for ask in (task.check_length, lambda n: task.sample(generator(0), 1, n), lambda n: task.examples(0, 1, n)):
        with pytest.raises(ConfigError, match=message):
            ask(length)


@pytest.mark.parametrize(
    ("make", "shortest", "longest", "lengths"),
    [
        (ModularArithmetic, 1, 9, {1, 3, 5, 7, 9}),
        (MissingDuplicate, 4, 8, {4, 6, 8}),
        (SolveEquation, 3, 6, {3, 4, 5, 6}),
        (EvenPairs, 5, 5, {5}),
    ],
)
def test_training_draws_existing_lengths_equally_often(make, shortest, longest, lengths):
    task, found = make(), Counter()
    for seed in range(400):
        batch = task.training_batch(generator(seed), 1, shortest, longest)
        found[len(task.pairs(batch)[0][0])] += 1
    assert found.keys() == lengths
    assert all(abs(count - 400 / len(lengths)) < 60 for count in found.values())
    numbered = task.fixed_examples(0, range(2 * len(lengths)), shortest, longest)
    assert Counter(len(question) for question, _ in task.pairs(numbered)) == dict.fromkeys(lengths, 2)


# ---- distributions ------------------------------------------------------------------------------------------------


def assert_uniform(counts, values):
    total = sum(counts.values())
    share = total / len(values)
    assert counts.keys() == set(values)
    assert all(abs(counts[value] - share) < 5 * share**0.5 for value in values), counts


def questions(task, length, count=4000):
    pairs = task.draw(generator(7), count, length)
    return [q for q, _ in task.pairs(task.pack(Pairs.join([pairs])))]


def test_sizes_of_stacks_are_uniform():
    sizes = Counter(sum(word in "01" for word in question) for question in questions(StackManipulation(), 12))
    assert_uniform(sizes, range(1, 12))


@pytest.mark.parametrize(("make", "sign"), [(BinaryAddition, "+"), (BinaryMultiplication, "*")])
def test_sizes_of_numbers_and_numbers_are_uniform(make, sign):
    found = questions(make(), 11, 8000)
    assert_uniform(Counter(question.index(sign) for question in found), range(1, 10))
    of_size_3 = Counter("".join(question[:3]) for question in found if question.index(sign) == 3)
    assert_uniform(of_size_3, ["".join(bits) for bits in itertools.product("01", repeat=3)][1:])


def test_roots_are_of_uniform_positive_numbers():
    found = Counter("".join(question) for question in questions(ComputeSqrt(), 4))
    assert_uniform(found, [f"{number:04b}" for number in range(1, 16)])


def test_the_missing_bit_can_be_anywhere():
    assert_uniform(Counter(question.index("_") for question in questions(MissingDuplicate(), 14)), range(14))


@pytest.mark.parametrize("signs", [2, 3])
def test_expressions_are_split_uniformly(signs):
    """The left part of an expression of 16 symbols has 1 to 12; signs and digits are uniform."""
    words, _ = draw_expressions(generator(2), 6000, 16, signs)
    left_sizes, sign_counts = Counter(), Counter()
    for row in words.tolist():
        depth = 0
        for place, word in enumerate(row[1:], 1):
            depth += (word == 8) - (word == 9)
            is_sign = word in (5, 6, 7) and depth == 0 and place > 1 and (row[place - 1] < 5 or row[place - 1] == 9)
            if is_sign:
                left_sizes[place - 1] += 1
                sign_counts[word] += 1
                break
    assert_uniform(left_sizes, range(1, 13))
    assert_uniform(sign_counts, range(5, 5 + signs))
    assert_uniform(Counter(words[words < 5].tolist()), range(5))


def test_each_digit_of_an_equation_is_replaced_equally_often():
    places = Counter()
    for question in questions(SolveEquation(), 20, 6000):
        digits = [word for word in question[:-2] if word in "01234x"]
        if len(digits) == 4:
            places[digits.index("x")] += 1
    assert_uniform(places, range(4))


def number_of_expressions(length, signs):
    if length < 5:
        return 5
    parts = range(1, length - 3)
    return signs * sum(number_of_expressions(n, signs) * number_of_expressions(length - 3 - n, signs) for n in parts)


@pytest.mark.parametrize("signs", [2, 3])
def test_short_expressions_are_listed(signs):
    for length in range(1, LONGEST_LISTED + 1):
        listed, _ = all_expressions(length, signs)
        assert len({tuple(row) for row in listed.tolist()}) == len(listed) == number_of_expressions(length, signs)
    assert all_expressions(LONGEST_LISTED + 1, signs) is None
    assert number_of_expressions(LONGEST_LISTED + 1, 3) > 4096


@pytest.mark.parametrize(
    ("make", "length", "count"),
    [
        (StackManipulation, 7, 3990),
        (StackManipulation, 8, None),
        (BinaryAddition, 10, 3084),
        (BinaryAddition, 11, None),
        (BinaryMultiplication, 3, 1),
        (ComputeSqrt, 12, 4095),
        (MissingDuplicate, 16, 4096),
        (ModularArithmetic, 5, 1125),
        (ModularArithmeticBrackets, 9, 2475),
        (SolveEquation, 11, 3300),
        (CycleNavigation, 7, 2187),
    ],
)
def test_the_number_of_listed_questions(make, length, count):
    """Counted by hand, for example stacks: the sum of 2^s 3^(7 - s) over sizes s from 1 to 6."""
    listed = make().all_examples(length)
    assert (listed if listed is None else len(listed)) == count


# ---- scores -------------------------------------------------------------------------------------------------------


def batch_of(task, *pairs):
    width = max(len(answer.split()) for _, answer in pairs)
    answers = [[*task.ids(answer.split()), *[-1] * (width - len(answer.split()))] for _, answer in pairs]
    return task.pack(Pairs(torch.tensor([task.ids(q.split()) for q, _ in pairs]), torch.tensor(answers)))


def predictions(task, batch, mistakes):
    """Logits that are correct except at these (row, place in the answer) pairs, where they prefer BOS."""
    targets = batch.targets.clone()
    for row, place in mistakes:
        targets[row, int(batch.scored[row].nonzero()[place])] = task.bos
    return one_hot(targets, task.output_size).float()


def test_scores_by_hand():
    task = OddsFirst()
    batch = batch_of(task, ("1 1 0 0", "1 0 1 0"), ("0 0 0 1", "0 0 0 1"), ("0 0 1 1", "0 1 0 1"))
    logits = predictions(task, batch, [(0, 1), (0, 2), (1, 4)])  # the last one is EOS, which the question determines
    assert task.score(logits, batch).tolist() == [0.5, 1.0, 1.0]
    assert task.further_scores(logits, batch)["exact match"].tolist() == [0.0, 0.0, 1.0]
    logits[2, 0] = torch.nan  # not scored
    assert task.score(logits, batch).tolist() == [0.5, 1.0, 1.0]
    logits[2, 6] = torch.nan
    assert task.score(logits, batch).isnan().tolist() == [False, False, True]


def test_the_end_of_an_answer_of_any_length_is_scored():
    task = StackManipulation()
    batch = batch_of(task, ("1 1 POP POP", ""), ("0 1 1 PUSH0", "0 1 1 0"), ("0 1 POP PUSH1", "1 0"))
    logits = predictions(task, batch, [(0, 0), (1, 4), (2, 0)])
    assert task.score(logits, batch).tolist() == pytest.approx([0.0, 4 / 5, 2 / 3])
    graded = task.grade([[], ["0", "1", "1", "0", "[...]"], ["1", "1"]], batch)
    assert graded.scores.tolist() == pytest.approx([1.0, 4 / 5, 2 / 3])
    assert graded.details["exact match"].tolist() == [1.0, 0.0, 0.0]


def test_answers_of_fixed_length_are_graded_without_their_end():
    task = OddsFirst()
    batch = batch_of(task, *[("1 1 0 0", "1 0 1 0")] * 4)
    graded = task.grade([["1", "0", "1", "0"], ["1", "0"], ["1", "0", "1", "0", "1"], []], batch)
    assert graded.scores.tolist() == [1.0, 0.5, 1.0, 0.0]
    assert graded.details["exact match"].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_baseline_by_hand():
    """After SEP, 0 is the most frequent token; after 0, 1 is (3 of 5 times); after 1, the end or 0 is."""
    task = StackManipulation()
    batch = batch_of(
        task, ("0 1 0 PUSH0", "0 0 1 0"), ("1 0 1 POP", "0 1"), ("0 1 1 POP", "1 0"), ("1 0 PUSH1 POP", "0 1")
    )
    (baseline,) = task.baselines()
    # transitions: SEP→0 3, SEP→1 1; 0→0 1, 0→1 3, 0→EOS 2; 1→0 2, 1→EOS 2 (the smaller ID wins)
    assert baseline.floor
    assert baseline.scores(batch, [4])[:, 0].tolist() == pytest.approx([3 / 5, 2 / 3, 1 / 3, 2 / 3])


def test_the_baseline_knows_what_teacher_forcing_gives_away():
    """On sorted sequences the last symbol continues, except at up to four places; on bits it is a guess."""
    for make, low, high in ((BucketSort, 0.94, 0.97), (ReverseString, 0.49, 0.53), (CycleNavigation, 0.18, 0.27)):
        task = make()
        batch = task.examples(0, 400, 100)
        share = untrained.baseline_scores(task, batch, [100])["most frequent token"][100]
        assert low < share < high, make.__name__


def test_a_subclass_with_another_metric_has_no_baselines():
    other = type("Other", (EvenPairs,), {"metric": Metric(name="own", better="higher")})
    assert other().baselines() == []


def test_an_evaluation_stores_exact_matches_beside_the_accuracy():
    run = Run(
        encoding=choose(NoPE),
        task=choose(StackManipulation),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=4),
    )
    model, task = build(run)
    config = EvaluationConfig(lengths=(2, 5), examples=60)
    one_pass = evaluate(model, task, config)
    decoded = evaluate(model, task, config, decode=True)
    for score, generated in zip(one_pass, decoded, strict=True):
        assert score.metric == "token accuracy"
        assert score.details["order"] == ["exact match"]
        assert score.details["means"].keys() == {"exact match"}
        assert score.details["means"] == generated.details["means"]  # greedy decoding is right where one pass is
        assert [baseline["name"] for baseline in score.details["baselines"]] == ["most frequent token"]
    assert one_pass[0].details["means"]["exact match"] < 1
