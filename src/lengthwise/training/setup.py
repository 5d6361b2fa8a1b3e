"""The model and the task of a run before training, and whether they can be trained at its lengths."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from lengthwise.config import ConfigError, Run
from lengthwise.machine_memory import naming_what_needs_memory
from lengthwise.models import Decoder, MixerModel, Model
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import Task, generator, same_tokenizer


def build(run: Run, *, device: torch.device | str = "cpu", backend: str = "auto") -> tuple[Model, Task]:
    """Return the untrained model and the task of a run. The initial weights depend only on the run, not on the device.

    They are random, also for a run with a parent: `train` loads the parent's weights.
    """
    task: Task = run.task.build()
    sizes: dict[str, Any] = {
        "vocab_size": task.vocab_size if task.input_width is None else None,
        "input_width": task.input_width,
        "output_size": task.output_size,
        "train_length": original_train_length(run, task),
    }
    model: Model
    width = f"d_model {run.model.d_model:,}, num_layers {run.model.num_layers:,}"
    with (
        naming_what_needs_memory(f"the weights of the model ({width})", "a smaller model"),
        _seeded(generator(run.seed, "weights").initial_seed()),
    ):
        if run.model.mixer is not None:
            model = MixerModel(run.model, run.encoding, **sizes)
        else:
            model = Decoder(run.model, run.encoding, **sizes, backend=backend)
        model.to(device)
    return model, task


def original_train_length(run: Run, task: Task) -> int:
    """Return the training length that the run's encodings receive, in tokens: that of the first run of its lineage.

    Encodings that extend a trained model to longer texts scale its positions relative to this length. `task`: that of
    `run`.
    """
    first = run.lineage[-1]
    first_task: Task = task if first.task == run.task else first.task.build()
    return first_task.tokens(first.training.train_length)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python, which a user's class may use; restore them later."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def check_training(run: Run, task: Task, limit: int | None) -> None:
    """Raise `ConfigError` for a training length that the task, the position scheme or the encoding does not support.

    `limit`: the number of positions that the encoding has; None if it has no limit.
    """
    if run.parent is not None:
        _require_same_tokens(run, task, run.parent)
    scheme = position_scheme_for(task, run.training.positions)
    longest = run.training.train_length
    curriculum_lengths = _check_curriculum(run, task) if run.training.curriculum is not None else set()
    for length in sorted({run.training.min_length or 1, longest, *curriculum_lengths}):
        task.check_length(length, "train")
        scheme.require(task.tokens(length), training=True)
    if (count := run.training.train_examples) is not None:
        task.fixed_examples(run.data_seed, [0, count - 1], run.training.min_length or longest, longest)
    num_positions = scheme.num_positions(task.tokens(longest), training=True)
    if limit is not None and num_positions > limit:
        positions = run.training.positions
        with_scheme = f" with {positions.label}" if positions else ""
        fix = "choose a position scheme that needs fewer" if positions else "train on shorter sequences"
        raise ConfigError(
            f"train_length {longest} needs {num_positions} positions{with_scheme}, but the encoding has {limit}; give "
            f"it a larger max_length, or {fix}"
        )


def _require_same_tokens(run: Run, task: Task, parent: Run) -> None:
    if parent.task == run.task:
        return
    parent_task: Task = parent.task.build()
    for name, what in (
        ("vocab_size", "input tokens"),
        ("output_size", "output tokens"),
        ("input_width", "input width"),
    ):
        ours, inherited = getattr(task, name), getattr(parent_task, name)
        if ours != inherited:
            raise ConfigError(
                f"{run.task.label} has {ours} {what}, but the parent run was trained on {parent.task.label}, which has "
                f"{inherited}; choose a task with the same tokens, or a parent that was trained on this one"
            )
    if not same_tokenizer(task, parent_task):
        raise ConfigError(
            f"{run.task.located_label} has another tokenizer than the parent run, which was trained on "
            f"{parent.task.located_label}, so the same token IDs mean other text; prepare this text with the parent's "
            "tokenizer (lengthwise tokenize --tokenizer FOLDER)"
        )


def _check_curriculum(run: Run, task: Task) -> set[int]:
    """Return the lengths that the curriculum trains on.

    Raises `ConfigError` if the task does not have the curriculum's dims, or if the curriculum ends below the training
    length or the task's dims. Then the run would be called trained at a length that it has never seen.
    """
    training, curriculum, all_dims = run.training, run.training.curriculum, task.curriculum_dims
    assert curriculum is not None
    if curriculum.dims is not None and curriculum.dims > (all_dims or 0):
        problem = f"has {all_dims}" if all_dims else "has none that a curriculum could open"
        raise ConfigError(f"the curriculum begins with {curriculum.dims} dims, but {type(task).__name__} {problem}")
    steps = [*range(0, training.steps, curriculum.every), training.steps - 1]
    lengths = [curriculum.length_at(step, training.train_length) for step in steps]
    dims = [curriculum.dims_at(step, all_dims or 1) for step in steps]
    for name, values, end in (("length", lengths, training.train_length), ("dims", dims, all_dims or 1)):
        if values[-1] < end:
            raise ConfigError(
                f"the curriculum must reach {name} {end} within {training.steps:,} steps, got {values[-1]} (it grows "
                f"every {curriculum.every:,} steps); let it grow sooner or faster, or train longer"
            )
    if len({*lengths}) == len({*dims}) == 1:
        raise ConfigError("the curriculum begins where it ends, so nothing grows; begin lower, or leave it out")
    if all_dims is not None:
        for n, open_dims in dict.fromkeys(zip(lengths, dims, strict=True)):  # some inputs need as many dims as examples
            task.training_batch(generator(0), 1, n, n, dims=open_dims)
    return {*lengths}
