"""Stored recency to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    by_question,
    joint_facts,
    mean_of,
    nan_for_none,
    of_one_shape,
    results_by_label,
    share_over_seeds,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class RecencySeries:
    """An encoding's attention weights of the last x.

    `layers` [layer][label]: on the labels before it, farthest first, as means over heads and seeds. `recent`: in each layer, the
    share on the most recent tenth of the labels; 0.1 if all weights are equal. `best`: the largest such share of a head. `heads`
    [head][x]: for each kind of prompt, the weights on the x's, in the last layer of the first seed.
    """

    label: str
    seeds: int
    layers: tuple[tuple[float, ...], ...]
    recent: tuple[Interval, ...]
    best: Interval
    heads: Mapping[str, tuple[tuple[float, ...], ...]]


@dataclass(frozen=True, kw_only=True)
class RecencySummary:
    """Weights in prompts of `length` examples; `heads` also in prompts of `trained` examples and of `points` repeated ones."""

    length: int
    trained: int
    points: int
    repeats: int
    prompts: int
    series: tuple[RecencySeries, ...]
    facts: Mapping[str, Any]


def summarize(answers: StoredAnswers) -> tuple[RecencySummary, ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    return tuple(_summary(answers.labels, of_one_shape(rows)) for rows in by_question(answers.rows))


def recent(weights: Sequence[float], share: float = 0.1) -> float:
    """Return the share of the weights on the most recent tenth."""
    total = math.fsum(weights)
    return math.fsum(weights[-max(1, round(share * len(weights))) :]) / total if total else math.nan


def _summary(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> RecencySummary:
    series = []
    for label, results in results_by_label(labels, rows):
        layers = [[[nan_for_none(head) for head in layer] for layer in result["layers"]] for result in results]
        means = [[mean_of(layer) for layer in run] for run in layers]  # [run][layer][label]
        shares = [[[recent(head) for head in layer] for layer in run] for run in layers]
        series.append(
            RecencySeries(
                label=label,
                seeds=len(results),
                layers=tuple(mean_of([run[n] for run in means]) for n in range(len(means[0]))),
                recent=tuple(share_over_seeds([_mean(run[n]) for run in shares]) for n in range(len(shares[0]))),
                best=share_over_seeds([max(max(layer) for layer in run) for run in shares]),
                heads={kind: tuple(nan_for_none(head) for head in heads) for kind, heads in results[0]["last"].items()},
            )
        )
    asked = rows[0].asked
    return RecencySummary(
        length=asked["length"],
        trained=rows[0].result["train_length"],
        points=asked["points"],
        repeats=asked["repeats"],
        prompts=rows[0].result["n"],
        series=tuple(series),
        facts=joint_facts(rows),
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
