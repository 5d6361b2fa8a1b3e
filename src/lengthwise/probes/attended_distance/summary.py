"""Stored attended distances to means and intervals over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval
from lengthwise.analysis.probe_rows import (
    at_common_lengths,
    by_label,
    by_question,
    by_run,
    joint_facts,
    of_one_shape,
    share_over_seeds,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


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
class AttendedDistanceSummary:
    """How far back heads attend, for encodings with the same question. Bin n of N has the distances from n/N up to (n + 1)/N."""

    examples: int
    n: int
    lengths: tuple[int, ...]
    series: tuple[AttendedSeries, ...]
    facts: Mapping[str, Any]


def summarize(answers: StoredAnswers) -> tuple[AttendedDistanceSummary, ...]:
    """Return the stored attended distances, by question."""
    groups = by_question(answers.rows, without=["length"])
    return tuple(summary for rows in groups for summary in _summaries(answers.labels, rows))


def _summaries(labels: Mapping[str, str], rows: Sequence["ProbeRow"]) -> list[AttendedDistanceSummary]:
    summaries = []
    for lengths, some in at_common_lengths(of_one_shape(rows), lambda row: row.key):
        of_run = by_run(some)
        series = []
        for label, keys in by_label(labels, of_run).items():
            shares = [_shares(of_run[key]) for key in keys]
            series.append(
                AttendedSeries(
                    label=label,
                    most=_bins([most for most, _ in shares]),
                    mass=_bins([mass for _, mass in shares]),
                    seeds=len(keys),
                    queries=sum(row.result["queries"] for key in keys for row in of_run[key]),
                )
            )
        first = some[0].asked
        n = min(row.result["n"] for row in some)
        summaries.append(
            AttendedDistanceSummary(
                examples=first["examples"], n=n, lengths=lengths, series=tuple(series), facts=joint_facts(some)
            )
        )
    return summaries


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
    return tuple(map(share_over_seeds, zip(*shares, strict=True)))
