"""Scores on prompts with repeated examples, which need no attention and so work with every model."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.probes.base import OnProgress
from lengthwise.probes.measuring.in_context import examples_of_prompts, function_task, prompt_batches
from lengthwise.probes.measuring.trained_run import TrainedRun, measurement, number, numbers, report
from lengthwise.probes.repeated_examples import RepeatedExamplesQuestion
from lengthwise.probes.repeated_examples.prompts import Prompt
from lengthwise.tasks.base import generator

TOKENS = 16_384  # per forward pass; more than for attention, because only scores are needed
GROUPS = 40  # of prompts; their means are stored for a later bootstrap over groups

Prompts = Callable[[int], list[Prompt]]  # of a task with this number of dimensions


@measurement
def measure(
    trained: TrainedRun, question: RepeatedExamplesQuestion, prompts: Prompts, on_progress: OnProgress = None
) -> dict[str, Any]:
    """Return the result for one run.

    `prompts`: each with its `kind` and `at`, the range of scored examples (`start`, `stop`), their mean `score`, its means over
    `groups` of prompts, and its interval (`low`, `high`). `curve` has the same for each example of the prompt, except for prompts
    with one duplicate, which is the last of the points among copies of the second to last. Intervals are the 2.5 to 97.5
    percentiles of a bootstrap over prompts.
    """
    task, resamples = function_task(trained), draw_resamples(question)
    all_prompts = prompts(task.dims)
    xs, ys = examples_of_prompts(trained, question, question.points)
    results = []
    for prompt in all_prompts:
        examples = torch.tensor(prompt.examples) + (question.points - 2 if prompt.kind == "serial" else 0)
        parts = []
        for batch, positions in prompt_batches(trained, question, xs[:, examples], ys[:, examples], TOKENS):
            inputs = batch.inputs
            logits = trained.model(inputs) if positions is None else trained.model(inputs, positions=positions)
            parts.append(task.curve(logits, batch).cpu())
            report(on_progress, len(batch) / len(all_prompts))
        results.append(prompt_result(prompt, torch.cat(parts).double(), resamples))
    return {"prompts": results, "metric": task.metric.name, "better": task.metric.better, "n": question.examples}


def prompt_result(prompt: Prompt, values: Float[Tensor, "b n"], resamples: Int[Tensor, "r b"]) -> dict[str, Any]:
    scores = values[:, prompt.start : prompt.stop].mean(1)
    low, high = interval(scores[:, None], resamples)
    data: dict[str, Any] = {"kind": prompt.kind, "at": prompt.at, "start": prompt.start, "stop": prompt.stop}
    data |= {"score": number(float(scores.mean()), 6), "low": number(float(low), 6), "high": number(float(high), 6)}
    data["groups"] = numbers(torch.stack([part.mean() for part in scores.tensor_split(min(GROUPS, len(scores)))]), 6)
    if prompt.kind != "serial":
        low, high = interval(values, resamples)
        data["curve"] = {"mean": numbers(values.mean(0), 6), "low": numbers(low, 6), "high": numbers(high, 6)}
    return data


def interval(
    values: Float[Tensor, "b n"], resamples: Int[Tensor, "r b"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the 2.5 and 97.5 percentiles of the means of resamples. Each row of `resamples` has the indices of its prompts."""
    counts = torch.nn.functional.one_hot(resamples, len(values)).sum(1).double()
    low, high = torch.quantile(counts @ values.double() / len(values), torch.tensor([0.025, 0.975]).double(), 0)
    return low, high


def draw_resamples(question: RepeatedExamplesQuestion) -> Int[Tensor, "r b"]:
    """Return the indices of the prompts in each resample, which are the same for every run with the same question."""
    rng = generator(question.seed, "bootstrap", question.examples)
    return torch.randint(question.examples, (question.resamples, question.examples), generator=rng)
