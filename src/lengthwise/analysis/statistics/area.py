"""The area under the score over the logarithm of the length, as a mean score from the shortest to the longest length.

The score is interpolated linearly over the logarithm of the length between tested lengths, so each tested length counts
by the distance of its neighbours: lengths 64, 128 and 512 have the weights 1/6, 1/2 and 1/3. Unlike a mean over the
tested lengths, it hardly changes when a study tests more lengths.
"""

import math
from collections.abc import Sequence

from lengthwise.analysis.estimates import Interval, interval_of, weighted
from lengthwise.analysis.statistics.curves import Curve
from lengthwise.metrics import Metric


def area_weights(lengths: Sequence[int]) -> list[float]:
    """Return the weights of at least two ascending lengths in the area (trapezoids). They add up to 1."""
    if len(lengths) < 2 or any(b <= a or a < 1 for a, b in zip(lengths, lengths[1:], strict=False)):
        raise ValueError(f"an area needs at least two lengths in increasing order, got {list(lengths)}")
    logs = [math.log2(length) for length in lengths]
    ends = [logs[0], *logs, logs[-1]]
    return [(ends[place + 2] - ends[place]) / 2 / (logs[-1] - logs[0]) for place in range(len(logs))]


def area(lengths: Sequence[int], seed_curves: Sequence[Curve], metric: Metric) -> Interval | None:
    """Return the area with its 95 % interval over seeds. None without seeds, or with fewer than two lengths."""
    if not seed_curves or len(lengths) < 2:
        return None
    weights = area_weights(lengths)
    areas = [weighted(list(zip(weights, curve, strict=True))) for curve in seed_curves]
    return interval_of(areas, metric.limits, share=metric.share)
