"""Studies with stages: the runs of the next stage follow from the stored scores of the one before."""

import dataclasses
import math
from collections.abc import Iterable

from lengthwise.config import ConfigError, Run
from lengthwise.store import Store


def best_runs(store: Store, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the best of the runs that differ in nothing but their learning rate, for each such group, in the order of `runs`.

    The best run has the best score at its training length, on the task as trained. Among equal scores it is the one with the
    lowest training loss, the mean of the last tenth of its curve. A run without a score, for example one that diverged, is never
    the best. Raise `ConfigError` if a group has no run with a score.

    >>> rates = grid(["rope"], ["copy"], [100], training=TrainingConfig(train_length=8, learning_rate=1e-3))  # and 3e-3
    >>> best_runs(store, rates)
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        any_rate = dataclasses.replace(run, training=dataclasses.replace(run.training, learning_rate=1.0))
        groups.setdefault(any_rate.key, []).append(run)
    best = []
    for group in groups.values():
        ranks = {run: rank for run in group if (rank := _rank(store, run)) is not None}
        if not ranks:
            raise ConfigError(
                f"no run of {group[0].label} on {group[0].task.label} has a score at length {group[0].training.train_length}; "
                "evaluate it at the training length, or see why its runs failed"
            )
        best.append(min(ranks, key=lambda run: ranks[run]))
    return tuple(best)


def _rank(store: Store, run: Run) -> tuple[float, float] | None:
    """Return numbers of which the smallest are best, or None without a score."""
    length = run.training.train_length
    scores = [row for row in store.scores([run.key]) if row.length == length and "shift" not in row.asked]
    if not scores or not math.isfinite(scores[0].mean):
        return None
    losses = [row.loss for row in store.curve(run.key) if math.isfinite(row.loss)]
    last = losses[-max(1, len(losses) // 10) :]
    score = scores[0].mean if scores[0].better == "lower" else -scores[0].mean
    return score, sum(last) / len(last) if last else math.inf
