"""A fixed training set: the same examples every epoch, each once, in another order; nothing is stored."""

import json
from collections import Counter

import pytest
import torch

from lengthwise.analysis.protocol import training_set
from lengthwise.config import ConfigError, Curriculum, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, NoPE
from lengthwise.measurements.example_lengths import ExampleLengthsOptions, length_rows
from lengthwise.tasks import PCFG, PFA, SCAN, Addition, Conjunction, Copy, LinearRegression, Parity, Text
from lengthwise.tasks.base import Batch
from lengthwise.tasks.sequences import SequenceTask
from lengthwise.training import build, check_training, train
from lengthwise.training.trainer import Trainer, fixed_numbers

MODEL = ModelConfig(d_model=8, num_layers=1, num_heads=1)


def a_run(task=Copy, encoding=NoPE, seed=3, settings=None, **training) -> Run:
    return Run(
        encoding=choose(encoding),
        task=choose(task, **(settings or {})),
        model=MODEL,
        training=TrainingConfig(**{"train_length": 9, "min_length": 4, "steps": 12, "batch_size": 8, **training}),
        seed=seed,
    )


def batches(run, steps=None):
    trainer = Trainer(run, *build(run), torch.device("cpu"))
    for trainer.steps_done in range(steps or run.training.steps):
        yield trainer.batch()


def words(run, batch):
    task = run.task.build()
    assert isinstance(task, SequenceTask)
    return [(tuple(question), tuple(answer)) for question, answer in task.pairs(batch)]


def examples(run, steps=None):
    """The examples that training reads, one after the other."""
    return [example for batch in batches(run, steps) for example in words(run, batch)]


@pytest.mark.parametrize("size", [24, 29])  # a whole number of batches, and epochs that end within one
@pytest.mark.parametrize("task", [Copy, Addition])
def test_every_epoch_has_each_example_once_in_another_order(task, size):
    run = a_run(task, train_examples=size, steps=20)
    read = examples(run)
    epochs = [read[n : n + size] for n in range(0, len(read) - size + 1, size)]
    assert len(epochs) >= 5
    assert len(set(epochs[0])) == size  # so long that none is drawn twice
    assert all(set(epoch) == set(epochs[0]) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == len(epochs)
    assert len(set(examples(a_run(task, steps=20)))) > 2 * size  # fresh ones


def test_numbers_of_a_step_are_a_function_of_seed_and_step():
    run = a_run(train_examples=29)
    told = [fixed_numbers(run, step) for step in range(12)]
    assert [fixed_numbers(run, step) for step in reversed(range(12))] == told[::-1]
    assert sorted([n for numbers in told for n in numbers][:29]) == list(range(29))
    other = [fixed_numbers(a_run(train_examples=29, seed=4), step) for step in range(12)]
    assert other != told


def test_lengths_are_equally_frequent_and_mixed_within_a_batch():
    run = a_run(train_examples=48)
    assert Counter(len(question) for question, _ in examples(run, 6)) == dict.fromkeys(range(4, 10), 8)
    sizes = [{len(question) for question, _ in words(run, batch)} for batch in batches(run)]
    assert all(len(some) > 1 for some in sizes)


def test_the_set_depends_on_the_task_and_the_seed_alone():
    def found(**more):
        return set(examples(a_run(**{"train_examples": 48, **more}), 6))

    assert found() == found(encoding=FIRE) == found(steps=500, batch_size=8)
    assert not found() & found(seed=4)
    assert found() <= found(train_examples=96) | set(examples(a_run(train_examples=96), 12))


def test_a_batch_of_several_lengths_is_filled_up_where_nothing_is_scored():
    task = Copy(symbols=5)
    whole = task.fixed_examples(0, [0, 1, 2], 3, 5)
    alone = [task.fixed_examples(0, [n], 3, 5) for n in range(3)]
    assert [len(question) for question, _ in task.pairs(whole)] == [3, 4, 5]
    assert task.pairs(whole) == [task.pairs(one)[0] for one in alone]
    assert whole.scored.sum(1).tolist() == [4, 5, 6]
    joined = Batch.join(alone)
    assert joined.scored.equal(whole.scored)
    assert joined.targets[whole.scored].equal(whole.targets[whole.scored])


@pytest.mark.parametrize(
    ("task", "settings"),
    [(PFA, {}), (Text, {"path": "python"}), (LinearRegression, {"dims": 3}), (Conjunction, {"dims": 3})],
)
def test_tasks_without_words(task, settings):
    lengths = {"min_length": 9} if settings.get("dims") else {}
    run = a_run(task, settings=settings, train_examples=24, **lengths)
    first, second = (torch.cat([b.targets for b in padded(list(batches(run, 6))[n : n + 3])]) for n in (0, 3))
    assert len({tuple(row) for row in first.tolist()}) > 18
    assert sorted(first.tolist()) == sorted(second.tolist())
    assert not first.equal(second)


def padded(some):
    whole = Batch.join(some)
    return [whole[n : n + 1] for n in range(len(whole))]


def test_where_there_are_few_questions_some_have_several_numbers():
    run = a_run(Parity, train_length=4, min_length=3, train_examples=80, steps=20)
    first, second = examples(run, 10), examples(run, 20)[80:]
    assert Counter(first) == Counter(second)
    assert len(set(first)) < 24 and max(Counter(first).values()) > 2
    assert first != second


def test_a_given_set_is_numbered_itself():
    """All of its examples are read once in each epoch, if so many are asked for; of fewer always the same."""
    task = SCAN(split="tr25")
    count = len(task.training_examples(1, 5))
    run = a_run(SCAN, settings={"split": "tr25"}, train_length=5, min_length=1, train_examples=count, batch_size=64)
    read = examples(run, 2 * count // 64)
    assert count > 300
    assert len(set(read[:count])) == count
    assert set(read[count:]) <= set(read[:count])
    few = a_run(SCAN, settings={"split": "tr25"}, train_length=5, min_length=1, train_examples=64)
    assert set(examples(few, 8)) == set(examples(few, 16)) <= set(read[:count])
    assert len(set(examples(few, 8))) == 64


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_examples": 0}, "train_examples must be at least 8"),
        ({"train_examples": -5}, "train_examples must be at least 8 .* got -5"),
        ({"train_examples": 7}, r"at least 8 \(a batch"),
        (
            {"train_examples": 9, "min_length": 1, "train_length": 20},
            "at least 20 \\(a batch, and an example of each length\\)",
        ),
        ({"train_examples": True}, "train_examples"),
        ({"train_examples": "many"}, "train_examples"),
        ({"train_examples": 40, "min_length": 9, "curriculum": Curriculum(length=3)}, "omit one of them"),
    ],
)
def test_sets_that_cannot_be(change, says):
    with pytest.raises(ConfigError, match=says):
        a_run(**change)


