"""Each seed's scores at all lengths."""

import math
from collections.abc import Sequence

from lengthwise.analysis.estimates import Estimate, difference
from lengthwise.analysis.findings import Series, TaskFindings

Curve = tuple[Estimate, ...]  # one seed's scores, one for each length


def curves(task: TaskFindings, series: Series) -> tuple[tuple[int, ...], tuple[Curve, ...]]:
    """Return the lengths with a score, and the seeds of an encoding that have a finite score at each of them.

    Lengths shorter than training are left out, as in every other number over several lengths.
    """
    points = [point for point in series.points if task.kind(point.length) != "shorter"]
    by_seed: dict[int, list[Estimate]] = {}
    for point in points:
        for score in point.seeds:
            if math.isfinite(score.mean):
                by_seed.setdefault(score.seed, []).append(score)
    whole = {seed: scores for seed, scores in by_seed.items() if len(scores) == len(points)}
    return tuple(p.length for p in points), tuple(tuple(scores) for _, scores in sorted(whole.items()))


def relative(found: Sequence[Curve], place: int) -> tuple[Curve, ...]:
    """Return the curves minus each seed's own score at one length."""
    return tuple(tuple(difference(score, curve[place]) for score in curve) for curve in found)
