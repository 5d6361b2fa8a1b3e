"""Progress reports of training and evaluation, and the exceptions that end them early."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Progress:
    """The progress of a run: `step` of `steps` are done. In evaluation, these are forward passes over all lengths."""

    phase: Literal["train", "evaluate"]
    step: int
    steps: int
    loss: float | None  # mean of the last steps, in nats; None during evaluation
    steps_per_second: float
    eta_seconds: float
    length: int | None = None  # the length being evaluated; None during training
    points: Sequence[Mapping[str, float]] = ()  # of the curve, since the last report; at first all from the checkpoint


class Stopped(Exception):
    """Training or evaluation ended because `should_stop` returned True. The same call continues."""

    def __init__(self, phase: str, step: int, steps: int):
        super().__init__(f"stopped at step {step} of {steps} ({phase}); run it again to continue")
        self.phase, self.step, self.steps = phase, step, steps


class TrainingError(ValueError):
    """A training that cannot continue. The message is one line with the run, the step, the reason and what to do."""


class Pace:
    """The speed of work in any unit, smoothed over the last few updates."""

    def __init__(self, done: float, total: float):
        self.done, self.total, self.rate = done, total, 0.0
        self.updated_at = time.perf_counter()

    def update(self, done: float) -> float:
        """Record that `done` of `total` is done now, and return the estimated seconds for the rest."""
        now = time.perf_counter()
        if done > self.done and now > self.updated_at:
            rate = (done - self.done) / (now - self.updated_at)
            self.rate = rate if self.rate == 0.0 else 0.8 * self.rate + 0.2 * rate
            self.done, self.updated_at = done, now
        return (self.total - done) / self.rate if self.rate else 0.0


class Reporter:
    """Call `on_progress` at most five times a second, so that reports cost no noticeable time."""

    def __init__(self, on_progress: Callable[[Progress], None] | None):
        self.on_progress, self.reported_at = on_progress, float("-inf")

    def is_due(self, last: bool = False) -> bool:
        """Return whether to report now. The last report is always due."""
        return self.on_progress is not None and (last or time.perf_counter() - self.reported_at >= 0.2)

    def report(self, progress: Progress) -> None:
        self.reported_at = time.perf_counter()
        if self.on_progress is not None:
            self.on_progress(progress)
