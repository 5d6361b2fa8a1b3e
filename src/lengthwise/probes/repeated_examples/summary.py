"""Stored scores of prompts with repeated examples to means and intervals over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.intervals import Interval, of_scores
from lengthwise.analysis.probe_rows import (
    by_question,
    joint_facts,
    mean_of,
    nan_for_none,
    of_one_shape,
    results_by_label,
)
from lengthwise.probes.base import StoredAnswers

if TYPE_CHECKING:
    from lengthwise.store import ProbeRow


@dataclass(frozen=True, kw_only=True)
class Curve:
    """An encoding's scores, one for each condition of a panel; None where there is none."""

    label: str
    seeds: int
    scores: tuple[Interval | None, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The scores on the relevant part of prompts of one kind.

    `at`: what differs between the prompts (counts, positions, or begin/middle/end). `starts`: the index of the first example of the
    relevant part, from 0.
    """

    kind: str
    at: tuple[int | str, ...]
    starts: tuple[int, ...]
    series: tuple[Curve, ...]


@dataclass(frozen=True, kw_only=True)
class Places:
    """The mean score at every example of one prompt, by encoding. Its relevant part is `start` up to, not including, `stop`."""

    kind: str
    at: int | str
    start: int
    stop: int
    series: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True)
class RepeatedExamplesSummary:
    """Scores of prompts with repeated examples. `probe`: `duplicates` or `lost-in-the-middle`."""

    probe: str
    length: int
    points: int
    prompts: int
    panels: tuple[Panel, ...]
    places: tuple[Places, ...]
    facts: Mapping[str, Any]


def summarize(answers: StoredAnswers) -> tuple[RepeatedExamplesSummary, ...]:
    """Return the stored results, with those of all runs that were asked the same."""
    return tuple(_summary(answers.labels, of_one_shape(rows), answers.bounds) for rows in by_question(answers.rows))


def _summary(
    labels: Mapping[str, str], rows: Sequence["ProbeRow"], bounds: tuple[float, float] | None
) -> RepeatedExamplesSummary:
    first = rows[0].result["prompts"]
    by_label = list(results_by_label(labels, rows))
    panels = []
    for kind in dict.fromkeys(prompt["kind"] for prompt in first):
        numbers = [n for n, prompt in enumerate(first) if prompt["kind"] == kind]
        panels.append(
            Panel(
                kind=kind,
                at=tuple(first[n]["at"] for n in numbers),
                starts=tuple(first[n]["start"] for n in numbers),
                series=tuple(
                    Curve(
                        label=label,
                        seeds=len(results),
                        scores=tuple(_score([result["prompts"][n] for result in results], bounds) for n in numbers),
                    )
                    for label, results in by_label
                ),
            )
        )
    places = [
        Places(
            kind=prompt["kind"],
            at=prompt["at"],
            start=prompt["start"],
            stop=prompt["stop"],
            series={
                label: mean_of([nan_for_none(result["prompts"][n]["curve"]["mean"]) for result in results])
                for label, results in by_label
            },
        )
        for n, prompt in enumerate(first)
        if "curve" in prompt
    ]
    asked = rows[0].asked
    return RepeatedExamplesSummary(
        probe=asked["probe"],
        length=asked["length"],
        points=asked["points"],
        prompts=rows[0].result["n"],
        panels=tuple(panels),
        places=tuple(places),
        facts=joint_facts(rows),
    )


def _score(prompts: Sequence[Mapping[str, Any]], bounds: tuple[float, float] | None) -> Interval | None:
    """Return the score on a prompt's relevant part as an interval over seeds, which answered the same prompts."""
    means = nan_for_none([prompt["score"] for prompt in prompts])
    if not all(map(math.isfinite, means)):
        return None
    return of_scores(means, [nan_for_none(prompt["groups"]) for prompt in prompts], math.nan, bounds)
