"""How long the examples of a run are: those it trains on beside those it is tested on. No model is asked."""

from collections import Counter
from typing import Any

from lengthwise.config import ConfigError, Run, near_miss
from lengthwise.tasks.base import Batch, generator
from lengthwise.tasks.sequences import SequenceTask

FIELDS = ("input", "target", "length")
DRAWN = 1000  # examples of each split, where they are no given set

ProbeQuestion = dict[str, Any]


def lengths_question(run: Run, field: str, tested: list[int]) -> ProbeQuestion:
    """What names the answer: the words of questions (`input`), of answers (`target`), or the task's own `length`.

    Where the task is a given set every example counts. Otherwise 1,000 are drawn as training draws them, and as many test
    examples of the lengths `tested`, about as many of each.
    """
    if field not in FIELDS:
        raise ConfigError(
            f"there is no field {field!r}{near_miss(field, FIELDS)}; of a run there are: {', '.join(FIELDS)}"
        )
    task = _words(run)
    if task.lengths() is not None:
        return {"probe": "lengths", "field": field}
    if not tested:
        raise ConfigError(
            f"no study asks anything of run {run.key[:8]} ({run.label}), so it has no test examples to count"
        )
    return {"probe": "lengths", "field": field, "examples": DRAWN, "lengths": sorted(set(tested))}


def ask_lengths(run: Run, asked: ProbeQuestion) -> dict[str, dict[str, int]]:
    """How many examples have which length, by split: {"train": {"3": 10, ...}, "test": {...}}, the shortest first.

    Training examples are those of the lengths that the run trains on; of a fixed training set, the set's own.
    """
    task, field = _words(run), asked["field"]
    shortest, longest = run.training.min_length or run.training.train_length, run.training.train_length
    train: Counter[int] = Counter()
    test: Counter[int] = Counter()
    fixed = run.training.train_examples
    if fixed is not None:
        count = min(fixed, asked.get("examples", fixed))
        for begin in range(0, count, DRAWN):  # so many at a time: a set may be large
            numbers = range(begin, min(begin + DRAWN, count))
            train += _counted(task, task.fixed_examples(run.seed, numbers, shortest, longest), field)
    for length in task.lengths() or ():
        whole = task.whole(length)
        if fixed is None and "train" in whole and shortest <= length <= longest:
            train += _counted(task, task.pack(whole["train"]), field)
        if "test" in whole:
            test += _counted(task, task.pack(whole["test"]), field)
    if "examples" in asked:
        draws = generator(run.seed, "lengths")
        for _ in range(asked["examples"] if fixed is None else 0):  # one by one, for a batch has one length
            train += _counted(task, task.training_batch(draws, 1, shortest, longest), field)
        each = -(-asked["examples"] // len(asked["lengths"]))
        for length in asked["lengths"]:
            test += _counted(task, task.examples(0, each, length), field)
    return {"train": _plain(train), "test": _plain(test)}


def _counted(task: SequenceTask, batch: Batch, field: str) -> Counter[int]:
    """How many examples of a batch (BOS question SEP answer EOS, the answer and EOS scored) have which length."""
    if field == "length":
        return Counter(task.length_of(question, answer) for question, answer in task.pairs(batch))
    sizes = batch.scored.int().argmax(1) - 1 if field == "input" else batch.scored.sum(1) - 1
    return Counter(sizes.tolist())


def _words(run: Run) -> SequenceTask:
    task = run.task.build()
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"{run.task.name} has no questions and answers to count the words of: its sequences are as long as they are asked for"
        )
    return task


def _plain(counts: Counter[int]) -> dict[str, int]:
    return {str(length): count for length, count in sorted(counts.items())}
