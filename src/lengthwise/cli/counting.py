"""`lengthwise lengths`: how long the examples of a data set are, or those of a stored run."""

import re
import sys
from pathlib import Path
from typing import IO, Any

from lengthwise.analysis.lengths import ExampleLengths, Histogram, lengths, of_row
from lengthwise.cli.printing import print_json, shown, stdout
from lengthwise.config import ConfigError

ROWS = 40  # of the table; more lengths share them
BAR = 40  # columns of the longest bar
HALF = 16  # where there are two
KEY = re.compile("[0-9a-fA-F]+")


def show_lengths(file: str, field: str, results: str, json: bool) -> int:
    if KEY.fullmatch(file) and not Path(file).exists():
        return _show_run(file, field, results, json)
    if file == "-":
        found = _read(sys.stdin.buffer, "standard input", field)
    else:
        with open(file, "rb") as lines:
            found = _read(lines, file, field)
    if json:
        print_json({"field": field, **_data(found)}, indent=None)
    else:
        _table(found, field)
    return 0


def _show_run(key: str, field: str, results: str, json: bool) -> int:
    from lengthwise.store import StoreError, open_results
    from lengthwise.studies.probing import lengths_of

    try:
        store = open_results(results, create=False)
        with store:
            row = store.run(key)
            found = of_row(lengths_of(store, row, field))
    except StoreError as error:
        raise StoreError(f"{key} is no file here, and as a run's key: {error}") from None
    if json:
        parts = {"train": _data(found.train), "test": _data(found.test)}
        print_json({"run": row.key, "field": field, "drawn": found.drawn, **parts}, indent=None)
    else:
        _two(found, f"{row.label}, {row.task}, seed {row.seed}")
    return 0


def _data(found: Histogram) -> dict[str, Any]:
    of = {"examples": found.total, "mean": found.mean, "median": found.median}
    return {**of, "shortest": found.shortest, "longest": found.longest, "lengths": found.counts}


def _read(lines: IO[bytes], name: str, field: str) -> Histogram:
    try:
        return lengths(lines, field)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _table(found: Histogram, field: str) -> None:
    from rich.table import Table
    from rich.text import Text

    bins = found.bins(ROWS)
    highest = max(count for _, _, count in bins)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in (Text(f"{shown(field)}, length"), "examples", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for first, last, count in bins:
        bar = Text("█" * round(BAR * count / highest) or "▏")
        table.add_row(_between(first, last), f"{count:,}", f"{count / found.total:.1%}", bar)
    stdout().print(table)
    print(f"\n{_sentence(found, 'examples')}")


def _two(found: ExampleLengths, name: str) -> None:
    """Training examples beside test examples, each bar a share of its own split."""
    from rich.table import Table
    from rich.text import Text

    bins = found.bins(ROWS)
    highest = max(max(train / found.train.total, test / found.test.total) for *_, train, test in bins)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in (f"{found.field}, length", "train", "", "test", ""):
        table.add_column(head, justify="right" if head else "left", no_wrap=True)
    for first, last, *counts in bins:
        cells: list[str | Text] = []
        for count, whole in zip(counts, (found.train.total, found.test.total), strict=True):
            bar = "█" * round(HALF * count / whole / highest) or ("▏" if count else "")
            cells += [f"{count:,}" if count else "", Text(bar)]
        table.add_row(_between(first, last), *cells)
    stdout().print(table)
    print(
        f"\n{shown(name)}: {found.origin}\n{_sentence(found.train, 'training examples')}\n{_sentence(found.test, 'test examples')}"
    )


def _between(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}–{last}"


def _sentence(found: Histogram, what: str) -> str:
    """`3 examples of 1 to 2; half have at most 2, the mean is 1.7`."""
    if found.total == 1:
        return f"1 {what.removesuffix('s')}, of {found.shortest}"
    if found.shortest == found.longest:
        return f"{found.total:,} {what}, all of {found.shortest}"
    return (
        f"{found.total:,} {what} of {found.shortest} to {found.longest}; half have at most {found.median}, "
        f"the mean is {found.mean:.1f}"
    )
