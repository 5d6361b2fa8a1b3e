"""Probes of stored runs: which question, of which examples, in which portions, and the answer as plain data."""

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
from lengthwise.probes.attended import BINS, Attended, attended_distance
from lengthwise.probes.distance import attention_distance, require_variant
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.training import load_weights
from lengthwise.training.numerics import reproducible

ProbeQuestion = dict[str, Any]
TOKENS = 4096  # places that a model reads at a time: the q and k of all its layers are kept


@dataclass(frozen=True)
class TrainedRun:
    """A trained run to look into."""

    run: Run
    model: Model
    task: Task

    @property
    def name(self) -> str:
        return f"{self.run.key[:8]} ({self.run.label}, seed {self.run.seed})"


def load_trained_run(
    run: Run, folder: Path, *, device: torch.device | str = "cpu", backend: str = "auto"
) -> TrainedRun:
    """The trained model of a run from its folder, ready to be asked. `CheckpointError` where it is not there or not whole."""
    return TrainedRun(run, load_weights(folder, run, device=device, backend=backend).eval(), run.task.build())


# ---- questions ----------------------------------------------------------------------------------------------------


def distance_question(against: str, length: int, examples: int = 10, seed: int = 0, variant: str = "") -> ProbeQuestion:
    """What names the answer: how far from the run `against`, at one length, on how many of the test examples of `seed`."""
    variant = variant or "jensen-shannon"
    require_variant(variant)
    _require(length=length, examples=examples)
    asked: ProbeQuestion = {"probe": "attention-distance", "against": against, "length": length, "examples": examples}
    return asked | {"seed": seed, "variant": variant}


def attended_question(length: int, examples: int = 100, seed: int = 0) -> ProbeQuestion:
    """What names the answer: how far back a run looks, at one length, on how many of the test examples of `seed`."""
    _require(length=length, examples=examples)
    return {"probe": "attended-distance", "length": length, "examples": examples, "seed": seed}


def _require(**counts: Any) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} is {value!r}; it has to be a whole number, at least 1")


def require_attention(run: Run) -> None:
    """Raise `ConfigError` for a run whose model has no attention to look at. Builds no model."""
    if run.model.mixer is not None:
        raise ConfigError(
            f"run {run.key[:8]} is a {run.label}, which has no attention to look at; name a Transformer's run"
        )


def require_alike(a: Run, b: Run, lengths: Iterable[int] = ()) -> None:
    """Raise `ConfigError` where the two runs' attention cannot be compared: another task, another depth, a length that one of
    them cannot read. Builds no model."""
    if a.key == b.key:
        raise ConfigError(f"run {a.key[:8]} is compared with itself, which is no distance; name another run")
    for run in (a, b):
        require_attention(run)
    if a.task.identity() != b.task.identity():
        raise ConfigError(
            f"run {a.key[:8]} is trained on {_described(a)} and run {b.key[:8]} on {_described(b)}; attention is compared on the "
            "same examples, so take runs of one task with the same settings"
        )
    layers = a.model.num_layers, b.model.num_layers
    if layers[0] != layers[1]:
        raise ConfigError(
            f"run {a.key[:8]} has {layers[0]} layers and run {b.key[:8]} has {layers[1]}; layers are compared one to one, so "
            "take models of equal depth"
        )
    for run in (a, b):
        check_lengths(run, lengths)


def _described(run: Run) -> str:
    settings = ", ".join(f"{k}={json.dumps(v)}" for k, v in run.task.identity().items() if k not in ("is", "class"))
    return f"{run.task.name}({settings})"


# ---- answers ------------------------------------------------------------------------------------------------------


def ask_distance(
    a: TrainedRun, b: TrainedRun, asked: ProbeQuestion, on_portion: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """The answer to a `distance_question` about `a`; `b` is the run that it names.

    `layers`: the distance in each layer, in nats, the mean over the examples; None where it is not a finite number.
    `standard_errors`: of these means (None for a single example). `n`: examples. `places`: query rows, of all examples.
    Rows up to the last place that is scored count: question and answer, and nothing that fills a batch up.
    """
    begin, device = time.perf_counter(), next(a.model.parameters()).device
    found, places = [], 0
    with reproducible(device):
        for part, positions in _portions(a.task, asked, [a.run, b.run], device):
            rows = part.scored.flip(1).cumsum(1).flip(1) > 0
            places += int(rows.sum())
            apart = attention_distance(
                a.model,
                b.model,
                part.inputs,
                queries=rows,
                positions=(positions[0], positions[1]),
                variant=asked["variant"],
            )
            found.append(apart.cpu())
            _tell(on_portion, len(part))
    values = torch.cat(found).double()
    errors = values.std(0) / math.sqrt(len(values)) if len(values) > 1 else torch.full(values.shape[1:], math.nan)
    return {
        "layers": _numbers(values.mean(0)),
        "standard_errors": _numbers(errors),
        "n": len(values),
        "places": places,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def ask_attended(
    subject: TrainedRun, asked: ProbeQuestion, on_portion: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """The answer to an `attended_question`.

    `most` and `mass` [layer][head][bin] as in `Attended`: counts of queries whose highest logit lies in a bin, and the share of
    all weights in it. The queries are the places that say the answer (`Task.answer_mask`). `n`: examples.
    """
    begin, device = time.perf_counter(), next(subject.model.parameters()).device
    parts: list[Attended] = []
    examples = 0
    with reproducible(device):
        for part, positions in _portions(subject.task, asked, [subject.run], device):
            places = subject.task.answer_mask(part)
            parts.append(attended_distance(subject.model, part.inputs, queries=places, positions=positions[0]))
            examples += len(part)
            _tell(on_portion, len(part))
    found = parts[0]
    for part_found in parts[1:]:
        found = found + part_found
    return {
        "bins": BINS,
        "most": found.most.tolist(),
        "mass": (found.mass.double() / found.queries).tolist(),
        "queries": found.queries,
        "n": examples,
        "seconds": round(time.perf_counter() - begin, 3),
    }


def _portions(
    task: Task, asked: ProbeQuestion, runs: list[Run], device: torch.device
) -> Iterable[tuple[Batch, list[Tensor | None]]]:
    """The test examples of a question, some at a time, and the positions that each run's position scheme gives their tokens."""
    length = asked["length"]
    available = task.available(length, "test")
    count = asked["examples"] if available is None else min(asked["examples"], available)
    examples = task.examples(asked["seed"], count, length, "test")
    drawn = [
        position_scheme_for(task, run.training.positions).positions(
            examples.inputs, None, generator(asked["seed"], "layout", length), training=False
        )
        for run in runs
    ]
    size = max(1, TOKENS // examples.inputs.shape[1])
    for start in range(0, len(examples), size):
        cut = slice(start, start + size)
        yield examples[cut].to(device), [None if p is None else p[cut].to(device) for p in drawn]


def _tell(on_portion: Callable[[int], None] | None, examples: int) -> None:
    if on_portion is not None:
        on_portion(examples)


def _numbers(values: Tensor) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
