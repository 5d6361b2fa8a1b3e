"""How far back the heads of a model attend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.probes.base import ATTENTION, Column, ModelProbe, ModelQuestion

BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class AttendedDistanceQuestion(ModelQuestion):
    """How far back a run attends."""

    probe: ClassVar[str] = "attended-distance"


class AttendedDistance(ModelProbe):
    """How far back the heads attend, from 0 (the token itself) to 1 (the first token).

    The distance of query i and key j is normalized: (i − j) / (i + 1). It is counted for the highest logit of each query that
    predicts a token of the answer, and for all attention weights of these queries.

    Source: Kazemnejad et al. 2023, section 5.2, figure 7.
    """

    question = AttendedDistanceQuestion
    chapter = ATTENTION
    columns = (
        Column("highest logit at distance 0 … 1", is_text=True, wrap=False),
        Column("share below 0.05"),
        Column("share from 0.95"),
    )
    default_lengths = "those of the run's evaluation that are longer than training"

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[int]:
        return [length for length in evaluated if length > train_length] or evaluated

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | str]:
        """Return a histogram and two shares, averaged over all layers and heads."""
        heads = [head for layer in result["most"] for head in layer]
        shares = [sum(bins) / len(heads) / result["queries"] for bins in zip(*heads, strict=True)]
        strip = "".join(BARS[round(share / max(shares) * (len(BARS) - 1))] for share in shares)
        return [strip, shares[0], shares[-1]]
