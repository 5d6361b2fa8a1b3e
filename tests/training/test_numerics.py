import contextlib
import ctypes
import subprocess
import sys

import pytest
import torch

from lengthwise.training.numerics import reproducible, seed_step

CPU = torch.device("cpu")


def kept(n: int = 1) -> int:
    """How many of `n` denormal numbers survive a multiplication."""
    return int(torch.count_nonzero((torch.full((n,), 1e-39) * 1.0).view(torch.int32)))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("flushed_before", [False, True])
def test_one_thread_flushes_denormals_and_is_put_back(threads, flushed_before):
    threads(1)
    torch.set_flush_denormal(flushed_before)
    try:
        with contextlib.suppress(KeyError), reproducible(CPU):
            assert kept() == 0
            raise KeyError
        assert kept() == (0 if flushed_before else 1)
    finally:
        torch.set_flush_denormal(False)


def test_several_threads_all_do_the_same(threads):
    threads(2)
    with reproducible(CPU):
        assert kept(1_000_000) == 1_000_000
    assert kept(1_000_000) == 1_000_000


def test_a_step_draws_the_same_whatever_came_before():
    with reproducible(CPU):
        seed_step(5, CPU)
        first = torch.rand(4)
        torch.rand(9)
        seed_step(5, CPU)
        assert torch.equal(torch.rand(4), first)
        seed_step(6, CPU)
        assert not torch.equal(torch.rand(4), first)


@pytest.mark.medium
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="a C library without mallopt")
def test_freed_memory_is_kept_for_what_is_asked_for_next():
    program = """
import resource, torch
from lengthwise.training.numerics import keep_freed_memory
keep_freed_memory()
def step():
    small, large = torch.ones(1_000_000), torch.ones(20_000_000)  # 4 and 80 MB
    del small, large
for _ in range(10):  # until everything has found its place
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert int(said) < 1000  # 84 MB are 20,000 pages of 4 KiB, each time
