"""Measurements: questions about trained models. Each one is a file that declares its options, its table, charts and
numbers.

`MEASUREMENTS` is the list, in the order of the page. A new measurement is one file, and one line of the list.
"""

from lengthwise.config import ConfigError
from lengthwise.measurements.attended_distance import AttendedDistance
from lengthwise.measurements.attention_distance import AttentionDistance
from lengthwise.measurements.base import Measurement, Options, Probe
from lengthwise.measurements.development import Development
from lengthwise.measurements.duplicates import Duplicates
from lengthwise.measurements.example_lengths import ExampleLengths
from lengthwise.measurements.induction import Induction
from lengthwise.measurements.learned_bias import LearnedBias
from lengthwise.measurements.logit_parts import LogitParts
from lengthwise.measurements.lost_in_the_middle import LostInTheMiddle
from lengthwise.measurements.position_shift import PositionShift
from lengthwise.measurements.reach import Reach
from lengthwise.measurements.recency import Recency
from lengthwise.measurements.retention import Retention
from lengthwise.measurements.scores import FurtherScores, PositionScores, Scores
from lengthwise.measurements.speed import Speed
from lengthwise.measurements.table import Table
from lengthwise.measurements.training import Training
from lengthwise.values import unlisted

MEASUREMENTS: dict[str, Measurement] = {
    measurement.name: measurement
    for measurement in (
        Scores(),
        FurtherScores(),
        PositionScores(),
        Training(),
        AttentionDistance(),
        AttendedDistance(),
        LearnedBias(),
        LogitParts(),
        Development(),
        PositionShift(),
        Recency(),
        Duplicates(),
        LostInTheMiddle(),
        Induction(),
        ExampleLengths(),
        Reach(),
        Retention(),
        Speed(),
    )
}
PROBES: dict[str, Probe] = {name: one for name, one in MEASUREMENTS.items() if isinstance(one, Probe)}


def find(name: str) -> Measurement:
    """Return the measurement of that name. Raise `ConfigError` with a suggestion if there is none."""
    if name not in MEASUREMENTS:
        raise ConfigError(f"there is no measurement {unlisted(name, MEASUREMENTS)}")
    return MEASUREMENTS[name]


__all__ = ["MEASUREMENTS", "PROBES", "Measurement", "Options", "Probe", "Table", "Training", "find"]
