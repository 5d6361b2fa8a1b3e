"""Process settings for training and evaluation: bitwise reproducible results at full speed."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """Within a `with` block, flush denormals to zero (with one CPU thread), and restore the caller's random state at
    its end.

    Denormals (below 1.2e-38, such as ALiBi's attention weights at long distances) mean nothing to a model, and a
    multiplication with them takes 4 times as long. With several threads they are not flushed: torch changes only the
    calling thread, and the others keep the setting from when they started, so results would depend on what the process
    did before.

    Deterministic mode stays off. On the CPU every operation of the model is already bitwise reproducible for the same
    number of threads and instruction set (tested by killing and resuming), and on CUDA the deterministic attention
    backward is slower.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if torch.get_num_threads() > 1:
            yield
            return
        before = _flushes_denormals()
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(before)


def _flushes_denormals() -> bool:
    """Return whether this thread flushes denormals. torch can set this, but has no function to read it."""
    return bool((torch.full((1,), 1e-39) * 1.0 == 0).item())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use this number of CPU threads within a `with` block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use_process(threads: int) -> None:
    """Configure threads and memory of a process of our own, such as a worker; never those of a caller."""
    torch.set_num_threads(threads)
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Tell the C library to keep freed memory for later allocations, if it is one that can (glibc).

    Every training step frees and allocates the same large tensors. Depending on earlier allocations, glibc returns them
    to the system and fetches them again page by page, which takes up to a sixth of a small model's step.
    """
    trim_threshold, mmap_threshold = -1, -3
    with suppress(AttributeError, OSError, TypeError):  # another C library
        set_option = ctypes.CDLL(None).mallopt
        set_option(trim_threshold, 2**31 - 1)
        # Larger allocations come from the system each time, so that they do not fragment the memory that is kept.
        if not set_option(mmap_threshold, 2**30):
            set_option(mmap_threshold, 2**25)


def seed_step(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout uses on `device`. (`torch.manual_seed` seeds all devices, which takes 0.1 ms.)"""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
