"""Runs that follow from other runs: the stages of a study, the best runs, and the size of a training that goes on."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lengthwise.config import ConfigError, Run, TrainingConfig
from lengthwise.measurements import Table
from lengthwise.store import Store
from lengthwise.values import TRAINING, shown

MAX_SHARE = 1000
"""The largest training of a run that starts from another one, relative to that of the other one."""


def require_runs(what: str, runs: Any) -> tuple[Run, ...]:
    """Return the runs as a tuple. Raise `ConfigError` for anything else than a list of `Run`."""
    if not isinstance(runs, Iterable) or isinstance(runs, (str, Mapping)):
        raise ConfigError(f"{what} must be a list of Run, as grid(...) returns, got {runs!r}")
    runs = tuple(runs)
    for run in runs:
        if not isinstance(run, Run):
            raise ConfigError(f"{what} must be a list of Run, got {run!r} in it")
    return runs


def steps_of(parent: TrainingConfig, own: TrainingConfig, steps: int | None, share: float | None) -> int:
    """Return the number of steps of a run that starts from another one, by `steps` or `share` (see `continued`)."""
    if (steps is None) == (share is None):
        raise ConfigError(f"continued() needs either steps or share, got {steps=} and {share=}")
    if steps is not None:
        return steps
    number: Any = share
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number <= MAX_SHARE:
        raise ConfigError(
            f"share must be a number of more than 0 and at most {MAX_SHARE}, got {shown(number)}; use steps=0 to "
            "evaluate without training"
        )
    tokens = parent.steps * parent.batch_size * parent.train_length
    return max(1, round(number * tokens / (own.batch_size * own.train_length)))


def best_runs(store: Store, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the best of the runs that differ in nothing but their learning rate, for each such group, in the order of
    `runs`.

    The best run has the best score at its training length, on the task as trained. Among equal scores it is the one
    with the lowest training loss, the mean of the last tenth of its curve. If the runs end when they have learned their
    task (`StopWhenLearned`), the one with the fewest steps is the best, and its score decides only among equal numbers
    of steps. A run without a score, for example one that diverged, is never the best. Raise `ConfigError` if a group
    has no run with a score, or if `runs` are no runs.

    >>> rates = grid(["rope"], ["copy"], [100], training=TrainingConfig(train_length=8, learning_rate=1e-3))  # and 3e-3
    >>> best_runs(store, rates)
    """
    groups: dict[str, list[Run]] = {}
    for run in require_runs("best_runs: runs", runs):
        any_rate = dataclasses.replace(run, training=dataclasses.replace(run.training, learning_rate=1.0))
        groups.setdefault(any_rate.key, []).append(run)
    best = []
    for group in groups.values():
        ranks = {run: rank for run in group if (rank := _rank(store, run)) is not None}
        if not ranks:
            raise ConfigError(
                f"no run of {group[0].label} on {group[0].task.label} has a score at length "
                f"{group[0].training.train_length}; "
                "evaluate it at the training length, or see why its runs failed"
            )
        best.append(min(ranks, key=lambda run: ranks[run]))
    return tuple(best)


def _rank(store: Store, run: Run) -> tuple[float, float, float] | None:
    """Return numbers of which the smallest are best, or None without a score."""
    length = run.training.train_length
    scores = [row for row in store.scores([run.key]) if row.length == length and "shift" not in row.question]
    if not scores or not math.isfinite(scores[0].mean):
        return None
    trained = store.answer(run.key, TRAINING, {})
    losses = list(filter(math.isfinite, Table.from_data(trained.rows).column("loss"))) if trained else []
    last = losses[-max(1, len(losses) // 10) :]
    row = store.runs_of([run.key])[run.key]
    score = scores[0].mean if row.better == "lower" else -scores[0].mean
    return row.step if run.training.stop else 0, score, sum(last) / len(last) if last else math.inf
