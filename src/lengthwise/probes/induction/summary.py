"""Stored induction scores to means and intervals over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    by_question,
    nan_for_none,
    share_over_seeds,
    shares_over_seeds,
    summary_fields,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

HALF = 0.5  # smallest share of the weights with which a head counts as an induction head


@dataclass(frozen=True, kw_only=True)
class InductionSeries(ProbeSeries):
    """An encoding's induction scores.

    `layers`: the best head of each layer. `prefix`, `nearest`: the published scores, means over all layers and heads. `heads`: the
    number of heads, over all seeds, with at least half of their weight on the labels of earlier occurrences of the same x.
    """

    layers: tuple[Interval, ...]
    prefix: Interval
    nearest: Interval
    heads: int


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[InductionSeries], ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    return tuple(ProbeSummary(**summary_fields(r, answers.labels, _series)) for r in by_question(answers.rows))


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> InductionSeries:
    results = [row.result for (row,) in runs]
    shares = [[nan_for_none(layer) for layer in result["induction"]] for result in results]  # [run][layer][head]
    return InductionSeries(
        label=label,
        seeds=len(runs),
        layers=shares_over_seeds([max(layer) for layer in run] for run in shares),
        prefix=share_over_seeds(nan_for_none(result["prefix_score"] for result in results)),
        nearest=share_over_seeds(nan_for_none(result["nearest_score"] for result in results)),
        heads=sum(head >= HALF for run in shares for layer in run for head in layer),
    )
