"""Ask a probe about a model, without a store."""

from typing import Any

from lengthwise.measurements import PROBES, Table
from lengthwise.measurements.inside.trained import TrainedRun, answer


def measured(probe: str, trained: TrainedRun, options: Any, progress: Any = None) -> Table:
    return answer(PROBES[probe], trained, options, progress)[0]


def options_of(probe: str, train_length: int, length: int | None = None, **options: Any) -> Any:
    return PROBES[probe].Options.with_defaults(train_length, length=length, **options)
