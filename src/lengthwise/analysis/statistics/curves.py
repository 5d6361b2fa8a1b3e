"""Each seed's scores at all lengths."""

from collections.abc import Sequence

from lengthwise.analysis.estimates import Estimate, difference
from lengthwise.analysis.findings import Series, TaskFindings

Curve = tuple[Estimate, ...]  # one seed's scores, one for each length


def curves(task: TaskFindings, series: Series) -> tuple[tuple[int, ...], tuple[Curve, ...]]:
    """Return the lengths with a score, and the seeds of an encoding that have a finite score at each of them.

    Lengths shorter than training are left out, as in every other number over several lengths.
    """
    lengths = tuple(point.length for point in series.points if task.kind(point.length) != "shorter")
    return lengths, tuple(tuple(scores) for _, scores in sorted(series.by_seed(lengths).items()))


def relative(seed_curves: Sequence[Curve], place: int) -> tuple[Curve, ...]:
    """Return the curves minus each seed's own score at one length."""
    return tuple(tuple(difference(score, curve[place]) for score in curve) for curve in seed_curves)
