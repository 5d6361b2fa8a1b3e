"""Scores when the same number is added to all position IDs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.config import ConfigError
from lengthwise.probes.base import LENGTH, SHIFT, Column, ModelProbe, ModelQuestion, option

DEFAULT_SHIFTS = (0, 1, 10, 100, 1000)
MAX_SHIFT = 10**9 - 1
MAX_SHIFTS = 64  # in one question


@dataclass(frozen=True, kw_only=True)
class PositionShiftQuestion(ModelQuestion):
    """The scores on the same examples with each of `shifts` added to all position IDs. They ascend, and 0 is always included."""

    probe: ClassVar[str] = "position-shift"
    length: int = option(LENGTH, times_training=1)
    shifts: tuple[int, ...] = option(
        "Numbers to add to all position IDs, comma-separated; 0 is always included.",
        DEFAULT_SHIFTS,
        shown=",".join(map(str, DEFAULT_SHIFTS)),
        minimum=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = [shift for shift in self.shifts if type(shift) is not int or not 0 <= shift <= MAX_SHIFT]
        if wrong:
            raise ConfigError(f"shifts must be whole numbers from 0 to {MAX_SHIFT:,}, got {wrong[0]!r}")
        object.__setattr__(self, "shifts", tuple(sorted({0, *self.shifts})))
        if not 2 <= len(self.shifts) <= MAX_SHIFTS:
            raise ConfigError(f"shifts must be 1 to {MAX_SHIFTS - 1} numbers other than 0, got {len(self.shifts) - 1}")

    @property
    def work(self) -> float:
        return super().work * len(self.shifts)


class PositionShift(ModelProbe):
    """Scores when the same number is added to all position IDs, on the same examples.

    An encoding that depends only on distances has the same score at every shift. One that depends on absolute positions is
    expected to get worse. Answers are scored by one forward pass, also for tasks whose answers are otherwise generated. Shifts
    past the last position of an encoding with a maximal length are left out.
    """

    question = PositionShiftQuestion
    chapter = SHIFT
    columns = tuple(map(Column, ("score at shift 0", "worst shift", "score there", "largest change of a logit")))
    skips_unsupported = True

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[None]:
        return [None]

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | str | None]:
        scores, better = result["scores"], result["better"]
        known = [n for n, score in enumerate(scores) if score is not None]
        if not known:
            return [None, None, None, None]
        worst = (min if better == "higher" else max)(known, key=lambda n: (scores[n], -n if better == "lower" else n))
        changes = [change for change in result["logit_changes"] if change is not None]
        return [scores[0], f"{result['shifts'][worst]:,}", scores[worst], max(changes, default=None)]
