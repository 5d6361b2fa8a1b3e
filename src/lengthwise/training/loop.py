"""The training loop: a run and a folder in, a trained model out, and the same bits however often it was interrupted."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.config import ConfigError, Run
from lengthwise.models import Decoder, Mamba, Model
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import Batch, Task, generator
from lengthwise.tasks.order import shuffled
from lengthwise.training.checkpoint import (
    Folder,
    Parts,
    optimizer_tensors,
    put_optimizer,
    put_tensors,
    tensors_of,
)
from lengthwise.training.numerics import reproducible, seed_step
from lengthwise.training.optimiser import learning_rate, make_optimizer
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped, TrainingError
from lengthwise.training.stopwatch import Stopwatch
from lengthwise.training.tensorfile import CheckpointError

ROWS = 200  # a curve has at most about this many rows


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    model: nn.Module
    task: Task
    curve: list[dict[str, float]]  # step, loss, learning_rate, gradient_norm, tokens_per_second
    seconds: float  # of training, all sittings added
    parameters: int
    backend: str  # attention backends that served, e.g. "sdpa"
    loop_overhead: float  # share of the time that was not forward, backward or optimiser


def build(run: Run, *, device: torch.device | str = "cpu", backend: str = "auto") -> tuple[Model, Task]:
    """The model before its first step, and the task. The weights depend on the run alone, whatever the device."""
    task: Task = run.task.build()
    sizes: dict[str, Any] = {
        "vocab_size": task.vocab_size if task.input_width is None else None,
        "input_width": task.input_width,
        "output_size": task.output_size,
    }
    model: Model
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator(run.seed, "weights").initial_seed())
        if run.model.mixer is not None:
            model = Mamba(run.model, **sizes)
        else:
            trained = task.tokens(run.training.train_length)
            model = Decoder(run.model, run.encoding, **sizes, train_length=trained, backend=backend)
    return model.to(device), task


def train(
    run: Run,
    folder: Path,
    *,
    device: torch.device | str = "cpu",
    backend: str = "auto",
    checkpoint_every: int | None = None,
    checkpoint_seconds: float = 10.0,
    on_progress: Callable[[Progress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train `run` in `folder`, from where the folder's newest whole checkpoint left it; at once done if it is finished.

    A checkpoint is written every `checkpoint_every` steps; when None, every `checkpoint_seconds`, and never so often
    that writing takes more than 5 % of the time. On a CPU the final weights have the same bits wherever and however
    often the work was interrupted, for one number of threads. `should_stop` is asked before every step.

    Raises `Stopped` (a checkpoint of the exact step is there), `TrainingError` (a loss that is not finite),
    `CheckpointError` (a full disk, a folder of another run), `ConfigError` (see `check_training`).
    """
    files = Folder(folder, run)
    files.prepare()
    if (done := load_trained(folder, run, device=device, backend=backend)) is not None:
        files.remove_checkpoints()
        return done
    place = torch.device(device)
    with reproducible(place):
        model, task = build(run, device=place, backend=backend)
        check_training(run, task, model.max_length)
        sitting = Sitting(run, model, task, place)
        if (found := files.newest()) is not None:
            sitting.restore(*found, path=files.path)
        _run(sitting, files, checkpoint_every, checkpoint_seconds, Reporter(on_progress), should_stop)
        trained = sitting.trained()
        files.finish(tensors_of(model), {name: getattr(trained, name) for name in _KEPT})
    return trained


def check_training(run: Run, task: Task, limit: int | None) -> None:
    """Raise `ConfigError` for a trained length that the task, the position scheme or the encoding does not support.

    `limit`: the number of positions that the encoding has; None: any.
    """
    scheme = position_scheme_for(task, run.training.positions)
    longest = run.training.train_length
    grown = _check_curriculum(run, task) if run.training.curriculum is not None else set()
    for length in sorted({run.training.min_length or 1, longest, *grown}):
        task.check_length(length, "train")
        scheme.require(task.tokens(length), training=True)
    if (count := run.training.train_examples) is not None:
        task.fixed_examples(run.seed, [0, count - 1], run.training.min_length or longest, longest)
    places = scheme.num_positions(task.tokens(longest), training=True)
    if limit is not None and places > limit:
        chosen = run.training.positions
        named, instead = (
            (f" with {chosen.label}", "choose a position scheme that claims fewer")
            if chosen
            else ("", "train on shorter sequences")
        )
        raise ConfigError(
            f"train_length {longest} needs {places} positions{named}, and the encoding has {limit}; give it a larger "
            f"max_length, or {instead}"
        )


