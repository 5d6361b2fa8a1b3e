"""Statistics of attention from stored probes: means and intervals over seeds, as plain data."""

import json
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.store import StoreWarning

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow, RunRow

DISTANCE, ATTENDED = "attention-distance", "attended-distance"
LN2 = math.log(2)


@dataclass(frozen=True, kw_only=True)
class DistanceSeries:
    """An encoding's distance from the reference in each layer, first to last, in nats. `seeds`: the number of runs.

    `baseline`: whether these are the reference's own runs, compared with its runs of other seeds.
    """

    label: str
    baseline: bool
    layers: tuple[Interval, ...]
    seeds: int

    @property
    def mean(self) -> float:
        return math.fsum(layer.mean for layer in self.layers) / len(self.layers)


@dataclass(frozen=True, kw_only=True)
class Distances:
    """Comparable distances: from runs of one reference encoding, by one measure, on the same examples.

    For each run, they are means over `lengths`, and at each length over at most `examples` test examples (`n`: the smallest actual
    number). `across`: whether a run and its reference have different seeds. `variant`: "jensen-shannon" or "published". `facts`:
    the origin of the numbers, flat.
    """

    reference: str
    variant: str
    across: bool
    examples: int
    n: int
    lengths: tuple[int, ...]
    series: tuple[DistanceSeries, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AttendedSeries:
    """How far back an encoding's runs attend, over all layers, heads and lengths.

    `most`: the share of queries whose highest logit lies in each bin of the normalized distance. `mass`: the share of the weights
    in each bin. `queries`: the number of queries of all runs.
    """

    label: str
    most: tuple[Interval, ...]
    mass: tuple[Interval, ...]
    seeds: int
    queries: int


@dataclass(frozen=True, kw_only=True)
class AttendedDistances:
    """How far back heads attend, for encodings with the same question. Bin n of N has the distances from n/N up to (n + 1)/N."""

    examples: int
    n: int
    lengths: tuple[int, ...]
    series: tuple[AttendedSeries, ...]
    facts: Mapping[str, Any]


def distances(
    labels: Mapping[str, str], probes: Iterable["ProbeRow"], runs: Mapping[str, "RunRow"]
) -> tuple[Distances, ...]:
    """Return the stored distances of the runs in `labels` (by key). `runs` also contains the runs that they are compared with."""
    groups: dict[str, dict[str, list[ProbeRow]]] = defaultdict(lambda: defaultdict(list))
    for row in probes:
        other = runs.get(str(row.asked.get("against")))
        if row.asked["probe"] != DISTANCE or row.key not in labels or other is None:
            continue
        reference = labels.get(other.key, other.label)
        baseline = reference == labels[row.key]
        same = {name: value for name, value in row.asked.items() if name not in ("against", "length")}
        # The distances between a reference's seeds are shown with both ways of pairing the other encodings.
        kind = None if baseline else runs[row.key].seed != other.seed
        groups[_canonical([reference, same])][_canonical(kind)].append(row)
    found = []
    for name, by_kind in groups.items():
        reference, _ = json.loads(name)
        own = by_kind.pop("null", [])
        for which, rows in by_kind.items() or [("true", [])]:
            found += _distances(labels, reference, json.loads(which), [*rows, *own])
    return tuple(found)


def attended(labels: Mapping[str, str], probes: Iterable["ProbeRow"]) -> tuple[AttendedDistances, ...]:
    """Return the stored attended distances of the runs in `labels` (by key)."""
    groups: dict[str, list[ProbeRow]] = defaultdict(list)
    for row in probes:
        if row.asked["probe"] == ATTENDED and row.key in labels:
            groups[_canonical({name: value for name, value in row.asked.items() if name != "length"})].append(row)
    return tuple(found for rows in groups.values() for found in _attended(labels, rows))


# ---- groups -------------------------------------------------------------------------------------------------------


def _distances(labels: Mapping[str, str], reference: str, across: bool, rows: Sequence["ProbeRow"]) -> list[Distances]:
    made = []
    for lengths, some in _at_common_lengths(of_one_shape(rows), lambda row: (row.key, row.asked["against"])):
        first = some[0].asked
        # The published divergence, half the sum of KL(M‖P) and KL(M‖Q), is not negative either; it has no upper end.
        bounds = (0.0, LN2 if first["variant"] == "jensen-shannon" else math.inf)
        by_run: dict[str, list[ProbeRow]] = defaultdict(list)
        for row in some:
            by_run[row.key].append(row)
        series = tuple(
            DistanceSeries(
                label=label,
                baseline=label == reference,
                layers=tuple(_layer(layer, [by_run[key] for key in keys], bounds) for layer in _layers(some)),
                seeds=len(keys),
            )
            for label, keys in _by_label(labels, by_run).items()
        )
        made.append(
            Distances(
                reference=reference,
                variant=first["variant"],
                across=across,
                examples=first["examples"],
                n=min(row.result["n"] for row in some),
                lengths=lengths,
                series=series,
                facts=_facts(some),
            )
        )
    return made


def _layers(rows: Sequence["ProbeRow"]) -> range:
    return range(min(len(row.result["layers"]) for row in rows))


def _layer(layer: int, runs: Sequence[Sequence["ProbeRow"]], bounds: tuple[float, float]) -> Interval:
    """Return the interval over runs in one layer. Each run counts with the mean over its questions."""

    def numbers(rows: Sequence["ProbeRow"], name: str) -> list[float]:
        found = (row.result[name][layer] for row in rows)
        return [math.nan if value is None else value for value in found]

    means = [math.fsum(values) / len(values) for values in (numbers(rows, "layers") for rows in runs)]
    if len(means) > 1:
        return over_seeds(means, bounds)
    errors = numbers(runs[0], "standard_errors")
    return over_examples(means[0], math.sqrt(math.fsum(e * e for e in errors)) / len(errors), bounds)


def _attended(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> list[AttendedDistances]:
    made = []
    for lengths, some in _at_common_lengths(of_one_shape(rows), lambda row: row.key):
        by_run: dict[str, list[ProbeRow]] = defaultdict(list)
        for row in some:
            by_run[row.key].append(row)
        series = []
        for label, keys in _by_label(labels, by_run).items():
            shares = [_shares(by_run[key]) for key in keys]
            series.append(
                AttendedSeries(
                    label=label,
                    most=_bins([most for most, _ in shares]),
                    mass=_bins([mass for _, mass in shares]),
                    seeds=len(keys),
                    queries=sum(row.result["queries"] for key in keys for row in by_run[key]),
                )
            )
        first = some[0].asked
        n = min(row.result["n"] for row in some)
        made.append(
            AttendedDistances(
                examples=first["examples"], n=n, lengths=lengths, series=tuple(series), facts=_facts(some)
            )
        )
    return made


def _shares(rows: Sequence["ProbeRow"]) -> tuple[list[float], list[float]]:
    """Return one run's shares of highest logits and of weights in each bin. All queries have the same weight."""
    queries = sum(row.result["queries"] for row in rows)
    most, mass = [0.0] * rows[0].result["bins"], [0.0] * rows[0].result["bins"]
    for row in rows:
        heads = [head for layer in row.result["most"] for head in layer]
        weights = [head for layer in row.result["mass"] for head in layer]
        for n in range(len(most)):
            most[n] += sum(head[n] for head in heads) / len(heads) / queries
            mass[n] += sum(head[n] for head in weights) / len(heads) * row.result["queries"] / queries
    return most, mass


def _bins(shares: Sequence[Sequence[float]]) -> tuple[Interval, ...]:
    """Return the intervals over seeds. A single seed has none, because queries of one model are not independent samples."""
    columns = zip(*shares, strict=True)
    if len(shares) == 1:
        return tuple(over_examples(column[0], math.nan) for column in columns)
    return tuple(over_seeds(column, (0.0, 1.0)) for column in columns)


def _at_common_lengths(rows: Sequence["ProbeRow"], who: Any) -> list[tuple[tuple[int, ...], list["ProbeRow"]]]:
    """Return the rows at the lengths that all runs have in common. Without any, group the runs that have the same lengths."""
    asked: dict[Any, set[int]] = defaultdict(set)
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


def _by_label(labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, list[str]]:
    """Group the keys by label, both in the order of `labels`."""
    there = set(keys)
    found: dict[str, list[str]] = defaultdict(list)
    for key, label in labels.items():
        if key in there:
            found[label].append(key)
    return dict(found)


def _facts(rows: Sequence["ProbeRow"]) -> dict[str, Any]:
    """Return the facts of all rows, flat. Where they differ, the value is a list of all values."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in rows:
        for name, value in _flat(row.facts):
            found[name][_canonical(value)] = value
    return {name: next(iter(v.values())) if len(v) == 1 else list(v.values()) for name, v in found.items()}


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
