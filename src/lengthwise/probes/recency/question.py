"""The question of recency."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.probes.base import EXAMPLES_AT_LENGTH, LENGTH, ModelQuestion, option
from lengthwise.probes.in_context import POINTS, REPEATS


@dataclass(frozen=True, kw_only=True)
class RecencyQuestion(ModelQuestion):
    """The attention of the last x of prompts with `length` examples, and of prompts that repeat `points` examples."""

    probe: ClassVar[str] = "recency"
    length: int = option(LENGTH, times_training=4, minimum=2)
    examples: int = option(EXAMPLES_AT_LENGTH, 64)
    points: int = option(POINTS, times_training=1)
    repeats: int = option(REPEATS, 4, minimum=2)
