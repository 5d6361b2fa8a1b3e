"""Stored developments to the values of each run, and to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, over_examples, over_seeds
from lengthwise.analysis.probe_rows import ProbeSeries, ProbeSummary, mean, nan_for_none, summary_fields
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class QuantitySeries:
    """One quantity of an encoding, in the `layers` (from 1) that share it.

    `values` [seed][line][step]. A scalar has one line, and a quantity per head one for each head. A table has one for each entry
    of each head: all `entries` of the first head first. `first` and `last`: the means over the lines before and after training,
    over seeds; `change`: of the same seed.
    """

    name: str
    layers: tuple[int, ...]
    shape: tuple[int, ...]
    entries: tuple[int, ...]
    values: tuple[tuple[tuple[float, ...], ...], ...]
    first: Interval | None
    last: Interval | None
    change: Interval | None


@dataclass(frozen=True, kw_only=True)
class DevelopmentSeries(ProbeSeries):
    """The quantities of an encoding, in the order of its layers, at `steps`."""

    steps: tuple[int, ...]
    quantities: tuple[QuantitySeries, ...]


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[DevelopmentSeries], ...]:
    """Return the stored developments. Each encoding has its own quantities."""
    fields = summary_fields(answers.rows, answers.labels, _series)
    return (ProbeSummary(**fields),)


def _series(label: str, runs: "Sequence[Sequence[ProbeRow]]") -> DevelopmentSeries:
    results = [rows[0].result for rows in runs]
    quantities = zip(*(result["quantities"] for result in results), strict=True)
    return DevelopmentSeries(
        label=label,
        seeds=len(results),
        steps=tuple(results[0]["steps"]),
        quantities=tuple(map(_quantity, quantities)),
    )


def _quantity(of_runs: Sequence[Mapping[str, Any]]) -> QuantitySeries:
    rows = [[nan_for_none(row) for row in quantity["values"]] for quantity in of_runs]  # [seed][step][line]
    first, last = ([mean(of_seed[n]) for of_seed in rows] for n in (0, -1))
    one = of_runs[0]
    return QuantitySeries(
        name=one["name"],
        layers=tuple(one["layers"]),
        shape=tuple(one["shape"]),
        entries=tuple(one["entries"]),
        values=tuple(tuple(zip(*of_seed, strict=True)) for of_seed in rows),
        first=_interval(first),
        last=_interval(last),
        change=_interval([b - a for a, b in zip(first, last, strict=True)]),
    )


def _interval(means: Sequence[float]) -> Interval | None:
    if not all(map(math.isfinite, means)):
        return None
    return over_seeds(means) if len(means) > 1 else over_examples(means[0], math.nan)
