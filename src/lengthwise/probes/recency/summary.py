"""Stored recency to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    by_question,
    mean,
    mean_of,
    nan_for_none,
    share_over_seeds,
    shares_over_seeds,
    summary_fields,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class RecencySeries(ProbeSeries):
    """An encoding's attention weights of the last x.

    `layers` [layer][label]: on the labels before it, farthest first, as means over heads and seeds. `recent`: in each layer, the
    share on the most recent tenth of the labels; 0.1 if all weights are equal. `best`: the largest such share of a head. `heads`
    [head][x]: for each kind of prompt, the weights on the x's, in the last layer of the first seed.
    """

    layers: tuple[tuple[float, ...], ...]
    recent: tuple[Interval, ...]
    best: Interval
    heads: Mapping[str, tuple[tuple[float, ...], ...]]


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[RecencySeries], ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    return tuple(ProbeSummary(**summary_fields(r, answers.labels, _series)) for r in by_question(answers.rows))


def recent(weights: Sequence[float], share: float = 0.1) -> float:
    """Return the share of the weights on the most recent tenth."""
    total = math.fsum(weights)
    return math.fsum(weights[-max(1, round(share * len(weights))) :]) / total if total else math.nan


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> RecencySeries:
    results = [row.result for (row,) in runs]
    layers = [[[nan_for_none(head) for head in layer] for layer in result["layers"]] for result in results]
    shares = [[[recent(head) for head in layer] for layer in run] for run in layers]
    return RecencySeries(
        label=label,
        seeds=len(runs),
        layers=tuple(mean_of([mean_of(heads) for heads in layer]) for layer in zip(*layers, strict=True)),
        recent=shares_over_seeds([mean(heads) for heads in run] for run in shares),
        best=share_over_seeds([max(map(max, run)) for run in shares]),
        heads={kind: tuple(map(nan_for_none, heads)) for kind, heads in results[0]["last"].items()},
    )
