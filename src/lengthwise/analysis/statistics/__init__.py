"""Statistics of the scores of encodings over seeds, tasks and lengths; docs/statistics.md defines each of them.

`statistics_of(findings)` computes all of them. The functions below take plain numbers.
"""

from lengthwise.analysis.statistics.area import area, area_weights
from lengthwise.analysis.statistics.curves import Curve, curves
from lengthwise.analysis.statistics.effective_length import (
    EffectiveLength,
    effective_length,
    longest_passing,
)
from lengthwise.analysis.statistics.interquartile import interquartile, interquartile_mean
from lengthwise.analysis.statistics.paired import Comparison, compare_all, holm
from lengthwise.analysis.statistics.seeds import NeededSeeds, detectable_effect, needed_seeds, power
from lengthwise.analysis.statistics.study import Options, Statistics, TaskStatistics, of_task, statistics_of

__all__ = [
    "Comparison",
    "Curve",
    "EffectiveLength",
    "NeededSeeds",
    "Options",
    "Statistics",
    "TaskStatistics",
    "area",
    "area_weights",
    "compare_all",
    "curves",
    "detectable_effect",
    "effective_length",
    "holm",
    "interquartile",
    "interquartile_mean",
    "longest_passing",
    "needed_seeds",
    "of_task",
    "power",
    "statistics_of",
]
