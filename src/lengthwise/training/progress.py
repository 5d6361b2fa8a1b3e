"""What a caller hears while a run is at work, and how work ends early."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Progress:
    """How far a run is. `step` of `steps` are done; in the phase "evaluate" they count forwards, of all lengths."""

    phase: Literal["train", "evaluate"]
    step: int
    steps: int
    loss: float | None  # nats, of the newest step; None while evaluating
    steps_per_second: float
    eta_seconds: float
    length: int | None = None  # the length being evaluated; None while training


class Stopped(Exception):
    """Work ended because `should_stop` said so. What was done is saved; the same call continues."""

    def __init__(self, phase: str, step: int, steps: int):
        super().__init__(f"stopped at step {step} of {steps} ({phase}); run it again to continue")
        self.phase, self.step, self.steps = phase, step, steps

    def __reduce__(self) -> tuple[type, tuple[str, int, int]]:  # it may travel between processes
        return type(self), (self.phase, self.step, self.steps)


class TrainingError(ValueError):
    """A training that cannot go on. One line: which run and step, why, what to do."""


class Pace:
    """How fast work goes and when it ends: `done` of `total`, in any unit, smoothed over the last few calls."""

    def __init__(self, done: float, total: float):
        self.done, self.total, self.rate = done, total, 0.0
        self.clock = time.perf_counter()

    def update(self, done: float) -> float:
        """Note that `done` is done now; the seconds that the rest will take."""
        now = time.perf_counter()
        if done > self.done and now > self.clock:
            rate = (done - self.done) / (now - self.clock)
            self.rate = rate if self.rate == 0.0 else 0.8 * self.rate + 0.2 * rate
            self.done, self.clock = done, now
        return (self.total - done) / self.rate if self.rate else 0.0


class Reporter:
    """Calls `on_progress` often enough for an eye and too seldom to cost anything."""

    def __init__(self, on_progress: Callable[[Progress], None] | None, every_seconds: float = 0.2):
        self.on_progress, self.every = on_progress, every_seconds
        self.last = float("-inf")

    def due(self, last: bool = False) -> bool:
        return self.on_progress is not None and (last or time.perf_counter() - self.last >= self.every)

    def tell(self, progress: Progress) -> None:
        self.last = time.perf_counter()
        if self.on_progress is not None:
            self.on_progress(progress)
