"""The question of the lengths of examples."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.config import ConfigError, near_miss
from lengthwise.probes.base import Question

FIELDS = ("input", "target", "length")


@dataclass(frozen=True, kw_only=True)
class ExampleLengthsQuestion(Question):
    """The words of the questions (`field` is "input"), the words of the answers ("target"), or the task's "length".

    `examples` and `lengths`: how many training examples are drawn, and for which lengths test examples are drawn; None if all
    examples of a fixed data set are counted.
    """

    probe: ClassVar[str] = "lengths"
    field: str
    examples: int | None = None
    lengths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.field not in FIELDS:
            known = f"{near_miss(self.field, FIELDS)}; available: {', '.join(FIELDS)}"
            raise ConfigError(f"there is no field {self.field!r}{known}")
