"""The question of induction."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.config import ConfigError
from lengthwise.probes.base import LENGTH, ModelQuestion, option
from lengthwise.probes.in_context import POINTS, REPEATS


@dataclass(frozen=True, kw_only=True)
class InductionQuestion(ModelQuestion):
    """The attention in prompts that repeat `points` examples, and in the second half of prompts with `length` examples."""

    probe: ClassVar[str] = "induction"
    length: int = option(LENGTH, 80, minimum=2)
    points: int = option(POINTS, 12)
    repeats: int = option(REPEATS, 4, minimum=2)
    neighbours: int = option("Number of nearest neighbours that the induction probe considers.", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours > (limit := self.length // 2):
            raise ConfigError(
                f"neighbours must be at most {limit} in prompts of {self.length} examples, got {self.neighbours}; use fewer, or "
                "longer prompts"
            )
