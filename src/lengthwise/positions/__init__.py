"""Position schemes: which position ID each token gets. One file per method, one line per method here.

An encoding never knows which scheme assigned its positions, so every scheme works with every encoding. The command line
and the report read `POSITION_SCHEMES`. Another package adds its own through the entry-point group `lengthwise.positions`.
"""

from typing import Any

from lengthwise.config import Choice, Registry
from lengthwise.positions.base import PositionScheme, RandomPositions
from lengthwise.positions.consecutive import Consecutive, consecutive
from lengthwise.positions.digits import Digits
from lengthwise.positions.randomized import Randomized
from lengthwise.positions.shift import Shift
from lengthwise.positions.skip import Skip

POSITION_SCHEMES = Registry("position scheme", (Consecutive, Randomized, Shift, Skip, Digits), plural="positions")


def position_scheme_for(task: Any, choice: Choice | None) -> PositionScheme:
    """Return the position scheme that a run's training names, for the sequences of its task. None: consecutive positions."""
    scheme: PositionScheme = Consecutive() if choice is None else choice.build()
    return scheme.for_task(task)


__all__ = [
    "POSITION_SCHEMES",
    "Consecutive",
    "Digits",
    "PositionScheme",
    "RandomPositions",
    "Randomized",
    "Shift",
    "Skip",
    "consecutive",
    "position_scheme_for",
]
