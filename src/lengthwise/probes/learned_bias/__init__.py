"""The bias that an encoding adds to the logits of one query, and whether a head prefers near or far keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.config import ConfigError
from lengthwise.probes.base import ATTENTION, Column, ModelProbe, RunQuestion, option

MAX_QUERY = 2**20  # the largest position of a query


@dataclass(frozen=True, kw_only=True)
class LearnedBiasQuestion(RunQuestion):
    """The bias for the query at one position, and all keys from position 0 up to it."""

    probe: ClassVar[str] = "learned-bias"
    query: int = option("Position of the query whose bias is measured.", 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.query > MAX_QUERY:
            raise ConfigError(f"query must be at most {MAX_QUERY:,}, got {self.query:,}")

    @property
    def about(self) -> str:
        return f"query {self.query}"


class LearnedBias(ModelProbe):
    """The bias that additive encodings add to the logits, for each layer and head, and the heads that are local or anti-local.

    With w the softmax of the bias b(i, j) over the keys j = 0 ... i, the relative mean distance is r = Σ_j w_j (i − j) / (i / 2),
    and the variation is v = ½ Σ_j |w_j − 1 / (i + 1)|. A head is local if r < 0.95, anti-local if r > 1.05, and otherwise flat if
    v ≤ 0.05, or mixed. Adding a constant to the bias changes nothing.

    Source: the curves are those of Li et al. 2024 (FIRE), who call heads local and anti-local by eye; the measure is ours.
    """

    question = LearnedBiasQuestion
    chapter = ATTENTION
    columns = tuple(map(Column, ("query", "local heads", "flat", "anti-local", "mixed")))
    skips_unsupported = True

    def cells(self, result: Mapping[str, Any]) -> Sequence[str]:
        from lengthwise.probes.learned_bias.summary import KINDS, kinds_of

        found = [kind for layer in kinds_of(result) for kind in layer]
        return [f"{result['distances'][-1]}", *(f"{found.count(kind)}" for kind in KINDS)]
