"""Group the stored rows of probes: what may be averaged, by encoding, and where the numbers come from."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lengthwise.analysis.differences import flat
from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.protocol import canonical

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

Rows = Sequence["ProbeRow"]


@dataclass(frozen=True, kw_only=True)
class ProbeSeries:
    """What a probe says about an encoding, over its `seeds`, which is the number of its runs."""

    label: str
    seeds: int


S = TypeVar("S", bound=ProbeSeries)


@dataclass(frozen=True, kw_only=True)
class ProbeSummary(Generic[S]):
    """What a probe says about encodings that were asked the same.

    `asked`: the question, as stored. `result`: that of one run, for what all have in common. `n`: the smallest number of examples;
    0 without examples. `lengths`: the lengths that the numbers are means over, if any. `facts`: the origin of the numbers, flat.
    """

    asked: Mapping[str, Any]
    result: Mapping[str, Any]
    n: int
    lengths: tuple[int, ...]
    series: tuple[S, ...]
    facts: Mapping[str, Any]

    @property
    def one_seed(self) -> bool:
        return any(series.seeds == 1 for series in self.series)


def summary_fields(
    rows: Rows, labels: Mapping[str, str], series: Callable[[str, list[list["ProbeRow"]]], ProbeSeries]
) -> dict[str, Any]:
    """Return the fields of a `ProbeSummary` of these rows. `series` has a label and the rows of each of its runs."""
    return {
        "asked": rows[0].asked,
        "result": rows[0].result,
        "n": min(row.result.get("n", 0) for row in rows),
        "lengths": tuple(sorted({row.asked["length"] for row in rows if "length" in row.asked})),
        "series": tuple(series(label, runs) for label, runs in runs_by_label(rows, labels).items()),
        "facts": joint_facts(rows),
    }


def by_question(rows: Iterable["ProbeRow"], without: Sequence[str] = ()) -> list[list["ProbeRow"]]:
    """Group the rows by what was asked, whatever the members `without` are."""
    groups: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in rows:
        groups[canonical({name: value for name, value in row.asked.items() if name not in without})].append(row)
    return list(groups.values())


def at_common_lengths(rows: Rows) -> list[list["ProbeRow"]]:
    """Return the rows at the lengths that all runs (or pairs of runs) have in common.

    Without any, group the runs that have the same lengths.
    """

    def who(row: "ProbeRow") -> Hashable:
        return row.key, row.asked.get("against")

    asked: dict[Hashable, set[int]] = defaultdict(set)
    for row in rows:
        asked[who(row)].add(row.asked["length"])
    if common := set.intersection(*asked.values()):
        return [[row for row in rows if row.asked["length"] in common]]
    parts = dict.fromkeys(map(frozenset, asked.values()))
    return [[row for row in rows if asked[who(row)] == part] for part in parts]


def runs_by_label(rows: Rows, labels: Mapping[str, str]) -> dict[str, list[list["ProbeRow"]]]:
    """Return the rows of each run, by the label of its encoding, both in the order of `labels`."""
    of_run: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in rows:
        of_run[row.key].append(row)
    found: dict[str, list[list[ProbeRow]]] = defaultdict(list)
    for key, label in labels.items():
        if key in of_run:
            found[label].append(of_run[key])
    return found


def joint_facts(rows: Rows) -> dict[str, Any]:
    """Return the facts of all rows, flat. Where they differ, the value is a list of all values."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        for name, value in flat(row.facts).items():
            found[name][canonical(value)] = value
    return {name: next(iter(v.values())) if len(v) == 1 else list(v.values()) for name, v in found.items()}


def share_over_seeds(values: Sequence[float]) -> Interval:
    """Return the interval of a share over seeds. A single seed has none: queries of one model are not independent samples."""
    return over_seeds(values, (0.0, 1.0)) if len(values) > 1 else over_examples(values[0], math.nan)


def shares_over_seeds(seeds: Iterable[Sequence[float]]) -> tuple[Interval, ...]:
    """Return the interval of each of several shares, which every seed has."""
    return tuple(map(share_over_seeds, zip(*seeds, strict=True)))


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def mean_of(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the means of the columns."""
    return tuple(map(mean, zip(*rows, strict=True)))


def nan_for_none(values: Iterable[float | None]) -> tuple[float, ...]:
    """Return the values with NaN for None."""
    return tuple(math.nan if value is None else value for value in values)
