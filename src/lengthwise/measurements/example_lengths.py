"""The lengths of a run's training and test examples, which need no model."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.base import Chart, Measurement, Number, Numbers, Options, key, value
from lengthwise.measurements.table import Row, Table

if TYPE_CHECKING:
    from lengthwise.tasks.base import Batch
    from lengthwise.tasks.sequences import SequenceTask

SAMPLE_SIZE = 1000  # examples of each split, unless the task has a fixed data set
WORDS = {
    "input": "words per question",
    "target": "words per answer",
}  # what a field counts; the task's own unit for "length"


@dataclass(frozen=True, kw_only=True)
class ExampleLengthsOptions(Options):
    """The words of the questions (`field` is "input"), the words of the answers ("target"), or the task's "length".

    `examples` and `lengths`: how many training examples are drawn, and for which lengths test examples are drawn;
    None if all examples of a fixed data set are counted.
    """

    field: Literal["input", "target", "length"]
    examples: int | None = None
    lengths: tuple[int, ...] | None = None


class ExampleLengths(Measurement):
    """The number of training and test examples of each length. Counted by `lengthwise lengths KEY`, without models."""

    name = "lengths"
    Options = ExampleLengthsOptions
    columns = (
        key("split", "training or test"),
        key("length", "length of examples"),
        value("count", "number of examples", whole=True),
        value("share", "share of the examples", percent=True),
    )
    charts = (
        Chart(
            kind="bars",
            title="Lengths of examples: {field}",
            x="length",
            y="share",
            colour="split",
            how="sum",
            seeds="first",
            about="Share of the training examples and of the test examples, by {counted}; {origin}.",
        ),
    )
    tables = (
        Numbers(
            title="Number of examples by length",
            numbers=(Number(head="{length:,}", y="count", by=("length",)),),
            rows=("split",),
            first_seed=True,
        ),
    )
    chapter = "Lengths of examples"
    command = "lengthwise lengths KEY"

    def texts(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        drawn = "drawn at random; equally many test examples of each length, if there are enough"
        counted = WORDS.get(question["field"], "the length of the task")
        return {"counted": counted, "origin": drawn if "examples" in question else "all examples"}

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the share of each length in its split."""
        totals = answer.combined("count", ("split",), {}, "sum")
        return Table.from_rows(row | {"share": row["count"] / totals[row["split"],]} for row in answer)


def lengths_options(run: Run, field: str, test_lengths: Collection[int]) -> ExampleLengthsOptions:
    """Return the question about a run.

    If the task has a fixed data set, all examples are counted. Otherwise 1,000 are drawn as in training, and about
    as many test examples, in equal numbers for each of `test_lengths`.
    """
    options = ExampleLengthsOptions(field=field)  # type: ignore[arg-type]
    if _sequence_task(run).lengths() is not None:
        return options
    if not test_lengths:
        raise ConfigError(f"no study evaluates run {run.key[:8]} ({run.label}), so it has no test examples to count")
    return replace(options, examples=SAMPLE_SIZE, lengths=tuple(sorted(set(test_lengths))))


def length_rows(run: Run, options: ExampleLengthsOptions) -> Iterator[Row]:
    """Yield the number of examples by split and length, shortest first.

    Training examples have the lengths that the run trains on. With a fixed training set, they are the examples of
    that set.
    """
    from lengthwise.tasks.base import generator

    task, field = _sequence_task(run), options.field
    shortest, longest = run.training.min_length or run.training.train_length, run.training.train_length
    train: Counter[int] = Counter()
    test: Counter[int] = Counter()
    fixed = run.training.train_examples
    if fixed is not None:
        count = fixed if options.examples is None else min(fixed, options.examples)
        for start in range(0, count, SAMPLE_SIZE):  # in chunks, because a set may be large
            numbers = range(start, min(start + SAMPLE_SIZE, count))
            train += _count(task, task.fixed_examples(run.data_seed, numbers, shortest, longest), field)
    for length in task.lengths() or ():
        splits = task.whole(length)
        if fixed is None and "train" in splits and shortest <= length <= longest:
            train += _count(task, task.pack(splits["train"]), field)
        if "test" in splits:
            test += _count(task, task.pack(splits["test"]), field)
    if options.examples is not None and options.lengths is not None:
        draws = generator(run.seed, "lengths")
        for _ in range(options.examples if fixed is None else 0):  # one by one, because a batch has one length
            train += _count(task, task.training_batch(draws, 1, shortest, longest), field)
        per_length = -(-options.examples // len(options.lengths))
        for length in options.lengths:
            test += _count(task, task.examples(0, per_length, length), field)
    for split, counts in (("training", train), ("test", test)):
        if not counts:
            raise ConfigError(f"run {run.key[:8]} has no {split} examples to count")
        for length, count in sorted(counts.items()):
            yield {"split": split, "length": length, "count": count}


def _count(task: "SequenceTask", batch: "Batch", field: str) -> Counter[int]:
    """Return the number of examples by length. A batch has BOS question SEP answer EOS, with answer and EOS scored."""
    if field == "length":
        return Counter(task.length_of(question, answer) for question, answer in task.pairs(batch))
    sizes = batch.scored.int().argmax(1) - 1 if field == "input" else batch.scored.sum(1) - 1
    return Counter(sizes.tolist())


def _sequence_task(run: Run) -> "SequenceTask":
    from lengthwise.tasks.sequences import SequenceTask

    task = run.task.build()
    if not isinstance(task, SequenceTask):
        raise ConfigError(
            f"{run.task.name} has no questions and answers whose words could be counted; name a run of another task"
        )
    return task
