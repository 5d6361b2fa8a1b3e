"""The training loop: train a run in a folder, with checkpoints from which an interrupted run continues exactly."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from lengthwise.config import Run
from lengthwise.models import Model
from lengthwise.training.checkpoint import RunFolder, inherit_weights, load_model, whole_tensors
from lengthwise.training.memory import PeakMemory
from lengthwise.training.numerics import reproducible
from lengthwise.training.parallel import NO_OPTIMIZATIONS, Optimizations
from lengthwise.training.progress import Pace, Progress, Reporter, Stopped
from lengthwise.training.ranks import ALONE, Ranks
from lengthwise.training.setup import build, check_training
from lengthwise.training.trainer import Trained, Trainer

# The fields of `Trained` that are stored with the weights.
_STORED_FIELDS = ("curve", "seconds", "parameters", "backend", "loop_overhead", "tracked", "peak_memory")


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
    optimizations: Optimizations = NO_OPTIMIZATIONS,
    ranks: Ranks = ALONE,
) -> Trained:
    """Train `run` in `folder`, from the newest intact checkpoint there. A finished run is only loaded.

    A checkpoint is written every `checkpoint_every` steps. By default one is written every `checkpoint_seconds`, but
    never so often that writing takes more than 5 % of the time. On a CPU the final weights are bitwise the same
    wherever and however often training was interrupted, for the same number of threads and ranks and the same
    instruction set. `should_stop` is called before every step.

    `ranks`: the place of this process among those that train the run together; all of them call this function with the
    same arguments. Only rank 0 reads and writes files, and uses `on_progress` and `checkpoint_seconds`. All ranks stop
    after the same step if the `should_stop` of any of them returns True.

    Raises `Stopped` (with a checkpoint of the exact step), `TrainingError` (a loss that is not finite),
    `CheckpointError` (a full disk, a folder of another run) or `ConfigError` (see `check_training`).

    A run with a parent starts from the parent's trained weights, in the folder beside `folder` that has the parent's
    key as name.
    """
    files = RunFolder(folder, run)
    ranks.require_enough(run.training)
    if ranks.is_first:
        files.prepare()
    if (finished := _load_finished(files, device, backend, ranks)) is not None:
        return finished
    device = torch.device(device)
    with reproducible(device):
        memory = PeakMemory(device)
        model, task = build(run, device=device, backend=backend)
        check_training(run, task, model.max_length)
        trainer = Trainer(run, model, task, device, ranks=ranks, optimizations=optimizations)
        checkpoint = ranks.contents_of_first(files.load_newest() if ranks.is_first else None)
        if checkpoint is not None:
            trainer.restore(*checkpoint, path=files.path)
        elif run.parent is not None:
            parent = RunFolder(files.path.with_name(run.parent.key), run.parent)
            weights = ranks.contents_of_first(parent.load_final() if ranks.is_first else None)
            assert weights is not None
            inherit_weights(model, run, parent, weights[0])
        _run(trainer, files, checkpoint_every, checkpoint_seconds, Reporter(on_progress), should_stop)
        trained = replace(trainer.result(), peak_memory=memory.bytes())
        tensors = whole_tensors(model)
        trainer.require_finite_weights(tensors)
        if ranks.is_first:
            files.save_final(tensors, {name: getattr(trained, name) for name in _STORED_FIELDS})
        if trainer.passes.is_sharded:  # evaluation needs a model that each rank can use alone
            model, _ = build(run, device=device, backend=backend)
            load_model(model, tensors, files.weights)
            trained = replace(trained, model=model)
    return trained


def _load_finished(files: RunFolder, device: torch.device | str, backend: str, ranks: Ranks) -> Trained | None:
    """Return the result of a finished run, or None. Rank 0 reads the file, and moves damaged ones aside."""
    final = ranks.contents_of_first(files.load_final_or_none() if ranks.is_first else None)
    if final is None:
        return None
    tensors, fields = final
    model, task = build(files.run, device=device, backend=backend)
    load_model(model, tensors, files.weights)
    if ranks.is_first:
        files.remove_checkpoints()
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
    steps, ranks = trainer.run.training.steps, trainer.ranks
    saved_step, saved_at, save_seconds = trainer.steps_done, time.perf_counter(), 0.0

    def save() -> None:
        nonlocal saved_step, saved_at, save_seconds
        begin = time.perf_counter()
        trainer.require_finite()
        contents = trainer.state()
        trainer.require_finite_weights(contents[0])
        if ranks.is_first:
            files.save(trainer.steps_done, *contents)
        saved_step, saved_at = trainer.steps_done, time.perf_counter()
        save_seconds = saved_at - begin

    pace, last_point = Pace(trainer.steps_done, steps), 0
    trainer.model.train()
    while not trainer.is_finished:
        if ranks.any_rank(should_stop is not None and should_stop()):
            if trainer.steps_done > saved_step:
                save()
            raise Stopped("train", trainer.steps_done, steps)
        trainer.step()
        trainer.stopwatch.lap(trainer.steps_done)
        trainer.stop_if_learned()
        step, is_finished = trainer.steps_done, trainer.is_finished
        is_late = time.perf_counter() - saved_at >= max(checkpoint_seconds, 20 * save_seconds)
        reports, saves = ranks.flags_of_first(
            reporter.is_due(last=is_finished),
            not is_finished and (is_late if checkpoint_every is None else step % checkpoint_every == 0),
        )
        if reports:
            trainer.require_finite()
            eta = pace.update(step)
            points = trainer.curve(after=last_point)
            last_point = int(points[-1]["step"]) if points else last_point
            reporter.report(Progress("train", step, steps, trainer.loss(), pace.rate, eta, points=points))
        if step % trainer.steps_per_row == 0 or is_finished:
            trainer.require_finite()
        if saves:
            save()
