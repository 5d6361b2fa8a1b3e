"""The measurement of recency: the attention weights of the last question of a prompt."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.models import Model
from lengthwise.probes.base import OnProgress
from lengthwise.probes.measuring.in_context import repeated_prompts
from lengthwise.probes.measuring.rows import attention_calls
from lengthwise.probes.measuring.trained_run import TrainedRun, measurement, numbers, report
from lengthwise.probes.recency import RecencyQuestion

Numbers = Float[Tensor, "b t w"]


@measurement
def measure(trained: TrainedRun, question: RecencyQuestion, on_progress: OnProgress = None) -> dict[str, Any]:
    """Return the result for one run.

    `layers` [layer][head][key]: the mean weights of the last x on the y's before it over the prompts, the farthest first; key j of
    n examples is at j / (n − 1). `last`: the last layer's weights [head][key] on the x's, in prompts of the training length
    (`trained`), of `length` (`long`) and of repeated points (`repeated`).
    """
    train_length = trained.run.training.train_length
    kinds = {
        "trained": (train_length, 1),
        "long": (question.length, 1),
        "repeated": (question.points, question.repeats),
    }
    means = {}
    for kind, (length, repeats) in kinds.items():
        sums: list[Tensor] = []
        for batch, positions in repeated_prompts(trained, question, length, repeats):
            weights = [part.sum(0).cpu() for part in last_question_weights(trained.model, batch.inputs, positions)]
            sums = [a + b for a, b in zip(sums, weights, strict=True)] if sums else weights
            report(on_progress, len(batch) / len(kinds))
        means[kind] = torch.stack(sums) / question.examples
    last = {kind: numbers(on_inputs(weights[-1]), 6) for kind, weights in means.items()}
    layers = numbers(on_labels(means["long"]), 6)
    return {"layers": layers, "last": last, "train_length": train_length, "n": question.examples}


@torch.no_grad()
def last_question_weights(
    model: Model, inputs: Numbers, positions: Int[Tensor, "#b t"] | None = None
) -> list[Float[Tensor, "b h t"]]:
    """Return for each layer the weights of the last x of prompts x_1, y_1, ..., x_n, y_n on all tokens.

    Only this row of the attention matrix is computed.
    """
    query = inputs.shape[1] - 2
    return [call.row(query).softmax(-1) for call in attention_calls(model, inputs, positions)]


def on_labels(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """Return the weights on the y tokens that the last x sees, which are all except its own."""
    return weights[..., 1:-1:2]


def on_inputs(weights: Float[Tensor, "*b t"]) -> Float[Tensor, "*b n"]:
    """Return the weights on the x tokens, including the last one itself."""
    return weights[..., 0::2]
