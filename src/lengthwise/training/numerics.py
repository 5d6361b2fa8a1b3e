"""What has to hold around training and evaluation so that the same run gives the same bits, at full speed."""

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


def seed_step(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout on `device` draws from (`torch.manual_seed` seeds every device's, in 0.1 ms)."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
