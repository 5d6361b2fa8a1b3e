"""`lengthwise lengths`: count the lengths of the examples in a data set or of a stored run."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lengthwise.cli.options import FileOrHyphen, Place
from lengthwise.cli.printing import one_line, plain_table, print_json, stdout
from lengthwise.config import ConfigError
from lengthwise.machine_memory import limited_to_machine

if TYPE_CHECKING:
    from lengthwise.analysis.lengths import Histogram

ROWS = 40  # maximal rows of the table; more lengths are binned
BAR_WIDTH = 40  # columns of the longest bars of a row together
KEY = re.compile("[0-9a-fA-F]+")


def command(file: FileOrHyphen, /, *, field: str = "input", place: Place = Place(), json: bool = False) -> int:
    """Count the lengths of a data set's examples: a file of JSON lines, or a stored run's training and test examples.

    Counts of a run are stored and shown in the report. `lengthwise sample scan --all --json` prints a task as JSON
    lines.

    Example: lengthwise lengths data.jsonl --field target; lengthwise sample pcfg --all --json | lengthwise lengths -;
    lengthwise lengths 3f9a

    Args:
        file: A file with one JSON object per line, - for standard input, or a run's key (or its first digits).
        field: Field to count: the number of words of a text (input, target), or the value of a whole number (length).
        json: Print JSON with one entry per length.
    """
    if KEY.fullmatch(file) and not Path(file).exists():
        return _show_run(file, field, place, json)
    if file != "-" and (not file or not Path(file).exists() or Path(file).is_dir()):
        problem = "it is a folder" if file and Path(file).is_dir() else "there is no such file"
        raise ConfigError(
            "lengths needs a file of JSON lines, - for standard input, or a run's key "
            f"(`lengthwise list runs{place.option}`), got {file!r}: {problem}"
        )
    if file == "-":
        histogram = _read(sys.stdin.buffer, "standard input", field)
    else:
        with open(file, "rb") as lines:
            histogram = _read(lines, file, field)
    if json:
        print_json({"field": field, **_data(histogram)}, indent=None)
    else:
        print_table(f"{one_line(field)}, length", {"examples": histogram})
        print(f"\n{_sentence(histogram, 'examples')}")
    return 0


def _show_run(key: str, field: str, place: Place, json: bool) -> int:
    from lengthwise.analysis.lengths import Histogram
    from lengthwise.measurements import Table
    from lengthwise.measurements.example_lengths import WORDS, ExampleLengths
    from lengthwise.store import StoreError
    from lengthwise.studies.probing import lengths_of

    try:
        store = place.open()
        with store, limited_to_machine("cpu"):
            row = store.run(key)
            answer = lengths_of(store, row, field)
    except StoreError as error:
        raise StoreError(f"there is no file {key}, and if it is a run's key: {error}") from None
    counts: dict[str, dict[int, int]] = {"training": {}, "test": {}}
    for cells in Table.from_data(answer.rows):
        counts[cells["split"]][cells["length"]] = cells["count"]
    train, test = Histogram(counts["training"]), Histogram(counts["test"])
    if json:
        drawn = answer.question.get("examples")
        print_json(
            {"run": row.key, "field": field, "drawn": drawn, "train": _data(train), "test": _data(test)}, indent=None
        )
    else:
        print_table(WORDS.get(field, row.unit), {"train": train, "test": test})
        origin = ExampleLengths().texts(answer.question)["origin"]
        print(f"\n{one_line(f'{row.label}, {row.task}, seed {row.seed}')}: {origin}")
        print(_sentence(train, "training examples"))
        print(_sentence(test, "test examples"))
    return 0


def _data(histogram: "Histogram") -> dict[str, Any]:
    return {
        "examples": histogram.total,
        "mean": histogram.mean,
        "median": histogram.median,
        "shortest": histogram.shortest,
        "longest": histogram.longest,
        "lengths": histogram.counts,
    }


def _read(lines: IO[bytes], name: str, field: str) -> "Histogram":
    from lengthwise.analysis.lengths import lengths

    try:
        return lengths(lines, field)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}; name another file") from error


def print_table(unit: str, histograms: "dict[str, Histogram]") -> None:
    """Print the lengths of one or two sets of examples side by side; each bar shows a share of its own set."""
    from lengthwise.analysis.lengths import Histogram

    together = sum((Counter(one.counts) for one in histograms.values()), Counter())
    bins = [(first, last) for first, last, _ in Histogram(dict(sorted(together.items()))).bins(ROWS)]
    rows = [[(one.between(*ends), one.total) for one in histograms.values()] for ends in bins]
    highest = max(count / total for row in rows for count, total in row)
    table = plain_table()
    for header in (unit, *(text for name in histograms for text in (name, "share", ""))):
        table.add_column(header, justify="right" if header else "left", no_wrap=True)
    for (first, last), row in zip(bins, rows, strict=True):
        cells = []
        for count, total in row:
            bar = "█" * round(BAR_WIDTH / len(row) * count / total / highest) or "▏"
            cells += [f"{count:,}", f"{count / total:.1%}", bar] if count else ["", "", ""]
        table.add_row(f"{first}" if first == last else f"{first}–{last}", *cells)
    stdout().print(table)


def _sentence(histogram: "Histogram", examples: str) -> str:
    """Return a summary such as `3 examples, lengths 1 to 2, median 2, mean 1.7`."""
    if histogram.total == 1:
        return f"1 {examples.removesuffix('s')} of length {histogram.shortest}"
    if histogram.shortest == histogram.longest:
        return f"{histogram.total:,} {examples}, all of length {histogram.shortest}"
    return (
        f"{histogram.total:,} {examples}, lengths {histogram.shortest} to {histogram.longest}, "
        f"median {histogram.median}, mean {histogram.mean:.1f}"
    )
