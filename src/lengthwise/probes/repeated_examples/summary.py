"""Stored scores of prompts with repeated examples to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, of_scores
from lengthwise.analysis.probe_rows import (
    ProbeSeries,
    ProbeSummary,
    by_question,
    mean_of,
    nan_for_none,
    summary_fields,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow

Bounds = tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class PromptSeries(ProbeSeries):
    """An encoding's scores on each of the prompts in the summary's `result`.

    `scores`: on the relevant part of the prompt; None where there is none. `curves`: the means at every example of the prompt;
    empty where they are not stored.
    """

    scores: tuple[Interval | None, ...]
    curves: tuple[tuple[float, ...], ...]


def summarize(answers: StoredAnswers) -> tuple[ProbeSummary[PromptSeries], ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    series = partial(_series, answers.bounds)
    return tuple(ProbeSummary(**summary_fields(r, answers.labels, series)) for r in by_question(answers.rows))


def _series(bounds: Bounds, label: str, runs: "Sequence[Sequence[ProbeRow]]") -> PromptSeries:
    prompts = list(zip(*(row.result["prompts"] for (row,) in runs), strict=True))  # [prompt][run]
    return PromptSeries(
        label=label,
        seeds=len(runs),
        scores=tuple(_score(of_runs, bounds) for of_runs in prompts),
        curves=tuple(
            mean_of([nan_for_none(prompt["curve"]["mean"]) for prompt in of_runs if "curve" in prompt])
            for of_runs in prompts
        ),
    )


def _score(prompts: Sequence[Mapping[str, Any]], bounds: Bounds) -> Interval | None:
    """Return the score on a prompt's relevant part as an interval over seeds, which answered the same prompts."""
    means = nan_for_none(prompt["score"] for prompt in prompts)
    if not all(map(math.isfinite, means)):
        return None
    return of_scores(means, [nan_for_none(prompt["groups"]) for prompt in prompts], math.nan, bounds)
