"""The peak memory of a training: of the whole process on a CPU, of PyTorch's tensors on CUDA."""

import ctypes
from contextlib import suppress
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
RESET_PEAK = Path("/proc/self/clear_refs")
MMAP_THRESHOLD = -3  # an option of glibc's `mallopt`


class PeakMemory:
    """The highest memory since this object was made.

    On a CPU it is the resident memory of this process (VmHWM of Linux), with Python and all libraries. The memory that
    the C library keeps from earlier work is returned to the system first, so that it does not count. On CUDA it is the
    memory of tensors in PyTorch's allocator (`max_memory_allocated`), with those that existed before.
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            self.measures = release_freed_memory() and reset_peak()

    def bytes(self) -> int | None:
        """Return the peak in bytes; None where it cannot be measured: on other devices and systems than Linux."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resident("VmHWM") if self.device.type == "cpu" and self.measures else None


def release_freed_memory() -> bool:
    """Let the C library return freed memory to the system. Return whether it is one that can (glibc)."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
        return True
    return False


def return_when_freed(size: int) -> None:
    """Let the C library, if it is glibc, return allocations from this size to the system as soon as they are freed."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, size)


def reset_peak() -> bool:
    """Let the peak of the resident memory (VmHWM) start again now. Return whether the system allows that."""
    with suppress(OSError):
        RESET_PEAK.write_text("5", encoding="ascii")
        return True
    return False


def resident(field: str) -> int:
    """Return a size of this process in bytes: VmRSS is the resident memory, VmHWM its maximum so far."""
    line = next(line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
