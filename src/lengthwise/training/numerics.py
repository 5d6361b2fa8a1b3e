"""What has to hold around training and evaluation so that the same run gives the same bits, at full speed."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """For the time of a `with`: denormals count as zero on one CPU thread, and the caller's random state is kept.

    Denormals (below 1.2e-38, such as attention weights far back under ALiBi) mean nothing to a model and cost 4 times
    an ordinary multiplication. With several threads they are left alone: torch sets the calling thread only, and its
    others keep what held when they were started, so that bits would depend on what the process did before.

    No deterministic mode is switched on: on the CPU every operation of the model already gives the same bits for the
    same number of threads (tested by killing and resuming), and on CUDA the deterministic attention backward is slower.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if torch.get_num_threads() > 1:
            yield
            return
        before = _flushes()
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(before)


def _flushes() -> bool:
    """Whether this thread flushes denormals now: torch can set it, and has no way to ask."""
    return bool((torch.full((1,), 1e-39) * 1.0 == 0).item())


def use_process(threads: int) -> None:
    """Threads and memory of a process that is ours alone, as a worker's is: a library leaves its caller's as they are.

    Where the C library cannot be told to keep memory (it is not glibc) a run gives the same bits, and may take longer.
    """
    torch.set_num_threads(threads)
    keep_freed_memory()


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed for what is asked for next; whether it could be told.

    A training step frees and asks for the same large tensors each time. glibc gives them back to the system and fetches them
    again, page by page, depending on what was allocated before: up to a sixth of the time of a step of a small model.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    trim_threshold, mmap_threshold = -1, -3
    done = bool(set_option(trim_threshold, 2**31 - 1))
    # What is larger comes from the system each time, and does not split what is kept.
    return bool(set_option(mmap_threshold, 2**30) or set_option(mmap_threshold, 2**25)) and done


def seed_step(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout on `device` draws from (`torch.manual_seed` seeds every device's, in 0.1 ms)."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
