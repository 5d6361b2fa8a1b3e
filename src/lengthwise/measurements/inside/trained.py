"""Trained runs, and batches of their test examples."""

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.base import ExampleOptions, OnProgress, Probe
from lengthwise.measurements.table import Table
from lengthwise.models import Model
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.training import load_weights
from lengthwise.training.numerics import reproducible

TOKENS = 4096  # tokens per batch; q and k of all layers are held in memory


@dataclass(frozen=True)
class TrainedRun:
    """A run with its trained model. `against`: the run that it is compared with, if any."""

    run: Run
    model: Model
    task: Task
    against: "TrainedRun | None" = None

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device


def load_trained_run(run: Run, folder: Path, *, device: torch.device | str = "cpu") -> TrainedRun:
    """Return the run with its model from a folder. Raise `CheckpointError` for missing or damaged weights."""
    return TrainedRun(run, load_weights(folder, run, device=device).eval(), run.task.build())


def answer(probe: Probe, trained: TrainedRun, options: Any, progress: OnProgress | None = None) -> tuple[Table, float]:
    """Return the answer of a probe, and how many seconds it took. The same question has the same answer."""
    start = time.perf_counter()
    with reproducible(trained.device), torch.no_grad():
        table = Table.from_rows(probe.measure(trained, options, progress or (lambda share: None)))
    return table, round(time.perf_counter() - start, 3)


def require_attention(run: Run) -> None:
    """Raise `ConfigError` for a run whose model has no attention. Builds no model."""
    if run.model.mixer is not None:
        raise ConfigError(
            f"the model of run {run.key[:8]} is {run.label}, which has no attention; name a Transformer's run"
        )


def count_of_examples(trained: TrainedRun, options: ExampleOptions) -> int:
    """Return the number of test examples: fewer than the question asks for if the task has no more."""
    available = trained.task.available(options.length, "test")
    return options.examples if available is None else min(options.examples, available)


def example_batches(
    trained: TrainedRun, options: ExampleOptions, runs: Sequence[Run]
) -> Iterator[tuple[Batch, list[Tensor | None]]]:
    """Yield batches of the test examples, with the position IDs that the position scheme of each run assigns."""
    task, length = trained.task, options.length
    examples = task.examples(options.seed, count_of_examples(trained, options), length, "test")
    yield from in_batches(
        examples, [positions_of(task, run, examples, options, length) for run in runs], trained.device
    )


def positions_of(task: Task, run: Run, examples: Batch, options: ExampleOptions, length: int) -> Tensor | None:
    """Return the position IDs that the run's position scheme assigns to test examples of this length."""
    return position_scheme_for(task, run.training.positions).positions(
        examples.inputs, None, generator(options.seed, "layout", length), training=False
    )


def in_batches(
    examples: Batch, positions: Sequence[Tensor | None], device: torch.device, tokens: int | None = None
) -> Iterator[tuple[Batch, list[Tensor | None]]]:
    """Yield batches of at most `tokens` tokens (None: `TOKENS`) on the device, each with its position IDs."""
    size = max(1, (tokens or TOKENS) // examples.inputs.shape[1])
    for start in range(0, len(examples), size):
        rows = slice(start, start + size)
        yield examples[rows].to(device), [None if ids is None else ids[rows].to(device) for ids in positions]


def number(value: float, digits: int | None = None) -> float:
    """Return the number with this many significant digits (None: all)."""
    return float(f"{value:.{digits}g}") if digits is not None and math.isfinite(value) else value


def grid_rows(
    keys: Mapping[str, int | Sequence[Any]], digits: int | None = None, **values: Tensor
) -> Iterator[dict[str, Any]]:
    """Yield a row for each element of tensors with one axis for each key. `keys`: an axis' labels, or its size: 1,
    2, ...

    `digits`: significant digits of the numbers (None: all).
    """
    labels = [range(1, axis + 1) if isinstance(axis, int) else axis for axis in keys.values()]
    cells = {name: tensor.flatten().tolist() for name, tensor in values.items()}
    for n, row in enumerate(itertools.product(*labels)):
        yield dict(zip(keys, row, strict=True)) | {name: number(flat[n], digits) for name, flat in cells.items()}
