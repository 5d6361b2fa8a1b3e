"""Each seed's scores at all lengths, and weighted means of them with intervals over seeds."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lengthwise.analysis.findings import SeedScore, Series, TaskFindings
from lengthwise.analysis.intervals import Interval, of_seeds
from lengthwise.metrics import Metric


@dataclass(frozen=True)
class Curve:
    """One seed's scores, one for each length."""

    seed: int
    scores: tuple[SeedScore, ...]

    def weighted(self, weights: Mapping[int, float]) -> float:
        """Return the weighted sum of the scores. `weights`: by the place of the length; lengths that are left out weigh nothing."""
        return math.fsum(weight * self.scores[place].mean for place, weight in weights.items())


def curves(task: TaskFindings, series: Series) -> tuple[tuple[int, ...], tuple[Curve, ...]]:
    """Return the lengths with a score, and the seeds of an encoding that have a finite score at each of them.

    Lengths shorter than training are left out, as in every other number over several lengths.
    """
    points = [point for point in series.points if task.kind(point.length) != "shorter"]
    by_seed: dict[int, list[SeedScore]] = {}
    for point in points:
        for score in point.seeds:
            if math.isfinite(score.mean):
                by_seed.setdefault(score.seed, []).append(score)
    whole = {seed: scores for seed, scores in by_seed.items() if len(scores) == len(points)}
    return tuple(p.length for p in points), tuple(Curve(seed, tuple(scores)) for seed, scores in sorted(whole.items()))


def weighted(seed_curves: Sequence[Curve], weights: Mapping[int, float], metric: Metric) -> Interval:
    """Return the weighted sum of the scores over lengths, as a mean over seeds with its 95 % interval (`of_seeds`).

    `weights`: by the place of the length. They are not negative, and at least one is above 0. The number of examples of a weighted
    share is the number that would give its variance, 1 / Σ (weight² / n), which is n for a single length of weight 1.
    """
    weights = {place: weight for place, weight in weights.items() if weight}
    values, errors, counts, groups = [], [], [], []
    for curve in seed_curves:
        weighted_scores = [(weight, curve.scores[place]) for place, weight in weights.items()]
        values.append(curve.weighted(weights))
        errors.append(math.hypot(*(w * s.standard_error for w, s in weighted_scores)))
        counts.append(1 / math.fsum(w * w / s.n for w, s in weighted_scores))
        groups.append(_weighted_groups(weighted_scores))
    if all(groups):  # the same prompts at all lengths
        counts = [max(curve.scores[place].n for place in weights) for curve in seed_curves]
    return of_seeds(values, errors, counts, groups, metric)


def _weighted_groups(weighted_scores: Sequence[tuple[float, SeedScore]]) -> list[float]:
    """Return the weighted sum of each group of prompts, or [] if the lengths have no groups or different ones."""
    if len({len(score.groups) for _, score in weighted_scores}) != 1:
        return []
    columns = zip(*([w * value for value in score.groups] for w, score in weighted_scores), strict=True)
    return [math.fsum(column) for column in columns]


def relative(seed_curves: Sequence[Curve], place: int) -> tuple[Curve, ...]:
    """Return the curves minus each seed's own score at one length.

    Their standard errors are unknown (NaN), because the examples of two lengths may be related.
    """
    return tuple(
        Curve(curve.seed, tuple(_minus(score, curve.scores[place]) for score in curve.scores)) for curve in seed_curves
    )


def _minus(score: SeedScore, start: SeedScore) -> SeedScore:
    alike = len(score.groups) == len(start.groups)
    groups = tuple(a - b for a, b in zip(score.groups, start.groups, strict=True)) if alike else ()
    return dataclasses.replace(score, mean=score.mean - start.mean, standard_error=math.nan, groups=groups)
