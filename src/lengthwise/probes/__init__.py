"""Probes: measurements inside trained models. Each one answers a question about a stored run, and is stored with the run.

`PROBES` is the list, in the order of the page. A probe is one folder, whose content `base.py` describes, and one line of the list.
"""

from lengthwise.probes.attended_distance import AttendedDistance
from lengthwise.probes.attention_distance import AttentionDistance
from lengthwise.probes.base import ModelProbe, ModelQuestion, Probe, Question, RunQuestion, StoredAnswers
from lengthwise.probes.development import Development
from lengthwise.probes.duplicates import Duplicates
from lengthwise.probes.example_lengths import ExampleLengths
from lengthwise.probes.induction import Induction
from lengthwise.probes.learned_bias import LearnedBias
from lengthwise.probes.listing import ProbeList
from lengthwise.probes.logit_parts import LogitParts
from lengthwise.probes.lost_in_the_middle import LostInTheMiddle
from lengthwise.probes.position_shift import PositionShift
from lengthwise.probes.recency import Recency

PROBES = ProbeList(
    AttentionDistance,
    AttendedDistance,
    LearnedBias,
    LogitParts,
    Development,
    PositionShift,
    Recency,
    Duplicates,
    LostInTheMiddle,
    Induction,
    ExampleLengths,
)

__all__ = ["PROBES", "ModelProbe", "ModelQuestion", "Probe", "ProbeList", "Question", "RunQuestion", "StoredAnswers"]
