"""The command line in this process and as its own."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from lengthwise.cli import main

MEASURE_LITTLE = ("lengthwise.studies.estimate.MEASURING_SECONDS", 0.0)
TINY = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="tiny",
    question="Is it quick?",
    runs=grid(["nope", "fire-s"], ["copy"], model=ModelConfig(d_model=16, num_layers=2, num_heads=2),
              training=TrainingConfig(train_length=4, steps=10, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
)
"""


class Ran:
    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def here(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the command line in this process, which measures no more than one training step for its estimate."""
    monkeypatch.setattr(*MEASURE_LITTLE)

    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        return Ran(code, *capfd.readouterr())

    return call


def process(*arguments: object, **environment: str) -> Ran:
    """Run the command line as its own process."""
    ran = subprocess.run(
        [sys.executable, "-m", "lengthwise", *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | environment,
        check=False,
        timeout=300,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def apart() -> Callable[..., Ran]:
    return process


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with a finished study, made once by the command itself."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "tiny.py").write_text(TINY)
    words = ["run", str(folder / "tiny.py"), "--results", str(folder / "results"), "--on", "inline"]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
        patched.setattr(*MEASURE_LITTLE)
        patched.setattr(sys, "argv", ["lengthwise", *words])
        assert main(words) == 0, err.getvalue()
    (folder / "said.txt").write_text(out.getvalue() + "\n====\n" + err.getvalue())
    return folder / "results"
