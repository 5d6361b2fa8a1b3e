"""Histograms of the lengths of examples, from JSON lines."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lengthwise.values import ConfigError, near_miss

WIDTHS = (1, 2, 5)  # of bins, times a power of ten


@dataclass(frozen=True)
class Histogram:
    """The number of examples of each length. `counts` is never empty, has no zeros, and ascends by length."""

    counts: dict[int, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def shortest(self) -> int:
        return min(self.counts)

    @property
    def longest(self) -> int:
        return max(self.counts)

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self.counts.items()) / self.total

    @property
    def median(self) -> int:
        """Return the shortest length that at least half of the examples do not exceed."""
        below = itertools.accumulate(self.counts.values())
        return next(length for length, count in zip(self.counts, below, strict=True) if 2 * count >= self.total)

    def bins(self, most: int) -> list[tuple[int, int, int]]:
        """First length, last length and count of at most `most` bins of one width (1, 2, 5, 10, 20, ...).

        Bins of width 1 are the lengths that occur; wider ones begin at multiples of their width, and empty ones are
        left out.
        """
        if len(self.counts) <= most:
            return [(length, length, count) for length, count in self.counts.items()]
        for width in (digit * 10**power for power in itertools.count() for digit in WIDTHS):
            counts: Counter[int] = Counter()
            for length, count in self.counts.items():
                counts[length // width * width] += count
            if len(counts) <= most:
                return [(first, first + width - 1, count) for first, count in counts.items()]
        raise AssertionError("one bin holds everything")

    def between(self, first: int, last: int) -> int:
        """How many examples have a length of first ... last."""
        return sum(count for length, count in self.counts.items() if first <= length <= last)


def lengths(lines: Iterable[bytes], field: str) -> Histogram:
    """Return the lengths of one field in a data set of JSON lines: the words of a text, or the value of a whole number.

    Empty lines are skipped. Raises `ConfigError`, with the line's number from 1, for a line that is not a JSON object
    or lacks the field, and if there are no lines.
    """
    counts = Counter(_length(line, field, number) for number, line in enumerate(lines, 1) if line.strip())
    if not counts:
        raise ConfigError("it must contain at least one example, one JSON object per line")
    return Histogram(dict(sorted(counts.items())))


def _length(line: bytes, field: str, number: int) -> int:
    where = f"line {number}"
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not UTF-8 text (at byte {error.start + 1})") from None
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {getattr(error, 'msg', error)}: {_beginning(line)}") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is {_named(row)}; it has to be a JSON object with the field {field!r}")
    if field not in row:
        there = f"it has: {', '.join(map(str, row))}" if row else "it is empty"
        raise ConfigError(f"{where} has no field {field!r}{near_miss(field, row)}; {there}")
    value = row[field]
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ConfigError(f"{where}: {field} is {_named(value)}; it has to be a text or a whole number, not below 0")


def _named(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)[:40]


def _beginning(line: bytes) -> str:
    text = line.decode().strip()
    return repr(text if len(text) <= 40 else f"{text[:40]}...")
