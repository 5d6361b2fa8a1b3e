"""Trained runs, batches of their test examples, and numbers for the store."""

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.models import Model
from lengthwise.positions import position_scheme_for
from lengthwise.probes.base import ModelQuestion, OnProgress
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.training import load_weights
from lengthwise.training.numerics import reproducible

P = ParamSpec("P")
Result = dict[str, Any]

TOKENS = 4096  # tokens per batch; q and k of all layers are held in memory


@dataclass(frozen=True)
class TrainedRun:
    """A run with its trained model."""

    run: Run
    model: Model
    task: Task

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def load_trained_run(
    run: Run, folder: Path, *, device: torch.device | str = "cpu", backend: str = "auto"
) -> TrainedRun:
    """Return the run with its trained model from a folder. Raise `CheckpointError` if the weights are missing or damaged."""
    return TrainedRun(run, load_weights(folder, run, device=device, backend=backend).eval(), run.task.build())


def measurement(
    measure: Callable[Concatenate[TrainedRun, P], Result],
) -> Callable[Concatenate[TrainedRun, P], Result]:
    """Let a measurement of a run be reproducible, and add its duration in seconds to the result."""

    @functools.wraps(measure)
    def timed(trained: TrainedRun, /, *args: P.args, **options: P.kwargs) -> Result:
        start = time.perf_counter()
        with reproducible(trained.device), torch.no_grad():
            result = measure(trained, *args, **options)
        return {**result, "seconds": round(time.perf_counter() - start, 3)}

    return timed


def require_attention(run: Run) -> None:
    """Raise `ConfigError` for a run whose model has no attention. Builds no model."""
    if run.model.mixer is not None:
        raise ConfigError(
            f"the model of run {run.key[:8]} is {run.label}, which has no attention; name a Transformer's run"
        )


def example_batches(
    trained: TrainedRun, question: ModelQuestion, runs: Sequence[Run]
) -> Iterator[tuple[Batch, list[Tensor | None]]]:
    """Yield batches of the question's test examples, with the position IDs that the position scheme of each run assigns."""
    task, length = trained.task, question.length
    available = task.available(length, "test")
    count = question.examples if available is None else min(question.examples, available)
    examples = task.examples(question.seed, count, length, "test")
    yield from in_batches(
        examples, [positions_of(task, run, examples, question, length) for run in runs], trained.device
    )


def positions_of(task: Task, run: Run, examples: Batch, question: ModelQuestion, length: int) -> Tensor | None:
    """Return the position IDs that the run's position scheme assigns to test examples of this length."""
    return position_scheme_for(task, run.training.positions).positions(
        examples.inputs, None, generator(question.seed, "layout", length), training=False
    )


def in_batches(
    examples: Batch, positions: Sequence[Tensor | None], device: torch.device, tokens: int | None = None
) -> Iterator[tuple[Batch, list[Tensor | None]]]:
    """Yield batches of at most `tokens` tokens (None: `TOKENS`) on the device, each with its position IDs."""
    size = max(1, (tokens or TOKENS) // examples.inputs.shape[1])
    for start in range(0, len(examples), size):
        rows = slice(start, start + size)
        yield examples[rows].to(device), [None if ids is None else ids[rows].to(device) for ids in positions]


def report(on_progress: OnProgress, examples: float) -> None:
    if on_progress is not None:
        on_progress(examples)


def numbers(values: Tensor, digits: int | None = None) -> list[Any]:
    """Return a tensor as nested lists of numbers; None where one is not finite. `digits`: of each number (None: all)."""
    if values.ndim > 1:
        return [numbers(row, digits) for row in values]
    return [number(value, digits) for value in values.tolist()]


def number(value: float, digits: int | None = None) -> float | None:
    """Return the number with this many significant digits, or None if it is not finite."""
    if not math.isfinite(value):
        return None
    return value if digits is None else float(f"{value:.{digits}g}")
