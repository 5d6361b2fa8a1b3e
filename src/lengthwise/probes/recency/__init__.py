"""Which examples of a prompt the last question attends to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.probes.base import EXAMPLES_AT_LENGTH, LENGTH, Column, ModelQuestion, option
from lengthwise.probes.in_context import POINTS, REPEATS, InContextProbe


@dataclass(frozen=True, kw_only=True)
class RecencyQuestion(ModelQuestion):
    """The attention of the last x of prompts with `length` examples, and of prompts that repeat `points` examples."""

    probe: ClassVar[str] = "recency"
    length: int = option(LENGTH, times_training=4, minimum=2)
    examples: int = option(EXAMPLES_AT_LENGTH, 64)
    points: int = option(POINTS, times_training=1)
    repeats: int = option(REPEATS, 4, minimum=2)


class Recency(InContextProbe):
    """The attention weights of the last input of a prompt on earlier examples, per layer.

    Of the attention to labels, the table has the share that falls on the most recent tenth of them; it is 0.1 if all weights are
    equal. The last column is the head with the largest share.
    """

    question = RecencyQuestion
    columns = (Column("most recent tenth: first layer"), Column("last layer"), Column("best head"))

    def cells(self, result: Mapping[str, Any]) -> Sequence[float]:
        from lengthwise.probes.recency.summary import recent

        layers = [[recent([weight or 0.0 for weight in head]) for head in layer] for layer in result["layers"]]
        means = [sum(layer) / len(layer) for layer in layers]
        return [means[0], means[-1], max(map(max, layers))]
