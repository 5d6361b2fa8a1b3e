"""Where a training's time goes: seconds of every step, and the share spent in forward, backward and optimiser."""

import time
from types import TracebackType

import numpy as np
import torch


class Stopwatch:
    """`with watch:` around forward, backward and optimiser; `lap(step)` at the end of each step.

    What happens between steps (a report, a checkpoint) counts for the step after it.

    On CUDA the work is timed by events on the device, so that timing it never waits for it; a step's own seconds are
    then those of handing it over, which evens out over a row of the curve.
    """

    def __init__(self, device: torch.device, steps: int):
        self.cuda = device.type == "cuda"
        self.steps = np.zeros(steps)  # seconds of every step
        self._earlier = self._busy = 0.0
        self._begin = self._lap = time.perf_counter()
        self._entered = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def restore(self, steps: np.ndarray, total: float, busy: float) -> None:
        """Go on from an earlier sitting."""
        self.steps[: len(steps)] = steps
        self._earlier, self._busy = total, busy
        self._begin = self._lap = time.perf_counter()

    def __enter__(self) -> None:
        if self.cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._events.append((begin, end))
            begin.record()
        else:
            self._entered = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.cuda:
            self._events[-1][1].record()
            if len(self._events) >= 1000:
                self._read_events()
        else:
            self._busy += time.perf_counter() - self._entered

    def lap(self, step: int) -> None:
        """`step` steps are over, with everything that belongs to them."""
        now = time.perf_counter()
        self.steps[step - 1] = now - self._lap
        self._lap = now

    def totals(self) -> tuple[float, float]:
        """Seconds of all sittings, and how many of them were forward, backward and optimiser."""
        self._read_events()
        return self._earlier + time.perf_counter() - self._begin, self._busy

    def _read_events(self) -> None:
        if self._events:
            self._events[-1][1].synchronize()
            self._busy += sum(begin.elapsed_time(end) for begin, end in self._events) / 1000
            self._events.clear()
