"""The question of duplicates."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from lengthwise.config import ConfigError
from lengthwise.probes.base import option
from lengthwise.probes.repeated_examples.question import RepeatedExamplesQuestion


@dataclass(frozen=True, kw_only=True)
class DuplicatesQuestion(RepeatedExamplesQuestion):
    """Scores by the number of repeated examples, and with an instruction, noise and a target."""

    probe: ClassVar[str] = "duplicates"
    noise: tuple[int, ...] = option(
        "Numbers of noise examples (copies of one example) before the target: 5-20 or 5,10,20.",
        shown="5-20, or fewer in short prompts",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.noise or any(type(n) is not int or n < 1 for n in self.noise):
            raise ConfigError(f"noise must be counts of examples, each at least 1, got {list(self.noise)!r}")
        object.__setattr__(self, "noise", tuple(sorted(set(self.noise))))

    @classmethod
    def with_defaults(cls, train_length: int, **options: Any) -> Self:
        points = options.get("points") or train_length
        if options.get("noise") is None:
            options["noise"] = tuple(range(5, 21) if points > 20 else range(1, max(2, points)))
        return super().with_defaults(train_length, **options)
