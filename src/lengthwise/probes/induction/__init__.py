"""Induction heads: the attention to what followed the same x earlier."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.config import ConfigError
from lengthwise.probes.base import LENGTH, Column, ModelQuestion, option
from lengthwise.probes.in_context import POINTS, REPEATS, InContextProbe


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


class Induction(InContextProbe):
    """The heads' attention to the label that followed the same input earlier in the prompt.

    Each prompt repeats its examples. The prefix score is the mean weight of a repeated input on the label of an earlier occurrence.
    The nearest-neighbour score is the weight on the labels of the most similar earlier inputs.
    """

    question = InductionQuestion
    columns = (Column("prefix score"), Column("best head"), Column("nearest-neighbour score"))

    def cells(self, result: Mapping[str, Any]) -> Sequence[float]:
        best = max(head or 0.0 for layer in result["induction"] for head in layer)
        return [result["prefix_score"] or 0.0, best, result["nearest_score"] or 0.0]
