"""How long one training step of a run takes."""

import time
from statistics import fmean

import torch

from lengthwise.config import Run
from lengthwise.training.loop import Sitting, build
from lengthwise.training.numerics import reproducible

FEWEST, MOST = 3, 50  # measured steps


def measure_step(run: Run, *, device: torch.device | str = "cpu", backend: str = "auto", seconds: float = 0.5) -> float:
    """Return the mean seconds of a training step of `run`, with a fresh model that is thrown away.

    The first step, which also sets things up, does not count. At least 3 steps and at most 50 are measured, and none is
    begun after `seconds`; where even the first takes longer than that, it is the measurement. Changes no file and no
    random state.
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
            times.append(time.perf_counter() - before)
            spent = time.perf_counter() - begin
            if spent >= seconds and (len(times) > FEWEST or times[0] >= seconds):
                break
    return fmean(times[1:] or times)
