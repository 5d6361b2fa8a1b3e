"""Clocks: how the time of one forward pass or training step is measured on a device."""

import time
from collections.abc import Callable
from typing import Literal, Protocol

import torch

Action = Callable[[], object]
ClockName = Literal["CPU time", "wall time", "CUDA events"]


class Clock(Protocol):
    """Measures the seconds of one action. `name`: what it measures, as it is stored."""

    name: ClockName

    def seconds(self, action: Action) -> float: ...


class CPUTime:
    """CPU time of this process, for computations on one thread. Other processes on the machine disturb it little."""

    name: ClockName = "CPU time"

    def seconds(self, action: Action) -> float:
        start = time.process_time()
        action()
        return time.process_time() - start


class WallTime:
    """Wall time, for several threads and for devices other than CUDA. The device has finished before and after."""

    name: ClockName = "wall time"

    def __init__(self, device: torch.device):
        self.device = device

    def seconds(self, action: Action) -> float:
        self._wait()
        start = time.perf_counter()
        action()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)


class CUDAEvents:
    """The time between two events on the device, which includes the gaps in which the device waits for the CPU."""

    name: ClockName = "CUDA events"

    def __init__(self, device: torch.device):
        self.device = device

    def seconds(self, action: Action) -> float:
        with torch.cuda.device(self.device):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            begin.record()
            action()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) / 1000


def clock_for(device: torch.device, threads: int) -> Clock:
    """Return the clock of a device: events on CUDA, CPU time for one CPU thread, otherwise wall time."""
    if device.type == "cuda":
        return CUDAEvents(device)
    return CPUTime() if device.type == "cpu" and threads == 1 else WallTime(device)
