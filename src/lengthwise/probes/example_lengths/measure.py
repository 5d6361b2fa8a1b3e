"""Count the lengths of a run's training and test examples. No model is needed."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from lengthwise.config import ConfigError, Run
from lengthwise.probes.example_lengths import ExampleLengthsQuestion
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.sequences import SequenceTask

SAMPLE_SIZE = 1000  # examples of each split, unless the task has a fixed data set


def lengths_question(run: Run, field: str, test_lengths: Collection[int]) -> ExampleLengthsQuestion:
    """Return the question about a run.

    If the task has a fixed data set, all examples are counted. Otherwise 1,000 are drawn as in training, and about as many test
    examples, in equal numbers for each of `test_lengths`.
    """
    question = ExampleLengthsQuestion(field=field)
    if _sequence_task(run).lengths() is not None:
        return question
    if not test_lengths:
        raise ConfigError(f"no study evaluates run {run.key[:8]} ({run.label}), so it has no test examples to count")
    return replace(question, examples=SAMPLE_SIZE, lengths=tuple(sorted(set(test_lengths))))


def count_lengths(run: Run, question: ExampleLengthsQuestion) -> dict[str, dict[str, int]]:
    """Return the number of examples by split and length, shortest first: {"train": {"3": 10, ...}, "test": {...}}.

    Training examples have the lengths that the run trains on. With a fixed training set, they are the examples of that set.
    """
    task, field = _sequence_task(run), question.field
    shortest, longest = run.training.min_length or run.training.train_length, run.training.train_length
    train: Counter[int] = Counter()
    test: Counter[int] = Counter()
    fixed = run.training.train_examples
    if fixed is not None:
        count = fixed if question.examples is None else min(fixed, question.examples)
        for start in range(0, count, SAMPLE_SIZE):  # in chunks, because a set may be large
            numbers = range(start, min(start + SAMPLE_SIZE, count))
            train += _count(task, task.fixed_examples(run.data_seed, numbers, shortest, longest), field)
    for length in task.lengths() or ():
        splits = task.whole(length)
        if fixed is None and "train" in splits and shortest <= length <= longest:
            train += _count(task, task.pack(splits["train"]), field)
        if "test" in splits:
            test += _count(task, task.pack(splits["test"]), field)
    if question.examples is not None and question.lengths is not None:
        draws = generator(run.seed, "lengths")
        for _ in range(question.examples if fixed is None else 0):  # one by one, because a batch has one length
            train += _count(task, task.training_batch(draws, 1, shortest, longest), field)
        per_length = -(-question.examples // len(question.lengths))
        for length in question.lengths:
            test += _count(task, task.examples(0, per_length, length), field)
    return {"train": _sorted(train), "test": _sorted(test)}


def _count(task: SequenceTask, batch: Batch, field: str) -> Counter[int]:
    """Return the number of examples by length. A batch has BOS question SEP answer EOS, with answer and EOS scored."""
    if field == "length":
        return Counter(task.length_of(question, answer) for question, answer in task.pairs(batch))
    sizes = batch.scored.int().argmax(1) - 1 if field == "input" else batch.scored.sum(1) - 1
    return Counter(sizes.tolist())


def _sequence_task(run: Run) -> SequenceTask:
    task = run.task.build()
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"{run.task.name} has no questions and answers whose words could be counted; name a run of another task"
        )
    return task


def _sorted(counts: Counter[int]) -> dict[str, int]:
    return {str(length): count for length, count in sorted(counts.items())}
