"""Stored induction scores to means and intervals over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    by_question,
    joint_facts,
    nan_for_none,
    of_one_shape,
    results_by_label,
    share_over_seeds,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

HALF = 0.5  # smallest share of the weights with which a head counts as an induction head


@dataclass(frozen=True, kw_only=True)
class InductionSeries:
    """An encoding's induction scores.

    `layers`: the best head of each layer. `prefix`, `nearest`: the published scores, means over all layers and heads. `heads`: the
    number of heads, over all seeds, with at least half of their weight on the labels of earlier occurrences of the same x.
    """

    label: str
    seeds: int
    layers: tuple[Interval, ...]
    prefix: Interval
    nearest: Interval
    heads: int


@dataclass(frozen=True, kw_only=True)
class InductionSummary:
    """Induction scores of all encodings. `uniform`: the scores of equal weights, for induction and for nearest neighbours."""

    length: int
    start: int
    points: int
    repeats: int
    neighbours: int
    prompts: int
    uniform: Mapping[str, float]
    series: tuple[InductionSeries, ...]
    facts: Mapping[str, Any]


def summarize(answers: StoredAnswers) -> tuple[InductionSummary, ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    return tuple(_summary(answers.labels, of_one_shape(rows)) for rows in by_question(answers.rows))


def _summary(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> InductionSummary:
    series = []
    for label, results in results_by_label(labels, rows):
        layers = [[max(nan_for_none(layer)) for layer in result["induction"]] for result in results]
        heads = [head for result in results for layer in result["induction"] for head in nan_for_none(layer)]
        series.append(
            InductionSeries(
                label=label,
                seeds=len(results),
                layers=tuple(share_over_seeds([run[n] for run in layers]) for n in range(len(layers[0]))),
                prefix=share_over_seeds(nan_for_none([result["prefix_score"] for result in results])),
                nearest=share_over_seeds(nan_for_none([result["nearest_score"] for result in results])),
                heads=sum(head >= HALF for head in heads),
            )
        )
    asked, result = rows[0].asked, rows[0].result
    return InductionSummary(
        length=asked["length"],
        start=result["start"],
        points=asked["points"],
        repeats=asked["repeats"],
        neighbours=asked["neighbours"],
        prompts=result["n"],
        uniform=result["uniform"],
        series=tuple(series),
        facts=joint_facts(rows),
    )
