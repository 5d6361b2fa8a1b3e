"""Stored parts of logits to means and intervals over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    by_question,
    mean,
    mean_of,
    nan_for_none,
    summary_fields,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class PartsSeries(ProbeSeries):
    """The parts of an encoding's logits, in the order of `PARTS`.

    `shares` [layer][part]: the mean over heads, over seeds; None if a head has no share. `deviations` [layer][part] and
    `logit_deviations` [layer]: means over heads and seeds, in nats. `heads` [layer][head][part]: the shares of the first seed.
    """

    shares: tuple[tuple[Interval | None, ...], ...]
    deviations: tuple[tuple[float, ...], ...]
    logit_deviations: tuple[float, ...]
    heads: tuple[tuple[tuple[float, ...], ...], ...]


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[PartsSeries], ...]:
    """Return the stored parts, by question."""
    rows = sorted(answers.rows, key=lambda row: row.asked["length"])
    return tuple(ProbeSummary(**summary_fields(group, answers.labels, _series)) for group in by_question(rows))


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> PartsSeries:
    results = [row.result for (row,) in runs]
    shares = zip(*(_means_over_heads(result["shares"]) for result in results), strict=True)
    deviations = zip(*(_means_over_heads(result["deviations"]) for result in results), strict=True)
    totals = [[mean(nan_for_none(heads)) for heads in result["logit_deviations"]] for result in results]
    return PartsSeries(
        label=label,
        seeds=len(runs),
        shares=tuple(tuple(map(_interval, zip(*layer, strict=True))) for layer in shares),
        deviations=tuple(map(mean_of, deviations)),
        logit_deviations=mean_of(totals),
        heads=tuple(tuple(map(nan_for_none, layer)) for layer in results[0]["shares"]),
    )


def _means_over_heads(layers: Sequence[Sequence[Any]]) -> list[tuple[float, ...]]:
    return [mean_of([nan_for_none(head) for head in layer]) for layer in layers]


def _interval(means: Sequence[float]) -> Interval | None:
    if not all(map(math.isfinite, means)):
        return None
    return over_seeds(means) if len(means) > 1 else over_examples(means[0], math.nan)
