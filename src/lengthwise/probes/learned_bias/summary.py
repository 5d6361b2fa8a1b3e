"""Stored biases to local, flat and anti-local heads, and to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.probe_rows import ProbeSeries, ProbeSummary, by_question, mean, nan_for_none, summary_fields
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

KINDS = ("local", "flat", "anti-local", "mixed")
TOLERANCE = 0.05
"""How far the relative mean distance of a flat head may be from 1, and its weights from equal weights.

If the weights do not increase, or do not decrease, with the distance, the variation is at most |1 − r| · i / (i + 1), because such
weights are a mixture of equal weights on the nearest (or the farthest) keys. So a bias that only falls or only rises is never
"mixed". A bias that is linear in the distance is flat if it changes by less than 0.3 nats over all keys.
"""


@dataclass(frozen=True, kw_only=True)
class BiasSeries(ProbeSeries):
    """An encoding's biases for one query.

    `curves` [layer][head][n]: of the first seed, in nats, minus the bias at distance 0; NaN in layers without a bias. `kinds`: for
    each layer the number of heads of each of `KINDS`, over all seeds; None for layers without a bias. `relative`: for each layer
    the mean over its heads of the relative mean distance.
    """

    curves: tuple[tuple[tuple[float, ...], ...], ...]
    kinds: tuple[Mapping[str, int] | None, ...]
    relative: tuple[Interval | None, ...]


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[BiasSeries], ...]:
    """Return the stored biases, by the query's position."""
    rows = sorted(answers.rows, key=lambda row: row.asked["query"])
    return tuple(ProbeSummary(**summary_fields(group, answers.labels, _series)) for group in by_question(rows))


def kind_of(relative: float, variation: float) -> str:
    """Return the kind of a head, one of `KINDS`, or "" if a number is not finite.

    >>> kind_of(0.4, 0.3), kind_of(1.01, 0.02), kind_of(1.3, 0.2), kind_of(1.0, 0.4)
    ('local', 'flat', 'anti-local', 'mixed')
    """
    if not math.isfinite(relative) or not math.isfinite(variation):
        return ""
    if abs(relative - 1) > TOLERANCE:
        return "local" if relative < 1 else "anti-local"
    return "flat" if variation <= TOLERANCE else "mixed"


def kinds_of(result: Mapping[str, Any]) -> list[list[str]]:
    """Return the kind of every head, by layer."""
    layers = zip(result["relative_distance"], result["variation"], strict=True)
    return [[kind_of(*pair) for pair in zip(*map(nan_for_none, layer), strict=True)] for layer in layers]


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> BiasSeries:
    results = [row.result for (row,) in runs]
    by_layer = [[kind for layer in layers for kind in layer] for layers in zip(*map(kinds_of, results), strict=True)]
    relative = zip(*([_layer_mean(layer) for layer in r["relative_distance"]] for r in results), strict=True)
    return BiasSeries(
        label=label,
        seeds=len(runs),
        curves=tuple(tuple(map(_from_own, layer)) for layer in results[0]["bias"]),
        kinds=tuple({kind: kinds.count(kind) for kind in KINDS} if any(kinds) else None for kinds in by_layer),
        relative=tuple(map(_interval, relative)),
    )


def _layer_mean(heads: Sequence[float | None]) -> float:
    return mean(nan_for_none(heads))


def _from_own(bias: Sequence[float | None]) -> tuple[float, ...]:
    values = nan_for_none(bias)
    return tuple(value - values[0] for value in values)


def _interval(means: Sequence[float]) -> Interval | None:
    if not all(map(math.isfinite, means)):
        return None
    return over_seeds(means, (0.0, 2.0)) if len(means) > 1 else over_examples(means[0], math.nan)
