"""Training steps with a temporary model: whether a run can be trained, and how long a step takes."""

import time
from dataclasses import replace
from statistics import fmean

import torch

from lengthwise.config import Run
from lengthwise.training.numerics import reproducible
from lengthwise.training.setup import build
from lengthwise.training.trainer import Trainer

MAX_STEPS = 50  # measured steps


def check_step(run: Run, *, device: torch.device | str, backend: str) -> None:
    """Train one step with a single example. Raise `ConfigError` if the backend does not support the run."""
    device = torch.device(device)
    single = replace(
        run, training=replace(run.training, batch_size=1, accumulation=1, steps=max(1, run.training.steps))
    )
    with reproducible(device):
        Trainer(single, *build(single, device=device, backend=backend), device).step()


def measure_step(run: Run, *, device: torch.device | str = "cpu", backend: str = "auto", seconds: float = 0.5) -> float:
    """Return the mean seconds of a training step of `run`, measured with a temporary model.

    The first step does not count unless the run has no other, because it may compile a kernel. At least one more step
    is measured and at most 50; further steps start only within `seconds` after the first step. Changes no file and no
    random state.
    """
    device = torch.device(device)
    with reproducible(device):
        trainer = Trainer(run, *build(run, device=device, backend=backend), device)
        trainer.model.train()
        times: list[float] = []
        begin = time.perf_counter()
        while trainer.steps_done < run.training.steps and len(times) <= MAX_STEPS:
            before = time.perf_counter()
            trainer.step()
            trainer.loss()  # waits for the device
            now = time.perf_counter()
            times.append(now - before)
            if len(times) == 1:
                begin = now
            elif now - begin >= seconds:
                break
    return fmean(times[1:] or times)
