"""Numbers of single models, and what is computed from them: means over lengths, paired differences, and intervals over models.

Scores and the answers of all other measurements become estimates first, so every 95 % interval follows from
`interval_of`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lengthwise.analysis.intervals import (
    Interval,
    over_examples,
    over_seeds,
    over_seeds_and_groups,
    over_shares,
    shifted,
    with_wilson,
)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number of one model, such as its score at a length: the mean over `n` examples and its standard error.

    `key`, `seed`: those of the model's run. `standard_error`: NaN if unknown. `n`: 0 if unknown. `groups`: the means
    over equal groups of examples, which are the same for every model; empty if they are not stored.
    """

    key: str = ""
    seed: int = 0
    mean: float
    standard_error: float = math.nan
    n: float = 0
    groups: tuple[float, ...] = ()


def weighted(parts: Sequence[tuple[float, Estimate]], total: float = 1.0) -> Estimate:
    """Return the weighted sum of numbers of one model, divided by `total`.

    Its number of examples is the number that would give the variance of a share, total² / Σ (weight² / n), which is n
    for one number of weight 1. If all numbers have the same groups of examples, it has them too, and the examples count
    once.
    """
    first = parts[0][1]
    alike = {(len(part.groups), part.n) for _, part in parts} == {(len(first.groups), first.n)}
    groups: tuple[float, ...] = ()
    if alike and first.groups:
        columns = zip(*([weight * value for value in part.groups] for weight, part in parts), strict=True)
        groups = tuple(math.fsum(column) / total for column in columns)
    return replace(
        first,
        mean=math.fsum(weight * part.mean for weight, part in parts) / total,
        standard_error=math.hypot(*(weight * part.standard_error for weight, part in parts)) / total,
        n=first.n if groups else total * total / math.fsum(weight * weight / part.n for weight, part in parts),
        groups=groups,
    )


def difference(estimate: Estimate, other: Estimate) -> Estimate:
    """Return a number of a model minus another one of the same model or seed, paired by groups of examples if both have
    them.

    Its standard error is unknown, because the examples of both may be related.
    """
    alike = len(estimate.groups) == len(other.groups)
    groups = tuple(a - b for a, b in zip(estimate.groups, other.groups, strict=True)) if alike else ()
    return replace(estimate, mean=estimate.mean - other.mean, standard_error=math.nan, groups=groups)


def interval_of(
    estimates: Sequence[Estimate], bounds: tuple[float, float] | None = None, *, share: bool = False
) -> Interval:
    """Return the mean over at least one model with its 95 % interval.

    If every model has the same groups of examples, the interval is over seeds and groups (`over_seeds_and_groups`).
    Otherwise it is over seeds: by `over_shares` if the numbers are shares of correct answers, else by Student's t. That
    of a single model is over its examples. `bounds`: those of the values, where intervals end. `share`: their intervals
    are at least Wilson's.
    """
    means = [estimate.mean for estimate in estimates]
    sizes = {len(estimate.groups) for estimate in estimates}
    has_groups = len(sizes) == 1 and min(sizes) > 1
    if has_groups:
        interval = over_seeds_and_groups([estimate.groups for estimate in estimates])
        interval = shifted(interval, math.fsum(means) / len(means), bounds)
    elif len(means) == 1:
        interval = over_examples(means[0], estimates[0].standard_error, bounds)
    elif share and all(estimate.n and math.isfinite(estimate.mean) for estimate in estimates):
        return over_shares(means, [estimate.n for estimate in estimates])
    else:
        interval = over_seeds(means, bounds)
    # Models that answer the same examples do not increase their number.
    return with_wilson(interval, max(estimate.n for estimate in estimates)) if share else interval
