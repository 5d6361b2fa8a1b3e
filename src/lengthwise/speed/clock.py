"""How the time of one forward pass or training step is measured on a device."""

import time
from collections.abc import Callable
from typing import Literal

import torch


class Clock:
    """Measures the seconds of one action: by events on CUDA, as CPU time for one CPU thread, otherwise as wall time.

    Other processes on the machine disturb CPU time little. Events include the gaps in which the device waits for the
    CPU. `name`: what is measured, as it is stored.
    """

    def __init__(self, device: torch.device, threads: int) -> None:
        self.device = device
        self.name: Literal["CPU time", "wall time", "CUDA events"] = "wall time"
        if device.type == "cuda":
            self.name = "CUDA events"
        elif device.type == "cpu" and threads == 1:
            self.name = "CPU time"

    def seconds(self, action: Callable[[], object]) -> float:
        if self.name == "CUDA events":
            return self._by_events(action)
        now = time.process_time if self.name == "CPU time" else time.perf_counter
        self._wait()
        start = now()
        action()
        self._wait()
        return now() - start

    def _by_events(self, action: Callable[[], object]) -> float:
        with torch.cuda.device(self.device):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            action()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1000

    def _wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)
