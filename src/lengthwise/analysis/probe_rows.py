"""Group the stored rows of probes: what may be averaged, by encoding, and where the numbers come from."""

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.gather import canonical, flat
from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.store import StoreWarning

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


def at_common_lengths(
    rows: Sequence["ProbeRow"], who: Callable[["ProbeRow"], Hashable]
) -> list[tuple[tuple[int, ...], list["ProbeRow"]]]:
    """Return the rows at the lengths that all runs have in common. Without any, group the runs that have the same lengths."""
    asked: dict[Hashable, set[int]] = defaultdict(set)
    for row in rows:
        asked[who(row)].add(row.asked["length"])
    if not asked:
        return []
    common = set.intersection(*asked.values())
    parts = [common] if common else [set(some) for some in dict.fromkeys(frozenset(s) for s in asked.values())]
    return [
        (
            tuple(sorted(part)),
            [row for row in rows if row.asked["length"] in part and (common or asked[who(row)] == part)],
        )
        for part in parts
    ]


def of_one_shape(rows: Sequence["ProbeRow"]) -> list["ProbeRow"]:
    """Return the rows whose result has the most common shape, and warn about the others.

    Results with other numbers of layers, heads or positions cannot be averaged, and runs of the same task and model have none.
    """
    shapes = [_shape(row.result) for row in rows]
    usual = Counter(shapes).most_common(1)[0][0] if shapes else ""
    for row, shape in zip(rows, shapes, strict=True):
        if shape != usual:
            line = f"probes: skipped the row {row.key!r}, whose result has another shape than those of the other runs"
            warnings.warn(StoreWarning(line), stacklevel=2)
    return [row for row, shape in zip(rows, shapes, strict=True) if shape == usual]


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{_shape(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return f"[{','.join(map(_shape, value))}]"
    if isinstance(value, list):
        return f"[{len(value)}{_shape(value[0]) if value else ''}]"
    return ""


def by_label(labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, list[str]]:
    """Group the keys by label, both in the order of `labels`."""
    there = set(keys)
    found: dict[str, list[str]] = defaultdict(list)
    for key, label in labels.items():
        if key in there:
            found[label].append(key)
    return dict(found)


def joint_facts(rows: Sequence["ProbeRow"]) -> dict[str, Any]:
    """Return the facts of all rows, flat. Where they differ, the value is a list of all values."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        for name, value in flat(row.facts).items():
            found[name][canonical(value)] = value
    return {name: next(iter(v.values())) if len(v) == 1 else list(v.values()) for name, v in found.items()}


def by_question(rows: Iterable["ProbeRow"], without: Sequence[str] = ()) -> list[list["ProbeRow"]]:
    """Group the rows by what was asked, whatever the members `without` are."""
    groups: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in rows:
        groups[canonical({name: value for name, value in row.asked.items() if name not in without})].append(row)
    return list(groups.values())


def by_run(rows: Iterable["ProbeRow"]) -> dict[str, list["ProbeRow"]]:
    """Group the rows by the key of their run."""
    groups: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in rows:
        groups[row.key].append(row)
    return dict(groups)


def share_over_seeds(values: Sequence[float]) -> Interval:
    """Return the interval of a share over seeds. A single seed has none: queries of one model are not independent samples."""
    return over_seeds(values, (0.0, 1.0)) if len(values) > 1 else over_examples(values[0], math.nan)


def results_by_label(
    labels: Mapping[str, str], rows: Sequence["ProbeRow"]
) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """Yield each encoding's label and the results of its runs."""
    of_run = {row.key: row.result for row in rows}
    for label, keys in by_label(labels, of_run).items():
        yield label, [of_run[key] for key in keys]


def mean_of(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the means of the columns."""
    return tuple(math.fsum(column) / len(column) for column in zip(*rows, strict=True))


def nan_for_none(values: Iterable[float | None]) -> tuple[float, ...]:
    """Return the values with NaN for None."""
    return tuple(math.nan if value is None else value for value in values)
