"""`lengthwise sample`: examples of a task, some or all of them."""

import json as notation
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lengthwise.cli.printing import print_json, shown
from lengthwise.config import ConfigError
from lengthwise.tasks import TASKS, Batch, Task, generator
from lengthwise.tasks.contract import require_kept
from lengthwise.tasks.pairs import Pairs
from lengthwise.tasks.sequences import SequenceTask

PLACES = 1_000_000  # tokens of all examples together: some megabytes of text
MOST = 100_000
LENGTH, COUNT, SEED = 10, 3, 0  # where nothing is said
AT_ONCE = 256  # rows that are made while others are printed


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What to print. None: as usual."""

    length: int | None = None
    count: int | None = None
    seed: int | None = None
    split: str | None = None
    published: str | None = None
    json: bool = False


def show_examples(word: str, asked: SampleOptions) -> int:
    """Print some examples."""
    count, seed, split = _or(asked.count, COUNT), _or(asked.seed, SEED), asked.split or "test"
    length = _or(asked.length, LENGTH)
    if not 1 <= count <= MOST:
        raise ConfigError(f"--count is {count}; it has to lie in 1 ... {MOST}")
    choice = TASKS.parse(word)
    task: Task = choice.build()
    _require_text(task, asked)
    task.check_length(length, split)
    require_kept(task, length)
    if (size := count * task.tokens(length)) > PLACES:
        raise ConfigError(
            f"{count} example{'s' if count > 1 else ''} of length {length} would be {size:,} tokens, and sample prints at most "
            f"{PLACES:,}; take a shorter length or fewer of them"
        )
    if split == "test":  # what an evaluation with that seed asks
        batch = task.examples(seed, count, length, split)
    else:
        batch = task.sample(generator(seed, split, 0), count, length, split)
    about = {"task": choice.label, "split": split, "seed": seed}
    for number, row in enumerate(_rows(task, batch, asked)):
        _print({**about, "number": number, **row}, asked)
    if not asked.json:
        said = f"{choice.label}: length {length} {task.unit if length > 1 else task.unit.removesuffix('s')}, {split}, seed {seed}"
        notes = [note for note in (task.note(length),) if note]
        if len(batch) < count:
            notes.append(f"there are only {len(batch)} different ones")
        print(shown("; ".join([said, *notes])))
    return 0


def show_all(word: str, asked: SampleOptions) -> int:
    """Print all examples of a task that is a given set, or all of one length where they can be listed."""
    for name in ("count", "seed"):
        if (value := getattr(asked, name)) is not None:
            raise ConfigError(
                f"--{name} {value} is for some examples, and --all prints every one; leave one of them out"
            )
    choice = TASKS.parse(word)
    task: Task = choice.build()
    if not isinstance(task, SequenceTask):
        raise ConfigError(f"{choice.name} cannot list all of its examples; leave --all out, --count prints some")
    _require_text(task, asked)
    lengths = task.lengths() if asked.length is None else [asked.length]
    if asked.length is not None and asked.split is not None:
        task.check_length(asked.length, asked.split)  # a given set may have the length in its other split alone
    counts: Counter[str] = Counter()
    for split, pairs in _listed(task, [LENGTH] if lengths is None else lengths):
        if asked.split is None or asked.split in split.split(" and "):
            for row in _rows(task, task.pack(pairs), asked):
                _print({"task": choice.label, "split": split, "number": counts.total(), **row}, asked)
                counts[split] += 1
    if not asked.json:
        print(f"{shown(choice.label)}: {'; '.join(f'{split} {number}' for split, number in counts.items())}")
    return 0


def _listed(task: SequenceTask, lengths: Any) -> Iterator[tuple[str, Pairs]]:
    for length in lengths:
        for split, pairs in task.whole(length).items():
            for begin in range(0, len(pairs), AT_ONCE):
                yield split, pairs[begin : begin + AT_ONCE]


def _rows(task: Task, batch: Batch, asked: SampleOptions) -> list[dict[str, Any]]:
    rows = task.render(batch)
    if not asked.published:
        return rows
    assert isinstance(task, SequenceTask)
    return [
        {**text, "length": row["length"]} for row, text in zip(rows, task.texts(batch, asked.published), strict=True)
    ]


def _print(row: dict[str, Any], asked: SampleOptions) -> None:
    if asked.json:
        print_json(row, indent=None)
        return
    begin = f"{row['number']}"
    for name in ("prompt", "separator", "target") if asked.published else ("input", "target"):
        # Spaces at the end belong to the published text: quotes show them.
        text = notation.dumps(row[name], ensure_ascii=False) if asked.published else row[name]
        print(f"{begin}  {name:{9 if asked.published else 6}}  {shown(text)}")
        begin = " " * len(begin)


def _require_text(task: Task, asked: SampleOptions) -> None:
    if asked.published and not isinstance(task, SequenceTask):
        others = [make.__name__ for make in TASKS if issubclass(make, SequenceTask)]
        raise ConfigError(
            f"{type(task).__name__} has no published text; leave --published out, or take one of: {', '.join(others)}"
        )


def _or(value: int | None, usual: int) -> int:
    return usual if value is None else value