def _check_curriculum(run: Run, task: Task) -> set[int]:
    """The lengths that the curriculum has on its way. `ConfigError` where the task has not got its dims, or where it does not come
    to the trained length and all dims: what is called trained would never have been seen."""
    training, curriculum, every = run.training, run.training.curriculum, task.curriculum_dims
    assert curriculum is not None
    if curriculum.dims is not None and curriculum.dims > (every or 0):
        has = f"has {every}" if every else "has none that could be opened one by one"
        raise ConfigError(f"the curriculum begins with {curriculum.dims} dims, and {type(task).__name__} {has}")
    steps = [*range(0, training.steps, curriculum.every), training.steps - 1]
    lengths = [curriculum.length_at(step, training.train_length) for step in steps]
    dims = [curriculum.dims_at(step, every or 1) for step in steps]
    for what, found, end in (("length", lengths, training.train_length), ("dims", dims, every or 1)):
        if found[-1] < end:
            raise ConfigError(
                f"the curriculum grows every {curriculum.every:,} steps, and in the last of {training.steps:,} its {what} is "
                f"{found[-1]} of {end}, which is never trained; let it grow sooner or faster, or train longer"
            )
    if len({*lengths}) == len({*dims}) == 1:
        raise ConfigError("the curriculum begins where it ends, and nothing would grow; begin lower, or leave it out")
    if every is not None:
        for n, open_dims in dict.fromkeys(zip(lengths, dims, strict=True)):  # some inputs need as many dims as examples
            task.training_batch(generator(0), 1, n, n, dims=open_dims)
    return {*lengths}


_KEPT = ("curve", "seconds", "parameters", "backend", "loop_overhead")  # of a `Trained`, in the file of the weights


def load_trained(
    folder: Path, run: Run, *, device: torch.device | str = "cpu", backend: str = "auto"
) -> Trained | None:
    """What `train` returned, from its folder; None when the run is not finished. Damaged weights are moved aside."""
    files = Folder(folder, run)
    found = files.finished_or_none()
    if found is None:
        return None
    tensors, facts = found
    model, task = build(run, device=device, backend=backend)
    put_tensors(model, tensors, files.weights)
    return Trained(model, task, **{name: facts[name] for name in _KEPT})


def load_weights(folder: Path, run: Run, *, device: torch.device | str = "cpu", backend: str = "auto") -> Model:
    """The trained model. `CheckpointError` when the weights are missing, damaged, or another run's."""
    files = Folder(folder, run)
    tensors, _ = files.finished()
    model, _ = build(run, device=device, backend=backend)
    put_tensors(model, tensors, files.weights)
    return model


def _run(
    s: "Sitting",
    files: Folder,
    every: int | None,
    seconds: float,
    reporter: Reporter,
    should_stop: Callable[[], bool] | None,
) -> None:
    steps = s.run.training.steps
    saved, saved_at, cost = s.step, time.perf_counter(), 0.0

    def save() -> None:
        nonlocal saved, saved_at, cost
        begin = time.perf_counter()
        s.require_finite()
        files.save(s.step, *s.state())
        saved, saved_at = s.step, time.perf_counter()
        cost = saved_at - begin

    pace = Pace(s.step, steps)
    s.model.train()
    while s.step < steps:
        if should_stop is not None and should_stop():
            if s.step > saved:
                save()
            raise Stopped("train", s.step, steps)
        s.advance()
        s.watch.lap(s.step)
        if reporter.due(last=s.step == steps):
            s.require_finite()
            eta = pace.update(s.step)
            reporter.tell(Progress("train", s.step, steps, s.loss(), pace.rate, eta))
        if s.step % s.row == 0 or s.step == steps:
            s.require_finite()
        if s.step < steps:
            late = time.perf_counter() - saved_at >= max(seconds, 20 * cost)
            if late if every is None else s.step % every == 0:
                save()


