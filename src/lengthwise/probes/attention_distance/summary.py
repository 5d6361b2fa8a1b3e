"""Stored attention distances to means and intervals over seeds."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    at_common_lengths,
    mean,
    mean_of,
    nan_for_none,
    summary_fields,
)
from lengthwise.analysis.protocol import canonical
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

LN2 = math.log(2)


@dataclass(frozen=True, kw_only=True)
class DistanceSeries(ProbeSeries):
    """An encoding's distance from the reference in each layer, first to last, in nats.

    `baseline`: whether these are the reference's own runs, compared with its runs of other seeds.
    """

    baseline: bool
    layers: tuple[Interval, ...]

    @property
    def mean(self) -> float:
        return mean([layer.mean for layer in self.layers])

    @property
    def name(self) -> str:
        return f"{self.label} (another seed)" if self.baseline else self.label


@dataclass(frozen=True, kw_only=True)
class AttentionDistanceSummary(ProbeSummary[DistanceSeries]):
    """Comparable distances: from runs of one reference encoding, by one measure, on the same examples.

    `across`: whether a run and its reference have different seeds.
    """

    reference: str
    across: bool


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
            for some in at_common_lengths([*rows, *own]):
                fields = summary_fields(some, labels, partial(_series, reference))
                found.append(AttentionDistanceSummary(reference=reference, across=json.loads(which), **fields))
    return tuple(found)


def _series(reference: str, label: str, runs: "Sequence[Sequence[ProbeRow]]") -> DistanceSeries:
    """Return the intervals over runs in each layer. Each run counts with the mean over its questions."""
    # The published divergence, half the sum of KL(M‖P) and KL(M‖Q), is not negative either; it has no upper end.
    bounds = (0.0, LN2 if runs[0][0].asked["variant"] == "jensen-shannon" else math.inf)
    means = [mean_of([nan_for_none(row.result["layers"]) for row in rows]) for rows in runs]
    if len(runs) > 1:
        layers = [over_seeds(layer, bounds) for layer in zip(*means, strict=True)]
    else:
        errors = zip(*(nan_for_none(row.result["standard_errors"]) for row in runs[0]), strict=True)
        pooled = [math.sqrt(math.fsum(e * e for e in layer)) / len(layer) for layer in errors]
        layers = [over_examples(*layer, bounds) for layer in zip(means[0], pooled, strict=False)]
    return DistanceSeries(label=label, seeds=len(runs), baseline=label == reference, layers=tuple(layers))
