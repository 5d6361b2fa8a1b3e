"""Stored attended distances to means and intervals over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    at_common_lengths,
    by_question,
    shares_over_seeds,
    summary_fields,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class AttendedSeries(ProbeSeries):
    """How far back an encoding's runs attend, over all layers, heads and lengths. Bin n of N has the distances from n/N up to
    (n + 1)/N.

    `most`: the share of queries whose highest logit lies in each bin of the normalized distance. `mass`: the share of the weights
    in each bin. `queries`: the number of queries of all runs.
    """

    most: tuple[Interval, ...]
    mass: tuple[Interval, ...]
    queries: int


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[AttendedSeries], ...]:
    """Return the stored attended distances, by question."""
    return tuple(
        ProbeSummary(**summary_fields(some, answers.labels, _series))
        for rows in by_question(answers.rows, without=["length"])
        for some in at_common_lengths(rows)
    )


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> AttendedSeries:
    most, mass = zip(*map(_shares, runs), strict=True)
    return AttendedSeries(
        label=label,
        seeds=len(runs),
        most=shares_over_seeds(most),
        mass=shares_over_seeds(mass),
        queries=sum(row.result["queries"] for run in runs for row in run),
    )


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
