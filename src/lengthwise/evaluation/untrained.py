"""What the baselines of a task score on the examples that a model is asked; worked out once for the same examples."""

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Baseline, Batch, PrefixTask, Task

KEPT = 256  # curves, the last used ones; a curve has one number for each length

Curve = dict[int, float]  # the mean score by length; a length where the baseline says nothing is left out
_curves: OrderedDict[tuple[str, ...], Curve] = OrderedDict()


def baseline_scores(
    task: Task, examples: Batch, lengths: Sequence[int], before: Callable[[], None] = lambda: None
) -> dict[str, Curve]:
    """By baseline, in the task's order, its mean score at each of `lengths`, on these examples and as the task scores a model's.
    `before` is called ahead of every piece of work, and may raise.

    A process keeps what it has found: every run of a study is asked the same examples, and only the first one pays.
    """
    found = {}
    own = task.baselines()
    asked = _identity(examples) if own else ""
    for baseline in own:
        made_by = f"{type(task).__module__}.{type(task).__qualname__}"
        curve = _kept(asked, made_by, task.metric, baseline.name, baseline.fitted_on)
        missing = [n for n in lengths if n not in curve]
        if missing:
            prefixes = isinstance(task, PrefixTask) and not baseline.by_length
            new = _curve(baseline, examples, range(1, max(lengths) + 1) if prefixes else missing, before)
            for length, score in new.items():
                if not math.isfinite(score):
                    raise ConfigError(
                        f"the baseline {baseline.name!r} of {type(task).__name__} scores {score} at length {length}; its scores "
                        "have to be finite, or None where it says nothing"
                    )
            curve.update(new)
        found[baseline.name] = {n: curve[n] for n in lengths if n in curve}
    return found


def stored(task: Task, curves: dict[str, Curve], length: int) -> list[dict[str, Any]]:
    """The baselines at one length as they are kept beside a score: name, score, and whether it is a floor."""
    return [
        {"name": baseline.name, "score": curves[baseline.name][length], "floor": baseline.floor}
        for baseline in task.baselines()
        if length in curves[baseline.name]
    ]


def _curve(baseline: Baseline, examples: Batch, lengths: Sequence[int], before: Callable[[], None]) -> Curve:
    size = baseline.at_once or len(examples)
    sums, count = torch.zeros(len(lengths), dtype=torch.float64), 0
    for start in range(0, len(examples), size):
        before()
        scores = baseline.scores(examples[start : start + size], lengths)
        if scores is not None:
            sums += scores.double().sum(0)
            count += len(scores)
    return (
        dict(zip(lengths, (float(f"{value:.6g}") for value in (sums / count).tolist()), strict=True)) if count else {}
    )


def _kept(*key: str) -> Curve:
    """What is known of a curve, to be added to."""
    curve = _curves.setdefault(key, {})
    _curves.move_to_end(key)
    while len(_curves) > KEPT:
        _curves.popitem(last=False)
    return curve


def _identity(examples: Batch) -> str:
    """Of the examples themselves, whatever they were drawn by: all that the batch holds."""
    parts = [part for part in vars(examples).values() if isinstance(part, Tensor)]
    digest = hashlib.blake2b(repr([(part.shape, part.dtype) for part in parts]).encode(), digest_size=16)
    for part in parts:
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()
