"""Prompts of runs that learn functions in context."""

from collections.abc import Iterator
from typing import cast

from torch import Tensor

from lengthwise.config import ConfigError, Run
from lengthwise.measurements.base import ExampleOptions
from lengthwise.measurements.inside.trained import TrainedRun, in_batches, positions_of
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions import FunctionTask


def require_function_task(run: Run, probe: str) -> int:
    """Return the dimensions of the run's task. Raise `ConfigError` for another kind of task. Builds no model."""
    if not issubclass(run.task.cls, FunctionTask):
        raise ConfigError(
            f"{probe} needs a run that learns functions in context, got run {run.key[:8]} on {run.task.label}; name a "
            "run of such a task (linear regression, for example)"
        )
    return int(run.task.build().dims)


def function_task(trained: TrainedRun) -> FunctionTask:
    return cast(FunctionTask, trained.task)


def examples_of_prompts(trained: TrainedRun, options: ExampleOptions, length: int) -> tuple[Tensor, Tensor]:
    """Return xs and ys of the test prompts with this length."""
    task = function_task(trained)
    return task.examples_of(task.examples(options.seed, options.examples, length, "test"))


def prompt_batches(
    trained: TrainedRun, options: ExampleOptions, xs: Tensor, ys: Tensor, tokens: int | None = None
) -> Iterator[tuple[Batch, Tensor | None]]:
    """Yield batches of prompts, and the tokens' position IDs. `tokens`: see `in_batches`."""
    prompts = function_task(trained).pack(xs, ys)
    positions = positions_of(trained.task, trained.run, prompts, options, xs.shape[1])
    for batch, (ids,) in in_batches(prompts, [positions], trained.device, tokens):
        yield batch, ids


def repeated_prompts(
    trained: TrainedRun, options: ExampleOptions, length: int, repeats: int = 1
) -> Iterator[tuple[Batch, Tensor | None]]:
    """Yield batches as `prompt_batches` does, of test prompts of this length with their examples `repeats` times."""
    xs, ys = examples_of_prompts(trained, options, length)
    yield from prompt_batches(trained, options, xs.repeat(1, repeats, 1), ys.repeat(1, repeats))
