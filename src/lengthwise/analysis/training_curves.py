"""The loss and the learning rate during training, of each run of a task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.store import CurveRow, RunRow

MOST_POINTS, ALL_POINTS = 60, 40_000  # of one curve, and of all curves of a page together


@dataclass(frozen=True)
class TrainingCurve:
    """The training of one run. `losses`: in nats per scored token, NaN where none was measured. Each has as many as `steps`.

    `seconds`: of the training (NaN: not finished). `memory`: the peak of the training in MB (NaN: not measured). `parameters` and
    `backend`: of the model and of its attention, if known.
    """

    key: str
    seed: int
    steps: tuple[int, ...]
    losses: tuple[float, ...]
    learning_rates: tuple[float, ...]
    seconds: float
    memory: float
    parameters: int | None
    backend: str | None

    @property
    def last_loss(self) -> float:
        """Return the last loss that was measured, and NaN if there is none."""
        return next((loss for loss in reversed(self.losses) if math.isfinite(loss)), math.nan)


def points_of_each(runs: int) -> int:
    """Return how many points the curve of each of so many runs has: fewer if there are many runs, because a page shows them all."""
    return max(10, min(MOST_POINTS, ALL_POINTS // max(1, runs)))


def training_curves(
    runs: "Sequence[RunRow]", rows: "Mapping[str, Sequence[CurveRow]]", labels: Mapping[str, str]
) -> dict[str, tuple[TrainingCurve, ...]]:
    """Return the curves of runs by the label of their encoding, in the order of the runs. Runs without a point are left out."""
    found: dict[str, list[TrainingCurve]] = {}
    for run in runs:
        points = rows.get(run.key, ())
        if points:
            curve = TrainingCurve(
                key=run.key,
                seed=run.seed,
                steps=tuple(point.step for point in points),
                losses=tuple(point.loss for point in points),
                learning_rates=tuple(point.learning_rate for point in points),
                seconds=training_seconds(run),
                memory=peak_megabytes(run),
                parameters=fact(run, "parameters", (int,)),
                backend=fact(run, "backend", (str,)),
            )
            found.setdefault(labels[run.key], []).append(curve)
    return {label: tuple(curves) for label, curves in found.items()}


def training_seconds(run: "RunRow") -> float:
    """Return the time of the training, and NaN if it is not known."""
    return float(fact(run, "seconds", (int, float)) or math.nan)


def peak_megabytes(run: "RunRow") -> float:
    """Return the peak memory of the training in MB, and NaN if it was not measured."""
    return (fact(run, "peak_memory", (int,)) or math.nan) / 1e6


def fact(run: "RunRow", name: str, types: tuple[type, ...]) -> Any:
    """Return a fact of a run, and None if it has none of these types: the database may be anybody's."""
    value = (run.facts or {}).get(name)
    return value if isinstance(value, types) and not isinstance(value, bool) else None
