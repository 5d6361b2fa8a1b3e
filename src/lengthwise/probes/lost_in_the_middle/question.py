"""The question of lost-in-the-middle."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.probes.base import option
from lengthwise.probes.repeated_examples.question import RepeatedExamplesQuestion


@dataclass(frozen=True, kw_only=True)
class LostInTheMiddleQuestion(RepeatedExamplesQuestion):
    """Scores by the position of the answers, and by `positions` of a single duplicate."""

    probe: ClassVar[str] = "lost-in-the-middle"
    positions: int = option("Number of answer positions, evenly spaced over the prompt.", 21, minimum=2)
