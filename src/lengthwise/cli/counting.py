"""`lengthwise lengths`: how long the examples of a data set are."""

import sys
from typing import IO

from lengthwise.analysis.lengths import Histogram, lengths
from lengthwise.cli.printing import print_json, stdout
from lengthwise.config import ConfigError

ROWS = 40  # of the table; more lengths share them
BAR = 40  # columns of the longest bar


def show_lengths(file: str, field: str, json: bool) -> int:
    if file == "-":
        found = _read(sys.stdin.buffer, "standard input", field)
    else:
        with open(file, "rb") as lines:
            found = _read(lines, file, field)
    if json:
        of = {"examples": found.total, "mean": found.mean, "median": found.median}
        between = {"shortest": found.shortest, "longest": found.longest}
        print_json({"field": field, **of, **between, "lengths": found.counts}, indent=None)
    else:
        _table(found, field)
    return 0


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
    for name in (f"{field}, length", "examples", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for first, last, count in bins:
        length = f"{first}" if first == last else f"{first}–{last}"
        bar = "█" * round(BAR * count / highest) or "▏"
        table.add_row(Text(length), f"{count:,}", f"{count / found.total:.1%}", Text(bar))
    stdout().print(table)
    print(
        f"\n{found.total:,} examples of {found.shortest} to {found.longest}; half have at most {found.median}, "
        f"the mean is {found.mean:.1f}"
    )
