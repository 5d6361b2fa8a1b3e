"""`lengthwise sample`: print some or all examples of a task."""

import json as json_module
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from lengthwise.cli.options import FLATTENED, Integer
from lengthwise.cli.printing import one_line, print_json
from lengthwise.config import ConfigError

if TYPE_CHECKING:
    from lengthwise.tasks import Batch, Task
    from lengthwise.tasks.pairs import Pairs
    from lengthwise.tasks.sequences import SequenceTask

MAX_TOKENS = 1_000_000  # of all examples together, which are some megabytes of text
MAX_COUNT = 100_000
LENGTH, COUNT, SEED = 10, 3, 0  # defaults
CHUNK = 256  # examples that are generated before they are printed


@FLATTENED
@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The options of the command. None stands for the default."""

    length: Integer | None = None
    """Length in the task's unit. [default: 10; with --all, every length of a task with a fixed data set (SCAN, PCFG)]
    """
    count: Integer | None = None
    """Number of examples. [default: 3]"""
    seed: Integer | None = None
    """Seed of the examples. In the test split, they are those of an evaluation with this seed. [default: 0]"""
    split: Literal["train", "test"] | None = None
    """Split to draw from. No example is in both splits, except at lengths with too few examples to divide (only 6
    commands of SCAN have one action); there, both splits contain all of them. [default: test; with --all, both]"""
    all: bool = False
    """Print all examples, if the task has a fixed data set or the length has few enough of them."""
    published: Literal["paper", "repository"] | None = None
    """Print the prompt, separator and target texts of the published study: as its paper prints them, or as its
    repository generates them for its runs."""
    json: bool = False
    """Print one JSON object per line."""


def command(task: str, /, *, options: SampleOptions = SampleOptions()) -> int:
    """Print examples of a task. The same seed prints the same examples.

    Example: lengthwise sample copy:symbols=10 --length 5 --count 3; lengthwise sample scan --all --json

    Args:
        task: The task, optionally with settings: copy or copy:symbols=10.
    """
    return (show_all if options.all else show_examples)(task, options)


def show_examples(task_name: str, options: SampleOptions) -> int:
    """Print some examples."""
    from lengthwise.tasks import TASKS, generator
    from lengthwise.tasks.contract import require_consistent

    count = COUNT if options.count is None else options.count
    seed = SEED if options.seed is None else options.seed
    length = LENGTH if options.length is None else options.length
    split = options.split or "test"
    if not 1 <= count <= MAX_COUNT:
        raise ConfigError(f"--count must be from 1 to {MAX_COUNT}, got {count}")
    choice = TASKS.parse(task_name)
    task: Task = choice.build()
    _require_published_text(task, options)
    task.check_length(length, split)
    require_consistent(task, length)
    if (size := count * task.tokens(length)) > MAX_TOKENS:
        raise ConfigError(
            f"{count} example{'s' if count > 1 else ''} of length {length} would be {size:,} tokens, but sample prints "
            f"at most {MAX_TOKENS:,}; use a shorter length or fewer examples"
        )
    if split == "test":  # the examples of an evaluation with this seed
        batch = task.examples(seed, count, length, split)
    else:
        batch = task.sample(generator(seed, split, 0), count, length, split)
    common = {"task": choice.label, "split": split, "seed": seed}
    for number, row in enumerate(_rows(task, batch, options)):
        _print({**common, "number": number, **row}, options)
    if not options.json:
        unit = task.unit if length > 1 else task.unit.removesuffix("s")
        notes = [f"{choice.label}: length {length} {unit}, {split}, seed {seed}"]
        if note := task.note(length):
            notes.append(note)
        if len(batch) < count:
            notes.append(f"there are only {len(batch)} different examples")
        print(one_line("; ".join(notes)))
    return 0


def show_all(task_name: str, options: SampleOptions) -> int:
    """Print all examples of a task with a fixed data set, or all of one length if the task can list them."""
    from lengthwise.tasks import TASKS
    from lengthwise.tasks.sequences import SequenceTask

    for name in ("count", "seed"):
        if (value := getattr(options, name)) is not None:
            raise ConfigError(f"--all prints every example, so it cannot be combined with --{name} {value}; omit one")
    choice = TASKS.parse(task_name)
    task: Task = choice.build()
    if not isinstance(task, SequenceTask):
        raise ConfigError(f"{choice.name} cannot list all of its examples; use --count instead of --all")
    _require_published_text(task, options)
    lengths = task.lengths() if options.length is None else [options.length]
    if options.length is not None and options.split is not None:
        task.check_length(options.length, options.split)  # a fixed data set may have the length only in its other split
    counts: Counter[str] = Counter()
    for split, pairs in _all_pairs(task, [LENGTH] if lengths is None else lengths):
        if options.split is None or options.split in split.split(" and "):
            for row in _rows(task, task.pack(pairs), options):
                _print({"task": choice.label, "split": split, "number": counts.total(), **row}, options)
                counts[split] += 1
    if not options.json:
        print(f"{one_line(choice.label)}: {'; '.join(f'{split} {number}' for split, number in counts.items())}")
    return 0


def _all_pairs(task: "SequenceTask", lengths: Any) -> "Iterator[tuple[str, Pairs]]":
    for length in lengths:
        for split, pairs in task.whole(length).items():
            for start in range(0, len(pairs), CHUNK):
                yield split, pairs[start : start + CHUNK]


def _rows(task: "Task", batch: "Batch", options: SampleOptions) -> list[dict[str, Any]]:
    rows = task.render(batch)
    if not options.published:
        return rows
    texts = cast("SequenceTask", task).texts(batch, options.published)
    return [{**text, "length": row["length"]} for row, text in zip(rows, texts, strict=True)]


def _print(row: dict[str, Any], options: SampleOptions) -> None:
    if options.json:
        print_json(row, indent=None)
        return
    prefix = f"{row['number']}"
    for name in ("prompt", "separator", "target") if options.published else ("input", "target"):
        # Quotes show the trailing spaces of published texts.
        text = json_module.dumps(row[name], ensure_ascii=False) if options.published else row[name]
        print(f"{prefix}  {name:{9 if options.published else 6}}  {one_line(text)}")
        prefix = " " * len(prefix)


def _require_published_text(task: "Task", options: SampleOptions) -> None:
    from lengthwise.tasks import TASKS
    from lengthwise.tasks.sequences import SequenceTask

    if options.published and not isinstance(task, SequenceTask):
        names = [make.__name__ for make in TASKS if issubclass(make, SequenceTask)]
        raise ConfigError(
            f"{type(task).__name__} has no published text; omit --published, or use one of: {', '.join(names)}"
        )
