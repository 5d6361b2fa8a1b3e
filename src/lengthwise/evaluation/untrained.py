"""Scores of a task's baselines on the examples of an evaluation, computed once for the same examples."""

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError, near_miss
from lengthwise.metrics import METRICS
from lengthwise.tasks.base import Baseline, Batch, PrefixTask, Task
from lengthwise.user_classes import described, source_location, wrong_return

Curve = dict[int, float]  # mean score by length, without lengths at which the baseline makes no prediction


def baselines_of(task: Task) -> list[Baseline]:
    """Return `task.baselines()`. Raise `ConfigError` unless they are baselines.

    If the task has a metric of its own with a `scale`, one of them must have that name.
    """
    baselines: Any = task.baselines()
    if not isinstance(baselines, (list, tuple)) or not all(isinstance(baseline, Baseline) for baseline in baselines):
        raise wrong_return(task, "baselines", "a list of lengthwise.tasks.Baseline", baselines)
    names = [baseline.name for baseline in baselines]
    scale = task.metric.scale
    if task.metric not in METRICS and scale and scale not in names:
        raise ConfigError(
            f"{source_location(type(task))}: the metric {task.metric.name!r} of {type(task).__name__} has the scale "
            f"{scale!r}, which is none of its baselines{near_miss(scale, names)}; available: "
            f"{', '.join(names) or 'none'}"
        )
    return list(baselines)


def baseline_scores(
    task: Task, examples: Batch, lengths: Sequence[int], before: Callable[[], None] = lambda: None
) -> dict[str, Curve]:
    """Return for each baseline, in the task's order, its mean score on these examples at each of `lengths`.

    `before` is called before every call of a baseline, and may raise. Scores are cached in the process, because all
    runs of a study use the same examples.
    """
    curves = {}
    low, high = task.metric.limits or (-math.inf, math.inf)
    baselines = baselines_of(task)
    examples_hash = _hash(examples) if baselines else ""
    for baseline in baselines:
        task_class = f"{type(task).__module__}.{type(task).__qualname__}"
        curve = cached_curve(examples_hash, task_class, task.metric.name, baseline.name, baseline.fitted_on)
        missing = [n for n in lengths if n not in curve]
        if missing:
            all_prefixes = isinstance(task, PrefixTask) and not baseline.fit_per_length
            new_lengths = range(1, max(lengths) + 1) if all_prefixes else missing
            new = _curve(type(task).__name__, baseline, examples, new_lengths, before)
            for length, score in new.items():
                if not math.isfinite(score) or not low <= score <= high:
                    limits = f" from {low:g} to {high:g}, the limits of its metric" if task.metric.limits else ""
                    raise ConfigError(
                        f"the baseline {baseline.name!r} of {type(task).__name__} must have finite scores{limits}, or "
                        f"return None, got {score} at length {length}"
                    )
            curve.update(new)
        curves[baseline.name] = {n: curve[n] for n in lengths if n in curve}
    return curves


def baseline_details(task: Task, curves: dict[str, Curve], length: int) -> list[dict[str, Any]]:
    """Return the baselines at one length as they are stored with a score: name, score, and whether it is a floor."""
    return [
        {"name": baseline.name, "score": curves[baseline.name][length], "floor": baseline.floor}
        for baseline in baselines_of(task)
        if length in curves[baseline.name]
    ]


def _curve(task: str, baseline: Baseline, examples: Batch, lengths: Sequence[int], before: Callable[[], None]) -> Curve:
    size = baseline.examples_per_call or len(examples)
    sums, count = torch.zeros(len(lengths), dtype=torch.float64), 0
    for start in range(0, len(examples), size):
        before()
        batch = examples[start : start + size]
        scores: Any = baseline.scores(batch, lengths)
        if scores is not None:
            if not isinstance(scores, Tensor) or scores.shape != (len(batch), len(lengths)) or scores.is_complex():
                raise ConfigError(
                    f"the baseline {baseline.name!r} of {task} must return scores [{len(batch)} examples, "
                    f"{len(lengths)} lengths], got {described(scores)}"
                )
            sums += scores.double().sum(0)
            count += len(scores)
    means = (sums / count).tolist() if count else []
    return {length: float(f"{mean:.6g}") for length, mean in zip(lengths, means, strict=False)}


@lru_cache(maxsize=256)  # a curve has one number for each length
def cached_curve(*key: str) -> Curve:
    """Return the cached part of a curve, at first empty; the caller adds to it in place."""
    return {}


def _hash(examples: Batch) -> str:
    """Return a hash of all tensors in the batch, so that equal examples are recognized whatever their origin."""
    tensors = [value for value in vars(examples).values() if isinstance(value, Tensor)]
    digest = hashlib.blake2b(repr([(t.shape, t.dtype) for t in tensors]).encode(), digest_size=16)
    for t in tensors:
        digest.update(t.contiguous().numpy().data)
    return digest.hexdigest()
