"""How much the attention of two models differs, layer by layer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.config import ConfigError, near_miss
from lengthwise.probes.base import ATTENTION, EXAMPLES_AT_LENGTH, Column, ModelProbe, ModelQuestion, option

if TYPE_CHECKING:
    from rich.table import Table

    from lengthwise.analysis.findings import TaskFindings
    from lengthwise.probes.attention_distance.summary import AttentionDistanceSummary

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


class AttentionDistance(ModelProbe):
    """How much a run's attention differs from another run's, per layer, in nats, from 0 to ln 2.

    Two runs of the same task and depth read the same test examples. In each layer, the distance of their most similar heads counts.

    Source: Kazemnejad et al. 2023, section 5.2, equation 2.
    """

    question = AttentionDistanceQuestion
    chapter = ATTENTION
    compares = True
    columns = (Column("mean"), Column("nats per layer, from first to last", is_text=True))

    def cells(self, result: Mapping[str, Any]) -> Sequence[str]:
        layers = [math.nan if value is None else value for value in result["layers"]]
        mean, *texts = (f"{v:.4f}" if math.isfinite(v) else "–" for v in (sum(layers) / len(layers), *layers))
        return [mean, " ".join(texts)]

    def report_table(self, summary: "AttentionDistanceSummary", task: "TaskFindings") -> "Table":
        from lengthwise.probes.attention_distance.section import report_table

        return report_table(summary, task)
