"""Checks of the scores that a task computes from a model's output."""

import math
from typing import Any

import torch
from torch import Tensor

from lengthwise.tasks.base import PooledTask, Task
from lengthwise.user_classes import described

ROUNDING = 1e-6  # by which a score may exceed the limits of its metric


class EvaluationError(ValueError):
    """A score that cannot be used. The message is one line with the length, the reason and what to do."""


SCORES = {
    "curve": ("example and length", 2),
    "token_scores": ("target", 2),
    "counts": ("example and count", 2),
}  # what each method has a score for, and its axes


def required_scores(scores: Any, method: str, task: Task, targets: torch.Size) -> Tensor:
    """Return what a task's method returned. Raise `EvaluationError` unless it has one real number for each of what it
    scores.

    `targets`: the shape of the batch's targets.
    """
    what, axes = SCORES.get(method, ("example", 1))
    fits = isinstance(scores, Tensor) and scores.ndim == axes and scores.is_floating_point()
    if fits and (scores.shape == targets if method == "token_scores" else len(scores) == targets[0]):
        return scores
    sizes = {"curve": "batch, lengths", "token_scores": "batch, targets", "counts": "batch, counts"}
    size = sizes.get(method, "batch")
    raise EvaluationError(
        f"{type(task).__name__}.{method} must return one float64 score per {what}, [{size}] with batch {targets[0]}, "
        f"got {described(scores)}"
    )


def require_own_scores_finite(scores: Tensor, from_nan: Tensor, method: str, task: Task, length: int) -> None:
    """Raise `EvaluationError` for a score that is not finite, unless the logits are not (`from_nan` [b])."""
    bad = ~scores.isfinite().view(len(scores), -1).all(1) & ~from_nan
    if bool(bad.any()):
        raise EvaluationError(
            f"{type(task).__name__}.{method} returned a score that is not a finite number for {int(bad.sum())} of "
            f"{len(scores)} examples of length {length}, although the model's logits are finite; correct the task's "
            "method"
        )


def within_limits(values: Tensor, task: Task, length: int) -> Tensor:
    """Return finite scores, cut to the metric's limits. Raise `EvaluationError` if one exceeds them clearly."""
    low, high = task.metric.limits or (-math.inf, math.inf)
    if not low - ROUNDING <= float(values.min()) <= float(values.max()) <= high + ROUNDING:
        raise EvaluationError(
            f"at length {length} the scores of {type(task).__name__} lie between {float(values.min()):g} and "
            f"{float(values.max()):g}, beyond the limits {low:g} to {high:g} of its metric {task.metric.name!r}; "
            "correct the task's scores, or Metric.low and Metric.high"
        )
    return values.clamp(low, high)


def scores_of_examples(task: Task, values: Tensor, length: int) -> tuple[Tensor, dict[str, float]]:
    """Return finite scores within the limits of the metric, and further scores by name.

    `values`: scores of examples, [b], or the counts of a `PooledTask`, [b, k]. Its scores are only within the limits on
    average.
    """
    if not isinstance(task, PooledTask):
        return within_limits(values, task, length), {}
    scores, others = task.pooled(values)
    within_limits(scores.mean()[None], task, length)
    return scores, others
