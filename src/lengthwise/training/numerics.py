"""What has to hold around training and evaluation so that the same run gives the same bits, at full speed."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(device: torch.device) -> Iterator[None]:
    """For the time of a `with`: denormals are zero on the CPU, and the caller's random state is left as it was.

    Denormals: numbers below 1.2e-38, such as attention weights far back under ALiBi, cost up to 100 times a normal
    multiplication on a CPU and mean nothing to a model.

    No deterministic mode is switched on: on the CPU every operation of the model already gives the same bits for the
    same number of threads (tested by killing and resuming), and on CUDA the deterministic attention backward is slower.
    """
    before = _flushes()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
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
