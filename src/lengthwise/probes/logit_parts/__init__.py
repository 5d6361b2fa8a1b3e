"""The parts of attention logits that come from words and from positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.probes.base import ATTENTION, LENGTH, Column, ModelProbe, ModelQuestion, option

PARTS = ("word-word", "word-position", "position-word", "position-position")
"""The parts of a logit <q, k>: first what the query comes from, then what the key comes from."""


@dataclass(frozen=True, kw_only=True)
class LogitPartsQuestion(ModelQuestion):
    """The parts of the logits on test examples."""

    probe: ClassVar[str] = "logit-parts"
    length: int = option(LENGTH, times_training=1)


class LogitParts(ModelProbe):
    """Attention logits with absolute encodings, split into word-word, word-position, position-word and position-position parts.

    Each query and key is the sum of what it gets from the token's embedding and of what it gets from the position's vector, with
    the norms held at their values (in upper layers also attention weights and the MLPs' gates). The four products add up to the
    logit. A part's share is Σ P L / Σ L², over all pairs of a query and a visible key, where P is the part and L the logit, both
    minus their means over the query's keys. The shares of a head add up to 1; a part that opposes the others has a negative one.
    The table has the means over the heads of the first layer.

    Source: the expansion of (W_q (x_i + p_i)) · (W_k (x_j + p_j)) in Dai et al. 2019 (Transformer-XL), section 3.3.
    """

    question = LogitPartsQuestion
    chapter = ATTENTION
    columns = tuple(map(Column, (f"layer 1: {PARTS[0]}", *PARTS[1:])))
    skips_unsupported = True

    def lengths(self, train_length: int, evaluated: Sequence[int]) -> Sequence[None]:
        return [None]

    def cells(self, result: Mapping[str, Any]) -> Sequence[float | None]:
        parts = zip(*result["shares"][0], strict=True)
        return [None if None in heads else sum(heads) / len(heads) for heads in parts]
