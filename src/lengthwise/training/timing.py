"""How long one training step of a run takes."""

import time
from statistics import fmean

import torch

from lengthwise.config import Run
from lengthwise.training.loop import Sitting, build
from lengthwise.training.numerics import reproducible

MOST = 50  # measured steps


def measure_step(run: Run, *, device: torch.device | str = "cpu", backend: str = "auto", seconds: float = 0.5) -> float:
    """Return the mean seconds of a training step of `run`, with a fresh model that is thrown away.

    The first step never counts, unless the run has no other: it may compile a kernel. At least one more is measured, and at
    most 50; none but that one is begun later than `seconds` after the first. Changes no file and no random state.
    """
    place = torch.device(device)
    with reproducible(place):
        sitting = Sitting(run, *build(run, device=place, backend=backend), place)
        sitting.model.train()
        times: list[float] = []
        begin = time.perf_counter()
        while sitting.step < run.training.steps and len(times) <= MOST:
            before = time.perf_counter()
            sitting.advance()
            sitting.loss()  # waits for the device
            now = time.perf_counter()
            times.append(now - before)
            if len(times) == 1:
                begin = now
            elif now - begin >= seconds:
                break
    return fmean(times[1:] or times)
