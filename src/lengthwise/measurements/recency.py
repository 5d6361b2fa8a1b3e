"""Which examples of a prompt the last question attends to."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.measurements import base
from lengthwise.measurements.base import Chart, ExampleOptions, Number, Numbers, key, note, option, value
from lengthwise.measurements.in_context import POINTS, REPEATS, InContextProbe
from lengthwise.measurements.table import Row, Table

if TYPE_CHECKING:
    from torch import Tensor

    from lengthwise.measurements.inside.trained import TrainedRun

DIGITS = 6  # of each stored number
PROMPTS = {
    "trained": "prompts of the training length",
    "long": "prompts of {length:,} examples",
    "repeated": "prompts of {points:,} examples, repeated {repeats} times",
}


@dataclass(frozen=True, kw_only=True)
class RecencyOptions(ExampleOptions):
    """The attention of the last x of prompts with `length` examples, and of prompts that repeat `points` examples."""

    length: int = option(base.LENGTH, times_training=4, minimum=2)
    examples: int = option(base.EXAMPLES_AT_LENGTH, 64)
    points: int = option(POINTS, times_training=1)
    repeats: int = option(REPEATS, 4, minimum=2)


class Recency(InContextProbe):
    """The attention weights of the last input of a prompt on earlier examples, per layer.

    Of the attention to labels, the table has the share that falls on the most recent tenth of them; it is 0.1 if all
    weights are equal. The last column is the head with the largest share.
    """

    name = "recency"
    Options = RecencyOptions
    columns = (
        key("prompts", "kind of prompts: trained, long or repeated"),
        key("on", "tokens that are attended to: labels or inputs"),
        key("layer"),
        key("head"),
        key("place", "place of the token, 0 is the farthest"),
        value("weight", "attention weight", bounds=(0.0, 1.0)),
        value("recent", "share of the most recent tenth", percent=True, bounds=(0.0, 1.0)),
        note("n", "number of prompts"),
    )
    charts = (
        Chart(
            kind="curves",
            title="What the last question attends to",
            x="place",
            y="weight",
            colour="layer",
            facet=("encoding",),
            where={"on": "labels"},
            about="A prompt consists of inputs x with their labels y. The charts show the attention weights of the "
            "last x on the labels of {length:,} examples, from the farthest to the most recent. They are means over "
            "heads, {n} prompts and seeds. Pale lines are the first layers, and the full colour is the last one.",
        ),
        *(
            Chart(
                kind="curves",
                title=f"Heads of the last layer: attention weights on inputs, {title}",
                x="place",
                y="weight",
                colour="head",
                facet=("encoding",),
                where={"on": "inputs", "prompts": prompts},
                seeds="first",
                about="One line for each head, from the first seed.",
            )
            for prompts, title in PROMPTS.items()
        ),
    )
    tables = (
        Numbers(
            title="Share of the most recent tenth of the labels",
            numbers=(
                Number(head="layer {layer}", y="recent", by=("layer",)),
                Number(head="best head", y="recent", how="max"),
            ),
            about="The share of the weights on labels that falls on the most recent tenth of the labels; it is 10 % "
            "if all weights are equal. The last column shows the head with the largest share.",
        ),
    )

    def measure(self, trained: "TrainedRun", options: RecencyOptions, progress: base.OnProgress) -> Iterator[Row]:
        """Yield the mean weights of the last x over the prompts: in long prompts on the labels before it, in all
        layers.

        In the last layer also on the inputs: in prompts of the training length, in long ones, and in those of
        repeated points.
        """
        import torch

        from lengthwise.measurements.inside.attention import attention_calls
        from lengthwise.measurements.inside.prompts import repeated_prompts
        from lengthwise.measurements.inside.trained import grid_rows

        train_length = trained.run.training.train_length
        kinds = {
            "trained": (train_length, 1),
            "long": (options.length, 1),
            "repeated": (options.points, options.repeats),
        }
        for kind, (length, repeats) in kinds.items():
            sums: list[Tensor] = []
            for batch, positions in repeated_prompts(trained, options, length, repeats):
                last_question = batch.inputs.shape[1] - 2  # before its label
                calls = attention_calls(trained.model, batch.inputs, positions)
                weights = [call.row(last_question).softmax(-1).sum(0).cpu() for call in calls]
                sums = [a + b for a, b in zip(sums, weights, strict=True)] if sums else weights
                progress(len(batch) / len(kinds) / options.examples)
            means = torch.stack(sums) / options.examples
            layers, heads, _ = means.shape
            # Inputs and labels alternate. The last input sees all labels but its own.
            means_on = {"inputs": ([layers], means[-1:, :, 0::2]), "labels": (range(1, layers + 1), means[..., 1:-1:2])}
            for on, (numbers, weights_on) in means_on.items():
                if on == "inputs" or kind == "long":
                    keys: dict[str, Any] = {"layer": numbers, "head": heads, "place": range(weights_on.shape[-1])}
                    for row in grid_rows(keys, DIGITS, weight=weights_on):
                        yield {"prompts": kind, "on": on, **row, "n": options.examples}

    def derive(self, answer: Table, facts: Mapping[str, Any]) -> Table:
        """Add the share of the most recent tenth for each layer and head."""
        heads: dict[tuple[int, int], list[float]] = {}
        for (layer, head), rows in answer.groups("weight", ("layer", "head"), {"on": "labels"}).items():
            heads[layer, head] = [answer.column("weight")[n] for n in rows]
        return Table.from_rows(
            [*answer, *({"layer": layer, "head": head, "recent": recent(w)} for (layer, head), w in heads.items())]
        )


def recent(weights: Sequence[float]) -> float:
    """Return the share of the weights on the most recent tenth."""
    total = math.fsum(weights)
    return math.fsum(weights[-max(1, round(0.1 * len(weights))) :]) / total if total else math.nan
