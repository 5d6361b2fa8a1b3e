"""Timing of training: the seconds of every step, and the share spent in forward, backward and optimizer."""

import time

import numpy as np
import torch


class Stopwatch:
    """Use `with stopwatch:` around forward, backward and optimizer, and call `lap(step)` at the end of each step.

    Time between steps (a report, a checkpoint) counts for the following step.

    On CUDA the `with` block is timed by events on the device, so timing never waits for the device. The seconds of a
    single step are then those of launching it; over a row of the curve the difference averages out.
    """

    def __init__(self, device: torch.device, steps: int):
        self.cuda = device.type == "cuda"
        self.steps = np.zeros(steps)  # seconds of every step
        self._seconds_before = self._busy = 0.0
        self._started_at = self._lap_at = time.perf_counter()
        self._entered_at = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def restore(self, steps: np.ndarray, total: float, busy: float) -> None:
        """Continue from the times of a checkpoint."""
        self.steps[: len(steps)] = steps
        self._seconds_before, self._busy = total, busy
        self._started_at = self._lap_at = time.perf_counter()

    def __enter__(self) -> None:
        if self.cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._events.append((begin, end))
            begin.record()
        else:
            self._entered_at = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        if self.cuda:
            self._events[-1][1].record()
            if len(self._events) >= 1000:
                self._read_events()
        else:
            self._busy += time.perf_counter() - self._entered_at

    def lap(self, step: int) -> None:
        """Record the end of a step, counted from 1."""
        now = time.perf_counter()
        self.steps[step - 1] = now - self._lap_at
        self._lap_at = now

    def totals(self) -> tuple[float, float]:
        """Return the seconds of the whole training, also before a checkpoint, and those inside `with` blocks."""
        self._read_events()
        return self._seconds_before + time.perf_counter() - self._started_at, self._busy

    def _read_events(self) -> None:
        if self._events:
            self._events[-1][1].synchronize()
            self._busy += sum(begin.elapsed_time(end) for begin, end in self._events) / 1000
            self._events.clear()
