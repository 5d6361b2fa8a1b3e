"""Studies that finish in seconds, and the command line as a process."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HEADER = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.studies import Study, grid

SMALL = ModelConfig(d_model=16, num_layers=1, num_heads=2)
"""


@pytest.fixture(scope="session")
def write_study() -> Callable[..., Path]:
    """Write a study of copy runs into a folder."""

    def write(
        folder: Path,
        encodings: str = '["nope", "rope"]',
        seeds: int = 1,
        steps: int = 12,
        lengths: tuple[int, ...] = (4, 8),
        before: str = "",
    ) -> Path:
        body = f"""
study = Study(
    name="tiny",
    question="Is it quick?",
    runs=grid({encodings}, ["copy"], seeds={seeds}, model=SMALL,
              training=TrainingConfig(train_length=4, steps={steps}, batch_size=4)),
    evaluation=EvaluationConfig(lengths={lengths!r}, examples=16),
)
"""
        path = folder / "tiny.py"
        path.write_text(HEADER + textwrap.dedent(before) + body, encoding="utf-8")
        return path

    return write


@pytest.fixture
def study_file(tmp_path: Path, write_study: Callable[..., Path]) -> Callable[..., Path]:
    """`study_file(encodings='["nope"]', seeds=2, steps=20, lengths=(4, 8), before="more code")`."""
    return functools.partial(write_study, tmp_path)


class Command:
    """`lengthwise ARGUMENTS` in its own process group, as a terminal would start it. `options`: those of Python."""

    def __init__(self, *arguments: object, results: Path, log: Path, options: tuple[str, ...] = ("-m", "lengthwise")):
        self.log = log
        environment = dict(os.environ, OMP_NUM_THREADS="1", LENGTHWISE_RESULTS=str(results))
        environment.pop("LENGTHWISE_DEBUG", None)
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *options, *map(str, arguments)],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < end, f"no {text!r} in:\n{self.said}"
            assert self.process.poll() is None, f"ended without {text!r}:\n{self.said}"
            time.sleep(0.02)

    def end(self, seconds: float = 120) -> int:
        return self.process.wait(seconds)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """kill -9, the parent alone."""
        self.process.kill()
        self.process.wait()

    def members(self) -> list[int]:
        """The living processes of its group."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == self.process.pid and fields[0] not in (b"Z", b"X"):
                found.append(int(stat.parent.name))
        return found

    def workers(self) -> list[int]:
        """Its worker processes, those that are past starting too."""
        found = []
        for pid in self.members():
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"\0work\0-\0" in line:
                found.append(pid)
        return found


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, write_study: Callable[..., Path]) -> Callable[..., Path]:
    """Run a study that nothing happens to; its results."""

    def run(**settings: object) -> Path:
        folder = tmp_path_factory.mktemp("calm")
        one = Command("run", write_study(folder, **settings), results=folder / "results", log=folder / "log.txt")
        assert one.end(300) == 0, one.said
        return folder / "results"

    return run


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start a command; whatever is left of it at the end of the test is killed."""
    started: list[Command] = []

    def start(*arguments: object, results: Path | None = None) -> Command:
        log = tmp_path / f"log-{len(started)}.txt"
        started.append(Command(*arguments, results=results or tmp_path / "results", log=log))
        return started[-1]

    yield start
    for one in started:
        if one.members():
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait()
