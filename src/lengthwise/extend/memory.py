"""The largest memory in use: of tensors in PyTorch's allocator on CUDA, otherwise of the whole process (VmHWM of Linux)."""

from contextlib import suppress
from pathlib import Path

import torch

STATUS, RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: str) -> None:
    """Let the largest memory begin with the memory that is in use now."""
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            RESET_PEAK.write_text("5", encoding="ascii")


def peak(device: str) -> int | None:
    """Return the largest memory in bytes since `reset_peak`; None if the system does not tell."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
