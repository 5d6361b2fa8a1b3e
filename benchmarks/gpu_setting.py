"""What the slices of gpu_day.py are given: the device, the sizes, the folder, and until when."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
Measurement = tuple[str, Callable[[], Figures]]


class OutOfTime(Exception):
    """A measurement was given up, because the time of its slice is over."""


@dataclass(frozen=True)
class Setting:
    device: str
    tiny: bool
    folder: Path
    deadline: float  # of time.monotonic()

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()
