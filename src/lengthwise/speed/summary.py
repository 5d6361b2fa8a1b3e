"""Ratios of times to NoPE: the median over the rounds, and an interval from order statistics. Imports no torch."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from lengthwise.speed.results import Cell, Kind, Results

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """A median of `rounds` ratios with its interval. `low` and `high` are None if there are too few rounds."""

    median: float
    low: float | None
    high: float | None
    rounds: int


@lru_cache(maxsize=256)
def interval_rank(count: int) -> int:
    """Return the largest k such that the k-th smallest and k-th largest of `count` values enclose the median in 95 % of cases.

    The number of values below the true median is binomial with probability ½, whatever the distribution. So the interval misses
    the median with probability 2 P(Bin(n, ½) < k), which has to be at most 5 %. Returns 0 for fewer than 6 values: not even their
    extremes suffice.

    >>> [interval_rank(n) for n in (5, 6, 12, 20)]
    [0, 1, 3, 6]
    """
    total, below, rank = 2**count, 0, 0
    while 2 * (below + math.comb(count, rank)) <= (1 - CONFIDENCE) * total:
        below += math.comb(count, rank)
        rank += 1
    return rank


def median_ratio(ratios: Sequence[float]) -> Ratio | None:
    """Return the median with the interval of `interval_rank`, or None without any ratio."""
    if not ratios:
        return None
    ordered, rank = sorted(ratios), interval_rank(len(ratios))
    low, high = (ordered[rank - 1], ordered[-rank]) if rank else (None, None)
    return Ratio(statistics.median(ordered), low, high, len(ordered))


def ratio_of(results: Results, cell: Cell, kind: Kind) -> Ratio | None:
    """Return the time of an encoding relative to NoPE at the same length in the same round."""
    return median_ratio(results.ratios(cell, kind))
