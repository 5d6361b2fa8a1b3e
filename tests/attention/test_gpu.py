"""The kernels for a GPU: in Triton's interpreter on any Linux machine, compiled where there is a GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.attention import gpu

HERE = Path(__file__).parent
INTERPRETED = HERE / "interpreted_gpu.py"

needs_triton = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))


@needs_triton
@pytest.mark.parametrize("part", ["form", "pieces or documents", "not form and not pieces and not documents"])
def test_in_the_interpreter(part):
    """A process of its own: Triton decides when it is imported whether it interprets."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", part, str(INTERPRETED),
               "--jaxtyping-packages=lengthwise.attention,beartype.beartype"]  # fmt: skip
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for name in [name for name in env if name.startswith("PYTEST_XDIST")]:
        del env[name]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=HERE.parent.parent, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Triton" in str(gpu.missing())
