"""The kernel's C++ sources without torch: driver.cpp compares them with plain loops, built in several ways."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "run.py"
CASES = {
    "g++": 2000,
    "clang++": 1000,
    "g++-address": 100,
    "clang++-address": 200,
    "g++-thread": 60,
    "clang++-thread": 60,
    "valgrind": 30,
    "aarch64": 200,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", CASES)
def test_the_kernel_is_right_and_touches_nothing_else(way):
    command = [sys.executable, str(RUN), way, "--cases", str(CASES[way])]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-4000:]
    assert f"{CASES[way]} cases" in done.stdout
    assert f"{CASES[way]} networks" in done.stdout


@pytest.mark.slow
def test_every_way_is_tried():
    listed = subprocess.run([sys.executable, str(RUN)], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(CASES)
