"""The lengths of a run's training and test examples, which need no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lengthwise.config import ConfigError, near_miss
from lengthwise.probes.base import EXAMPLES, Probe, Question

if TYPE_CHECKING:
    from lengthwise.store.rows import ProbeRow

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


class ExampleLengths(Probe):
    """The number of training and test examples of each length. Needs no model and has its own command, `lengthwise lengths KEY`."""

    question = ExampleLengthsQuestion
    chapter = EXAMPLES
    command = "lengthwise lengths KEY"

    def stored_note(self, key: str, rows: "Sequence[ProbeRow]") -> str:
        return f"the lengths of its examples are stored; `lengthwise lengths {key}` shows them"
