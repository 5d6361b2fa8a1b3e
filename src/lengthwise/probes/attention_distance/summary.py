"""Stored attention distances to means and intervals over seeds."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.gather import canonical
from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.probe_rows import at_common_lengths, by_label, by_run, joint_facts, of_one_shape
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

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
class AttentionDistanceSummary:
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


def summarize(answers: StoredAnswers) -> tuple[AttentionDistanceSummary, ...]:
    """Return the stored distances, by reference, way of pairing and question."""
    labels, runs = answers.labels, answers.runs
    groups: dict[str, dict[str, list[ProbeRow]]] = defaultdict(lambda: defaultdict(list))
    for row in answers.rows:
        other = runs.get(str(row.asked.get("against")))
        if other is None:
            continue
        reference = labels.get(other.key, other.label)
        baseline = reference == labels[row.key]
        same = {name: value for name, value in row.asked.items() if name not in ("against", "length")}
        # The distances between a reference's seeds are shown with both ways of pairing the other encodings.
        kind = None if baseline else runs[row.key].seed != other.seed
        groups[canonical([reference, same])][canonical(kind)].append(row)
    found = []
    for name, by_kind in groups.items():
        reference, _ = json.loads(name)
        own = by_kind.pop("null", [])
        for which, rows in by_kind.items() or [("true", [])]:
            found += _summaries(labels, reference, json.loads(which), [*rows, *own])
    return tuple(found)


def _summaries(
    labels: Mapping[str, str], reference: str, across: bool, rows: Sequence["ProbeRow"]
) -> list[AttentionDistanceSummary]:
    summaries = []
    for lengths, some in at_common_lengths(of_one_shape(rows), lambda row: (row.key, row.asked["against"])):
        first = some[0].asked
        # The published divergence, half the sum of KL(M‖P) and KL(M‖Q), is not negative either; it has no upper end.
        bounds = (0.0, LN2 if first["variant"] == "jensen-shannon" else math.inf)
        of_run = by_run(some)
        series = tuple(
            DistanceSeries(
                label=label,
                baseline=label == reference,
                layers=tuple(_layer(layer, [of_run[key] for key in keys], bounds) for layer in _layers(some)),
                seeds=len(keys),
            )
            for label, keys in by_label(labels, of_run).items()
        )
        summaries.append(
            AttentionDistanceSummary(
                reference=reference,
                variant=first["variant"],
                across=across,
                examples=first["examples"],
                n=min(row.result["n"] for row in some),
                lengths=lengths,
                series=series,
                facts=joint_facts(some),
            )
        )
    return summaries


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
