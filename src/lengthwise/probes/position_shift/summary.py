"""Stored scores at shifted positions to means and intervals over seeds."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lengthwise.analysis.intervals import Interval, of_scores
from lengthwise.analysis.probe_rows import ProbeSeries, ProbeSummary, by_question, nan_for_none, summary_fields
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

Bounds = tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class ShiftSeries(ProbeSeries):
    """An encoding's scores at each shift; None at shifts past its last position.

    `scores`: over seeds. `differences`: from the score at shift 0 of the same run on the same examples. `changes`: the largest
    change of a logit over seeds. `invariant`: whether its encodings declare that shifts change nothing. `max_length`: its number
    of positions; None if any.
    """

    scores: tuple[Interval | None, ...]
    differences: tuple[Interval | None, ...]
    changes: tuple[float, ...]
    invariant: bool
    max_length: int | None

    @property
    def exact(self) -> bool:
        """Whether all logits have the same bits at all measured shifts."""
        return all(change == 0 for change in self.changes if not math.isnan(change))


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[ShiftSeries], ...]:
    """Return the stored scores, with those of all runs that were asked the same."""
    rows = sorted(answers.rows, key=lambda row: row.asked["length"])
    series = partial(_series, answers.bounds)
    return tuple(ProbeSummary(**summary_fields(group, answers.labels, series)) for group in by_question(rows))


def _series(bounds: Bounds, label: str, runs: "Sequence[Sequence[ProbeRow]]") -> ShiftSeries:
    results = [row.result for (row,) in runs]

    def by_shift(name: str) -> Iterator[tuple[float, ...]]:
        return zip(*(nan_for_none(result[name]) for result in results), strict=True)

    def intervals(means: str, errors: str, bounds: Bounds) -> tuple[Interval | None, ...]:
        return tuple(_interval(m, e, bounds) for m, e in zip(by_shift(means), by_shift(errors), strict=True))

    return ShiftSeries(
        label=label,
        seeds=len(runs),
        scores=intervals("scores", "standard_errors", bounds),
        differences=intervals("differences", "difference_errors", None),
        changes=tuple(math.nan if any(map(math.isnan, seeds)) else max(seeds) for seeds in by_shift("logit_changes")),
        invariant=all(result["invariant"] for result in results),
        max_length=min((r["max_length"] for r in results if r["max_length"] is not None), default=None),
    )


def _interval(means: Sequence[float], errors: Sequence[float], bounds: Bounds) -> Interval | None:
    """Return the interval over seeds, or over examples for a single seed."""
    return None if any(map(math.isnan, means)) else of_scores(means, (), errors[0], bounds)
