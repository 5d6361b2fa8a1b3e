"""The question of attended-distance."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.probes.base import ModelQuestion


@dataclass(frozen=True, kw_only=True)
class AttendedDistanceQuestion(ModelQuestion):
    """How far back a run attends."""

    probe: ClassVar[str] = "attended-distance"