def fixed_numbers(run: Run, step: int) -> list[int]:
    """Which examples of a fixed training set a step reads: those that come next in the order of its epoch, or of two epochs."""
    size = run.training.train_examples
    assert size is not None
    places = torch.arange(run.training.batch_size) + step * run.training.batch_size
    epochs = places // size
    found = torch.empty_like(places)
    for epoch in epochs.unique().tolist():
        now = epochs == epoch
        found[now] = shuffled(places[now] % size, size, generator(run.seed, "epoch", epoch))
    return found.tolist()


class Sitting:
    """One process's work on a run: everything that changes from step to step, and what a checkpoint holds of it.

    Nothing here waits for the device in a step: losses and norms are written into a tensor that lies there, and read
    when a row of the curve, a progress report or a checkpoint needs them.
    """

    def __init__(self, run: Run, model: Model, task: Task, device: torch.device):
        self.run, self.model, self.task, self.device = run, model, task, device
        self.scheme = position_scheme_for(task, run.training.positions)
        self.optimizer = make_optimizer(model, run.training)
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        steps = run.training.steps
        self.measured = torch.full((2, steps), math.nan, device=device)  # loss and gradient norm of every step
        self.places = np.zeros(steps, np.int64)  # token places of every step's batch
        self.watch = Stopwatch(device, steps)
        self.row = max(1, math.ceil(steps / ROWS))
        self.step = 0  # steps done
        self.known_finite = 0

    def batch(self) -> Batch:
        """The batch of the step that comes next: a function of the run and the step, nothing else."""
        config, g = self.run.training, generator(self.run.seed, "train", self.step)
        shortest, longest = config.min_length or config.train_length, config.train_length
        if config.train_examples is not None:
            numbers = fixed_numbers(self.run, self.step)
            return self.task.fixed_examples(self.run.seed, numbers, shortest, longest)
        if config.curriculum is None:
            return self.task.training_batch(g, config.batch_size, shortest, longest)
        now = config.curriculum.length_at(self.step, longest)
        every = self.task.curriculum_dims
        dims = None if every is None else config.curriculum.dims_at(self.step, every)
        return self.task.training_batch(g, config.batch_size, now, now, dims=dims)

    def positions(self, batch: Batch) -> Tensor | None:
        """What the tokens of the step's batch claim: a function of the run and the step too. None: 0, 1, 2, ..."""
        return self.scheme.positions(batch.inputs, None, generator(self.run.seed, "layout", self.step), training=True)

    def advance(self) -> None:
        """One step: sample, forward and backward in `accumulation` parts, clip, update."""
        config = self.run.training
        batch = self.batch()
        size = len(batch) // config.accumulation
        cuts = [slice(n, n + size) for n in range(0, len(batch), size)]
        parts = [batch[cut] for cut in cuts]
        drawn = self.positions(batch)  # of the whole batch, however it is cut
        claimed = [None if drawn is None else drawn[cut] for cut in cuts]
        scored = [int(part.scored.sum()) for part in parts]
        if not sum(scored):
            raise TrainingError(f"{self.name}: at step {self.step + 1} no place of the batch counts for the loss")
        if self.device.type != "cpu":
            parts = [self.moved(part) for part in parts]
            claimed = [None if some is None else some.to(self.device, non_blocking=True) for some in claimed]
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, self.step)
        seed_step(generator(self.run.seed, "dropout", self.step).initial_seed(), self.device)
        with self.watch:
            losses = []
            for part, positions, count in zip(parts, claimed, scored, strict=True):
                if count:
                    with self.autocast():
                        # The mean over all scored places of the batch, whichever part they lie in.
                        logits = self.model(part.inputs, positions=positions)
                        loss = self.task.loss(logits, part) * (count / sum(scored))
                    loss.backward()
                    losses.append(loss.detach())
            norm = nn.utils.clip_grad_norm_(self.parameters, config.clip)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.measured[0, self.step] = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        self.measured[1, self.step] = norm
        self.places[self.step] = batch.targets.numel()
        self.step += 1

    def moved(self, part: Batch) -> Batch:
        if self.device.type == "cuda":
            part = Batch(part.inputs.pin_memory(), part.targets.pin_memory(), part.scored.pin_memory())
        return part.to(self.device)

    def autocast(self) -> AbstractContextManager[Any]:
        """bfloat16 where a GPU has the hardware for it; everything in float32 on a CPU."""
        return torch.autocast("cuda", dtype=torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    @property
    def name(self) -> str:
        return f"run {self.run.key} ({self.run.label}, {self.run.task.label}, seed {self.run.seed})"

    def loss(self) -> float:
        return float(self.measured[0, self.step - 1])

    def require_finite(self) -> None:
        """Raise `TrainingError` for the first step whose loss or gradient is not a number. Waits for the device."""
        new = self.measured[:, self.known_finite : self.step].cpu()
        bad = (~new.isfinite()).any(0).nonzero()
        if len(bad):
            column = int(bad[0])
            loss, norm = (float(x) for x in new[:, column])
            what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
            config = self.run.training
            raise TrainingError(
                f"{self.name}: at step {self.known_finite + column + 1} of {config.steps} {what}; "
                f"try a lower learning_rate (now {config.learning_rate:g}), a longer warmup or a smaller clip"
            )
        self.known_finite = self.step

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint holds. The generators are not in it: every step seeds its own (see `batch`, `advance`)."""
        history = {
            "measured": self.measured[:, : self.step],
            "places": torch.from_numpy(self.places[: self.step]),
            "seconds": torch.from_numpy(self.watch.steps[: self.step]),
        }
        parts = Parts(tensors_of(self.model), optimizer_tensors(self.optimizer, self.model), history)
        total, busy = self.watch.totals()
        return parts.joined(), {"seconds": total, "busy": busy}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any], path: Path) -> None:
        """Go on from a checkpoint. `CheckpointError` where it holds something else than `state` gives."""
        parts = Parts.split(tensors, path)
        step = state.get("step")
        if type(step) is not int or not 0 <= step <= self.run.training.steps:
            raise CheckpointError(f"{path} is of no step that this run has; remove it to train again")
        history = {"measured": ((2, step), torch.float32), "places": ((step,), torch.int64)}
        history["seconds"] = ((step,), torch.float64)
        seconds, busy = state.get("seconds"), state.get("busy")
        if history != {name: (tuple(t.shape), t.dtype) for name, t in parts.history.items()} or not (
            isinstance(seconds, (int, float)) and isinstance(busy, (int, float))
        ):
            raise CheckpointError(f"{path} does not have the history of {step} steps; remove it to train again")
        put_tensors(self.model, parts.model, path)
        put_optimizer(self.optimizer, self.model, parts.optimizer, path)
        self.step = step
        self.measured[:, :step] = parts.history["measured"].to(self.device)
        self.places[:step] = parts.history["places"].numpy()
        self.watch.restore(parts.history["seconds"].numpy(), seconds, busy)
        self.known_finite = step

    def curve(self) -> list[dict[str, float]]:
        """One row for every `row` steps: means over them, and the learning rate of the last."""
        measured, rows = self.measured.cpu().double(), []
        for begin in range(0, self.step, self.row):
            end = min(begin + self.row, self.step)
            loss, norm = (float(x) for x in measured[:, begin:end].mean(1))
            seconds = float(self.watch.steps[begin:end].sum())
            rows.append(
                {
                    "step": end,
                    "loss": loss,
                    "learning_rate": learning_rate(self.run.training, end - 1),
                    "gradient_norm": norm,
                    "tokens_per_second": float(self.places[begin:end].sum()) / seconds if seconds else 0.0,
                }
            )
        return rows

    def trained(self) -> Trained:
        total, busy = self.watch.totals()
        parameters = sum(p.numel() for p in self.model.parameters())
        backend = ",".join(sorted(self.model.backends_used))
        overhead = max(0.0, 1.0 - busy / total) if total else 0.0
        return Trained(self.model, self.task, self.curve(), total, parameters, backend, overhead)