@pytest.mark.parametrize(
    ("task", "settings", "length", "says"),
    [
        (
            SCAN,
            {"split": "tr25"},
            (1, 5),
            r"SCAN has no more training examples of 1 to 5 actions",
        ),
        (PCFG, {}, (1, 2), "PCFG has no more training examples of 1 to 2 functions"),
        (LinearRegression, {"dims": 3}, (4, 9), "must have one length, got 4 to 9; leave min_length out"),
    ],
)
def test_sets_that_a_task_has_not_got(task, settings, length, says, tmp_path):
    shortest, longest = length
    run = a_run(task, settings=settings, min_length=shortest, train_length=longest, train_examples=10**6)
    with pytest.raises(ConfigError, match=says):
        train(run, tmp_path)
    model, built = build(run)
    with pytest.raises(ConfigError, match=says):
        check_training(run, built, model.max_length)


def test_it_is_part_of_the_key():
    plain, fixed = a_run(), a_run(train_examples=100)
    assert len({plain.key, fixed.key, a_run(train_examples=101).key}) == 3
    assert plain.to_data()["training"]["train_examples"] is None
    assert Run.from_data(json.loads(json.dumps(fixed.to_data()))) == fixed


def test_what_is_said_of_it():
    assert training_set(a_run().to_data()["training"]) == "new examples at every step"
    config = TrainingConfig(train_length=20, steps=40_000, batch_size=64, train_examples=100_000)
    assert training_set(config.to_data()) == "100,000 fixed examples, 25.6 epochs"


def test_its_lengths_are_counted():
    options = ExampleLengthsOptions(field="length", examples=1000, lengths=(4,))
    rows = [row for row in length_rows(a_run(train_examples=12), options) if row["split"] == "training"]
    assert {row["length"]: row["count"] for row in rows} == dict.fromkeys(range(4, 10), 2)
    given = a_run(SCAN, settings={"split": "tr25"}, train_length=5, min_length=1, train_examples=40)
    counts = Counter[str]()
    for row in length_rows(given, ExampleLengthsOptions(field="length")):
        counts[row["split"]] += row["count"]
    assert counts["training"] == 40
    assert counts["test"] > 3000


@pytest.mark.medium
def test_training_repeats_the_set(tmp_path):
    """A model learns eight examples by heart; fresh ones it does not."""
    settings = {"learning_rate": 1e-2, "steps": 150, "min_length": 9, "schedule": "constant"}
    fixed = train(a_run(train_examples=8, **settings), tmp_path / "fixed").curve[-1]["loss"]
    fresh = train(a_run(**settings), tmp_path / "fresh").curve[-1]["loss"]
    assert fixed < fresh - 0.5
