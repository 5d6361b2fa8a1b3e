"""The measurement of attention-distance, and which runs can be compared."""

import json
import math
from collections.abc import Sequence
from typing import Any

import torch

from lengthwise.config import ConfigError, Run
from lengthwise.evaluation import check_lengths
from lengthwise.probes.attention_distance import AttentionDistanceQuestion
from lengthwise.probes.attention_distance.distance import attention_distance
from lengthwise.probes.base import OnProgress
from lengthwise.probes.measuring.trained_run import (
    TrainedRun,
    example_batches,
    measurement,
    numbers,
    report,
    require_attention,
)


def require(a: Run, questions: Sequence[AttentionDistanceQuestion], b: Run | None) -> None:
    """Raise `ConfigError` if the runs differ in task or depth, or if one of them does not support a length. Builds no model."""
    assert b is not None
    if a.key == b.key:
        raise ConfigError(f"run {a.key[:8]} cannot be compared with itself; name another run")
    for run in (a, b):
        require_attention(run)
    if a.task.identity() != b.task.identity():
        raise ConfigError(
            f"run {a.key[:8]} is trained on {_task_description(a)} and run {b.key[:8]} on {_task_description(b)}, but attention is "
            "compared on the same examples; name runs of the same task with the same settings"
        )
    if a.model.num_layers != b.model.num_layers:
        raise ConfigError(
            f"run {a.key[:8]} has {a.model.num_layers} layers and run {b.key[:8]} has {b.model.num_layers}, but layers are "
            "compared one to one; name runs of equal depth"
        )
    for run in (a, b):
        check_lengths(run, [question.length for question in questions])


def _task_description(run: Run) -> str:
    settings = ", ".join(f"{k}={json.dumps(v)}" for k, v in run.task.identity().items() if k not in ("is", "class"))
    return f"{run.task.name}({settings})"


@measurement
def measure(
    a: TrainedRun, b: TrainedRun, question: AttentionDistanceQuestion, on_progress: OnProgress = None
) -> dict[str, Any]:
    """Return the result about `a`; `b` is the run that the question names.

    `layers`: the mean distance over the examples in each layer, in nats; None if it is not finite. `standard_errors`: of these
    means (None for a single example). `n`: number of examples. `places`: number of queries in all examples. Queries up to the last
    scored token count, which are those of question and answer, without padding.
    """
    parts, query_count = [], 0
    for batch, (in_a, in_b) in example_batches(a, question, [a.run, b.run]):
        queries = batch.scored.flip(1).cumsum(1).flip(1) > 0
        query_count += int(queries.sum())
        distance = attention_distance(
            a.model, b.model, batch.inputs, queries=queries, positions=(in_a, in_b), variant=question.variant
        )
        parts.append(distance.cpu())
        report(on_progress, len(batch))
    values = torch.cat(parts).double()
    errors = values.std(0) / math.sqrt(len(values)) if len(values) > 1 else torch.full(values.shape[1:], math.nan)
    means = {"layers": numbers(values.mean(0)), "standard_errors": numbers(errors)}
    return {**means, "n": len(values), "places": query_count}
