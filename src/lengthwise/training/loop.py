"""The training loop: train a run in a folder, with checkpoints from which an interrupted run continues exactly."""

import time
from collections.abc import Callable
from pathlib import Path

import torch

from lengthwise.config import Run
from lengthwise.models import Model
from lengthwise.training.checkpoint import RunFolder, inherit_weights, load_model, model_tensors
from lengthwise.training.numerics import reproducible
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped
from lengthwise.training.setup import build, check_training
from lengthwise.training.trainer import Trained, Trainer

# The fields of `Trained` that are stored with the weights.
_STORED_FIELDS = ("curve", "seconds", "parameters", "backend", "loop_overhead", "tracked")


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
    """Train `run` in `folder`, from the newest intact checkpoint there. A finished run is only loaded.

    A checkpoint is written every `checkpoint_every` steps. By default one is written every `checkpoint_seconds`, but never so often
    that writing takes more than 5 % of the time. On a CPU the final weights are bitwise the same wherever and however often
    training was interrupted, for the same number of threads. `should_stop` is called before every step.

    Raises `Stopped` (with a checkpoint of the exact step), `TrainingError` (a loss that is not finite), `CheckpointError` (a full
    disk, a folder of another run) or `ConfigError` (see `check_training`).

    A run with a parent starts from the parent's trained weights, in the folder beside `folder` that has the parent's key as name.
    """
    files = RunFolder(folder, run)
    files.prepare()
    if (finished := load_trained(folder, run, device=device, backend=backend)) is not None:
        files.remove_checkpoints()
        return finished
    device = torch.device(device)
    with reproducible(device):
        model, task = build(run, device=device, backend=backend)
        check_training(run, task, model.max_length)
        trainer = Trainer(run, model, task, device)
        if (checkpoint := files.load_newest()) is not None:
            trainer.restore(*checkpoint, path=files.path)
        elif run.parent is not None:
            inherit_weights(model, run, run.parent, files.path.with_name(run.parent.key))
        _run(trainer, files, checkpoint_every, checkpoint_seconds, Reporter(on_progress), should_stop)
        trained = trainer.result()
        files.save_final(model_tensors(model), {name: getattr(trained, name) for name in _STORED_FIELDS})
    return trained


def load_trained(
    folder: Path, run: Run, *, device: torch.device | str = "cpu", backend: str = "auto"
) -> Trained | None:
    """Load the result of `train` from its folder, or return None if the run is not finished. Damaged weights are moved aside."""
    files = RunFolder(folder, run)
    final = files.load_final_or_none()
    if final is None:
        return None
    tensors, fields = final
    model, task = build(run, device=device, backend=backend)
    load_model(model, tensors, files.weights)
    return Trained(model, task, **{name: fields[name] for name in _STORED_FIELDS})


def load_weights(folder: Path, run: Run, *, device: torch.device | str = "cpu", backend: str = "auto") -> Model:
    """Load the trained model. Raises `CheckpointError` if the weights are missing, damaged, or those of another run."""
    files = RunFolder(folder, run)
    tensors, _ = files.load_final()
    model, _ = build(run, device=device, backend=backend)
    load_model(model, tensors, files.weights)
    return model


def _run(
    trainer: Trainer,
    files: RunFolder,
    checkpoint_every: int | None,
    checkpoint_seconds: float,
    reporter: Reporter,
    should_stop: Callable[[], bool] | None,
) -> None:
    steps = trainer.run.training.steps
    saved_step, saved_at, save_seconds = trainer.steps_done, time.perf_counter(), 0.0

    def save() -> None:
        nonlocal saved_step, saved_at, save_seconds
        begin = time.perf_counter()
        trainer.require_finite()
        files.save(trainer.steps_done, *trainer.state())
        saved_step, saved_at = trainer.steps_done, time.perf_counter()
        save_seconds = saved_at - begin

    pace = Pace(trainer.steps_done, steps)
    trainer.model.train()
    while trainer.steps_done < steps:
        if should_stop is not None and should_stop():
            if trainer.steps_done > saved_step:
                save()
            raise Stopped("train", trainer.steps_done, steps)
        trainer.step()
        trainer.stopwatch.lap(trainer.steps_done)
        step = trainer.steps_done
        if reporter.is_due(last=step == steps):
            trainer.require_finite()
            eta = pace.update(step)
            reporter.report(Progress("train", step, steps, trainer.loss(), pace.rate, eta))
        if step % trainer.steps_per_row == 0 or step == steps:
            trainer.require_finite()
        if step < steps:
            is_late = time.perf_counter() - saved_at >= max(checkpoint_seconds, 20 * save_seconds)
            if is_late if checkpoint_every is None else step % checkpoint_every == 0:
                save()
