"""Position schemes, which assign position IDs to tokens: one file per scheme, and the list of all.

Encodings do not depend on the scheme, so every scheme with one axis works with every encoding. The command line and the
report read `POSITION_SCHEMES`. Another package adds its own through the entry-point group `lengthwise.positions`.
"""

from typing import Any

from lengthwise.config import Choice, Registry
from lengthwise.positions.base import PositionScheme, RandomPositions
from lengthwise.positions.consecutive import Consecutive, consecutive
from lengthwise.positions.coupled import Coupled
from lengthwise.positions.digits import Digits
from lengthwise.positions.grid import Grid
from lengthwise.positions.multimodal import following_positions, multimodal_positions
from lengthwise.positions.randomized import Randomized
from lengthwise.positions.shift import Shift
from lengthwise.positions.skip import Skip

POSITION_SCHEMES = Registry(
    "position scheme", (Consecutive, Randomized, Shift, Skip, Digits, Coupled, Grid), plural="positions"
)


def position_scheme_for(task: Any, choice: Choice | None) -> PositionScheme:
    """Return the position scheme of a choice for the sequences of a task. None: consecutive positions."""
    scheme: PositionScheme = Consecutive() if choice is None else choice.build()
    return scheme.for_task(task)


__all__ = [
    "POSITION_SCHEMES",
    "Consecutive",
    "Coupled",
    "Digits",
    "Grid",
    "PositionScheme",
    "RandomPositions",
    "Randomized",
    "Shift",
    "Skip",
    "consecutive",
    "following_positions",
    "multimodal_positions",
    "position_scheme_for",
]
