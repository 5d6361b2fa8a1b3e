"""A study of many short runs, in which waiting stands in for training: for `scheduling.py` and for tests of executors.

    lengthwise run benchmarks/stand_in.py --set runs=870 --set seconds=0.05 --workers 2

The runs are real: a model of 400 parameters is trained for one step, saved and evaluated. Before the step they wait.
"""

import time
from typing import Literal

import torch

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.studies import Study, grid
from lengthwise.tasks.base import Batch
from lengthwise.tasks.copy import Copy


class WaitAndCopy(Copy):
    """Copy symbols, after a while. `length` counts the symbols to copy.

    `seconds`: the time that every training step waits.
    """

    def __init__(
        self,
        *,
        symbols: int = 4,
        pattern: Literal["random", "repeated", "replaced"] = "random",
        times: int = 1,
        seconds: float = 1.0,
    ):
        super().__init__(symbols=symbols, pattern=pattern, times=times)
        self.seconds = seconds

    def training_batch(
        self, generator: torch.Generator, batch: int, shortest: int, longest: int, *, dims: int | None = None
    ) -> Batch:
        time.sleep(self.seconds)
        return super().training_batch(generator, batch, shortest, longest, dims=dims)


def study(runs: int = 500, seconds: float = 1.0) -> Study:
    return Study(
        name=f"{runs} runs of {seconds:g} s",
        question="What does it cost to schedule many short runs?",
        runs=grid(
            [choose(NoPE)],
            [choose(WaitAndCopy, seconds=seconds)],
            seeds=runs,
            model=ModelConfig(d_model=4, num_layers=1, num_heads=1),
            training=TrainingConfig(train_length=2, steps=1, batch_size=4),
        ),
        evaluation=EvaluationConfig(lengths=(2, 4), examples=4),
    )
