"""The question of attention-distance."""

from dataclasses import dataclass
from typing import ClassVar

from lengthwise.config import ConfigError, near_miss
from lengthwise.probes.base import EXAMPLES_AT_LENGTH, ModelQuestion, option

VARIANTS = ("jensen-shannon", "published")


@dataclass(frozen=True, kw_only=True)
class AttentionDistanceQuestion(ModelQuestion):
    """The distance from the attention of the run with the key `against`."""

    probe: ClassVar[str] = "attention-distance"
    against: str
    examples: int = option(EXAMPLES_AT_LENGTH, 10)
    variant: str = option(
        "How attention distances are computed: jensen-shannon, or published (as in the NoPE study's code).", VARIANTS[0]
    )

    def __post_init__(self) -> None:
        require_variant(self.variant)
        super().__post_init__()


def require_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise ConfigError(
            f"there is no variant {variant!r}{near_miss(str(variant), VARIANTS)}; available: {', '.join(VARIANTS)}"
        )
