"""Attention probes of trained runs: the question, its examples and batches, and the result as plain data."""

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.evaluation import check_lengths
from lengthwise.models import Model
from lengthwise.positions import position_scheme_for
from lengthwise.probes.attended_distance.measure import BINS, AttendedDistances, attended_distance
from lengthwise.probes.attention_distance.distance import attention_distance, require_variant
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.training import load_weights
from lengthwise.training.numerics import reproducible

ProbeQuestion = dict[str, Any]
TOKENS = 4096  # tokens per batch; q and k of all layers are held in memory


@dataclass(frozen=True)
class TrainedRun:
    """A run with its trained model."""

    run: Run
    model: Model
    task: Task

    @property
    def name(self) -> str:
        return f"{self.run.key[:8]} ({self.run.label}, seed {self.run.seed})"


def load_trained_run(
    run: Run, folder: Path, *, device: torch.device | str = "cpu", backend: str = "auto"
) -> TrainedRun:
    """Return the run with its trained model from a folder. Raise `CheckpointError` if the weights are missing or damaged."""
    return TrainedRun(run, load_weights(folder, run, device=device, backend=backend).eval(), run.task.build())


# ---- questions ----------------------------------------------------------------------------------------------------


def distance_question(against: str, length: int, examples: int = 10, seed: int = 0, variant: str = "") -> ProbeQuestion:
    """Return the question: the attention distance from the run `against`, at one length, on test examples of `seed`."""
    variant = variant or "jensen-shannon"
    require_variant(variant)
    _require_positive(length=length, examples=examples)
    return {
        "probe": "attention-distance",
        "against": against,
        "length": length,
        "examples": examples,
        "seed": seed,
        "variant": variant,
    }


def attended_question(length: int, examples: int = 100, seed: int = 0) -> ProbeQuestion:
    """Return the question: how far back a run attends, at one length, on test examples of `seed`."""
    _require_positive(length=length, examples=examples)
    return {"probe": "attended-distance", "length": length, "examples": examples, "seed": seed}


def _require_positive(**counts: Any) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")


def require_attention(run: Run) -> None:
    """Raise `ConfigError` for a run whose model has no attention. Builds no model."""
    if run.model.mixer is not None:
        raise ConfigError(f"run {run.key[:8]} is a {run.label}, which has no attention; name a Transformer's run")


def require_comparable(a: Run, b: Run, lengths: Iterable[int] = ()) -> None:
    """Raise `ConfigError` if the runs differ in task or depth, or if one of them does not support a length. Builds no model."""
    if a.key == b.key:
        raise ConfigError(f"run {a.key[:8]} cannot be compared with itself; name another run")
    for run in (a, b):
        require_attention(run)
    if a.task.identity() != b.task.identity():
        raise ConfigError(
            f"run {a.key[:8]} is trained on {_task_description(a)} and run {b.key[:8]} on {_task_description(b)}, but attention is "
            "compared on the same examples; name runs of the same task with the same settings"
        )
    layers = a.model.num_layers, b.model.num_layers
    if layers[0] != layers[1]:
        raise ConfigError(
            f"run {a.key[:8]} has {layers[0]} layers and run {b.key[:8]} has {layers[1]}, but layers are compared one to one; name "
            "runs of equal depth"
        )
    for run in (a, b):
        check_lengths(run, lengths)


def _task_description(run: Run) -> str:
    settings = ", ".join(f"{k}={json.dumps(v)}" for k, v in run.task.identity().items() if k not in ("is", "class"))
    return f"{run.task.name}({settings})"


# ---- measurements -------------------------------------------------------------------------------------------------


def measure_attention_distance(
    a: TrainedRun, b: TrainedRun, question: ProbeQuestion, on_progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Return the result of a `distance_question` about `a`; `b` is the run that the question names.

    `layers`: the mean distance over the examples in each layer, in nats; None if it is not finite. `standard_errors`: of these
    means (None for a single example). `n`: number of examples. `places`: number of queries in all examples. Queries up to the last
    scored token count, which are those of question and answer, without padding.
    """
    start, device = time.perf_counter(), next(a.model.parameters()).device
    distances, query_count = [], 0
    with reproducible(device):
        for batch, positions in _batches(a.task, question, [a.run, b.run], device):
            queries = batch.scored.flip(1).cumsum(1).flip(1) > 0
            query_count += int(queries.sum())
            distance = attention_distance(
                a.model,
                b.model,
                batch.inputs,
                queries=queries,
                positions=(positions[0], positions[1]),
                variant=question["variant"],
            )
            distances.append(distance.cpu())
            _report(on_progress, len(batch))
    values = torch.cat(distances).double()
    errors = values.std(0) / math.sqrt(len(values)) if len(values) > 1 else torch.full(values.shape[1:], math.nan)
    return {
        "layers": _numbers(values.mean(0)),
        "standard_errors": _numbers(errors),
        "n": len(values),
        "places": query_count,
        "seconds": round(time.perf_counter() - start, 3),
    }


def measure_attended_distance(
    trained: TrainedRun, question: ProbeQuestion, on_progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Return the result of an `attended_question`.

    `most` and `mass` [layer][head][bin] as in `AttendedDistances`: the number of queries whose highest logit is in a bin, and the
    share of all weights in it. The queries are the tokens that predict the answer (`Task.answer_mask`). `n`: number of examples.
    """
    start, device = time.perf_counter(), next(trained.model.parameters()).device
    parts: list[AttendedDistances] = []
    examples = 0
    with reproducible(device):
        for batch, positions in _batches(trained.task, question, [trained.run], device):
            queries = trained.task.answer_mask(batch)
            parts.append(attended_distance(trained.model, batch.inputs, queries=queries, positions=positions[0]))
            examples += len(batch)
            _report(on_progress, len(batch))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return {
        "bins": BINS,
        "most": total.most.tolist(),
        "mass": (total.mass.double() / total.queries).tolist(),
        "queries": total.queries,
        "n": examples,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _batches(
    task: Task, question: ProbeQuestion, runs: list[Run], device: torch.device
) -> Iterable[tuple[Batch, list[Tensor | None]]]:
    """Yield batches of the question's test examples, with the position IDs that each run's position scheme assigns."""
    length = question["length"]
    available = task.available(length, "test")
    count = question["examples"] if available is None else min(question["examples"], available)
    examples = task.examples(question["seed"], count, length, "test")
    position_ids = [
        position_scheme_for(task, run.training.positions).positions(
            examples.inputs, None, generator(question["seed"], "layout", length), training=False
        )
        for run in runs
    ]
    size = max(1, TOKENS // examples.inputs.shape[1])
    for start in range(0, len(examples), size):
        rows = slice(start, start + size)
        yield examples[rows].to(device), [None if p is None else p[rows].to(device) for p in position_ids]


def _report(on_progress: Callable[[int], None] | None, examples: int) -> None:
    if on_progress is not None:
        on_progress(examples)


def _numbers(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
