"""The measurement of recency: the attention weights of the last question of a prompt."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import Run
from lengthwise.models import Model
from lengthwise.probes.base import OnProgress
from lengthwise.probes.measuring.in_context import (
    examples_of_prompts,
    prompt_batches,
    require_function_task,
    require_lengths,
)
from lengthwise.probes.measuring.rows import attention_calls
from lengthwise.probes.measuring.trained_run import TrainedRun, numbers, report, require_attention
from lengthwise.probes.recency.question import RecencyQuestion
from lengthwise.training.numerics import reproducible

Numbers = Float[Tensor, "b t w"]


def require(run: Run, questions: Sequence[RecencyQuestion]) -> None:
    """Raise `ConfigError` if the run has another kind of task or no attention, or the prompts are too long. Builds no model."""
    for question in questions:
        require_function_task(run, question)
        require_attention(run)
        require_lengths(run, [question.length, question.points * question.repeats])


def measure(trained: TrainedRun, question: RecencyQuestion, on_progress: OnProgress = None) -> dict[str, Any]:
    """Return the result for one run.

    `layers` [layer][head][key]: the mean weights of the last x on the y's before it over the prompts, the farthest first; key j of
    n examples is at j / (n − 1). `last`: the last layer's weights [head][key] on the x's, in prompts of the training length
    (`trained`), of `length` (`long`) and of repeated points (`repeated`).
    """
    start, train_length, points = time.perf_counter(), trained.run.training.train_length, question.points
    layers: list[Any] = []
    last = {}
    with reproducible(trained.device):
        for name, length in (("trained", train_length), ("long", question.length), ("repeated", points)):
            xs, ys = examples_of_prompts(trained, question, length)
            if name == "repeated":
                xs, ys = xs.repeat(1, question.repeats, 1), ys.repeat(1, question.repeats)
            sums: list[Tensor] = []
            for batch, positions in prompt_batches(trained, question, xs, ys):
                weights = [part.sum(0).cpu() for part in last_question_weights(trained.model, batch.inputs, positions)]
                sums = [a + b for a, b in zip(sums, weights, strict=True)] if sums else weights
                report(on_progress, len(batch) / 3)
            means = torch.stack(sums) / question.examples
            if name == "long":
                layers = numbers(on_labels(means), 6)
            last[name] = numbers(on_inputs(means[-1]), 6)
    result = {"layers": layers, "last": last, "train_length": train_length, "n": question.examples}
    return {**result, "seconds": round(time.perf_counter() - start, 3)}


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
