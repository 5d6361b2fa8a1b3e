"""`torchrun -m lengthwise work`: its processes compute one run after another together, and end together."""

import functools
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lengthwise.cli import main
from lengthwise.config import ConfigError, Inline, Local, Torchrun
from lengthwise.store import open_store
from lengthwise.studies import Compute, execute, load
from lengthwise.studies.events import Note
from lengthwise.torchrun import launched
from tests.studies.conftest import Command
from tests.studies.test_rank_group import numbers, run

pytestmark = pytest.mark.timeout(300)
StudyFile = Callable[..., Path]
Start = Callable[..., Command]
DONE = {"pending": 0, "running": 0, "done": 2, "failed": 0}

# Encodings of a study file. What `Own` does in a process is decided by the environment.
OWN = """
import os
import signal
import torch.distributed as dist
from lengthwise.encodings import PositionEncoding

class Own(PositionEncoding):
    def modifiers(self, span):
        file = os.environ.get("TEST_FILE", "")
        if self.training and os.path.exists(file) and str(dist.get_rank()) in os.environ["TEST_RANKS"]:
            if os.environ["TEST_ACTION"] == "raise":
                raise KeyError("lost")
            os.unlink(file)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().modifiers(span)
"""


@pytest.fixture
def torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start torchrun with options in one text, and a command of lengthwise. Two processes by default."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    started: list[Command] = []

    def start(*arguments: object, options: str = "--nproc-per-node 2", results: Path | None = None) -> Command:
        words = ("-m", "torch.distributed.run", *options.split(), "-m", "lengthwise")
        log = tmp_path / f"torchrun-{len(started)}.txt"
        started.append(Command(*arguments, results=results or tmp_path / "results", log=log, options=words))
        return started[-1]

    yield start
    for one in started:
        one.process.terminate()  # it kills its processes after 30 s
    for one in started:
        one.process.wait(60)


def counts(results: Path) -> dict[str, int]:
    with open_store(results, create=False) as store:
        return store.progress("tiny")


def wait_for_file(path: Path, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"no {path}"
        time.sleep(0.02)


def processes(text: str) -> list[int]:
    """The processes whose command line contains a text."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in line.read_bytes().replace(b"\0", b" "):
                found.append(int(line.parent.name))
    return found


def lines(command: Command) -> list[str]:
    return [line for line in command.said.splitlines() if line.startswith("lengthwise: ")]


@pytest.fixture(scope="module")
def two_devices(tmp_path_factory: pytest.TempPathFactory, write_study: Callable[..., Path]) -> Callable[[str], Path]:
    """Return the results of `--devices-per-run 2` with a sharding; they are computed once."""

    @functools.cache
    def results(sharding: str) -> Path:
        folder = tmp_path_factory.mktemp("two")
        compute = Compute(devices_per_run=2, sharding=sharding)
        outcome, events = run(load(write_study(folder)), folder / "results", compute)
        assert outcome.counts == DONE
        assert not [event for event in events if isinstance(event, Note)]
        return folder / "results"

    return results


@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["ddp", "fsdp"])
def test_two_devices_give_the_results_of_one_and_torchrun_the_same_bits(
    study_file: StudyFile, tmp_path: Path, torchrun: Start, two_devices: Callable[[str], Path], sharding: str
) -> None:
    """For two runs, one after the other."""
    execute(load(study_file()), tmp_path / "one", executor=Inline())
    one, (one_facts, _) = numbers(tmp_path / "one")
    two, (facts, _) = numbers(two_devices(sharding))
    assert two == pytest.approx(one, rel=1e-4) and len(two) > 4
    assert facts["devices_per_run"] == 2 and facts["sharding"] == sharding
    assert "devices_per_run" not in one_facts
    command = torchrun("work", study_file(), "--sharding", sharding)
    assert command.end() == 0, command.said
    assert command.said.count("starts") == 2 and "lengthwise: " not in command.said, command.said
    launched, (launched_facts, _) = numbers(tmp_path / "results")
    assert launched == two
    assert launched_facts["devices_per_run"] == 2 and launched_facts["sharding"] == sharding
    assert launched_facts.keys() == facts.keys()


@pytest.mark.slow
def test_two_nodes(study_file: StudyFile, tmp_path: Path, torchrun: Start, two_devices: Callable[[str], Path]) -> None:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    nodes = f"--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id 7 --rdzv-endpoint localhost:{port}"
    agents = [torchrun("work", study_file(), options=nodes) for _ in range(2)]
    for agent in agents:
        assert agent.end() == 0, agent.said
    assert sum("starts" in agent.said for agent in agents) == 1
    assert numbers(tmp_path / "results")[0] == numbers(two_devices("ddp"))[0]


@pytest.mark.slow
def test_a_process_that_cannot_begin(study_file: StudyFile, tmp_path: Path, torchrun: Start) -> None:
    code = """
import os
if os.environ.get("RANK") == "1":
    raise RuntimeError("no such disk")
class Own(NoPE): ...
"""
    command = torchrun("work", study_file(encodings="[Own]", before=code))
    assert command.end()
    (line,) = lines(command)
    assert re.fullmatch(r"lengthwise: the process of device 1: \S+tiny.py, line \d+: RuntimeError: no such disk", line)


@pytest.mark.slow
def test_a_killed_rank_starts_again(
    study_file: StudyFile, tmp_path: Path, torchrun: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kill"
    file.touch()
    monkeypatch.setenv("TEST_FILE", str(file))
    monkeypatch.setenv("TEST_RANKS", "1")
    monkeypatch.setenv("TEST_ACTION", "kill")
    study = study_file(encodings='[Own, "rope"]', before=OWN)
    command = torchrun("work", study, options="--nproc-per-node 2 --max-restarts 1")
    assert command.end() == 0, command.said
    assert not file.exists()
    assert counts(tmp_path / "results") == DONE
    assert "the process of device 1 of the run ended; it is tried again (retry 1 of 1)" in command.said


@pytest.mark.slow
def test_an_error_of_one_rank_fails_the_run(
    study_file: StudyFile, tmp_path: Path, torchrun: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks wait for it and cannot be interrupted, so all start again, and the next run is computed."""
    file = tmp_path / "raise"
    file.touch()
    monkeypatch.setenv("TEST_FILE", str(file))
    monkeypatch.setenv("TEST_RANKS", "1")
    monkeypatch.setenv("TEST_ACTION", "raise")
    study = study_file(encodings='[Own, "rope"]', before=OWN)
    command = torchrun("work", study, options="--nproc-per-node 2 --max-restarts 1")
    assert command.end() != 0, "one run has failed"
    assert counts(tmp_path / "results") == DONE | {"done": 1, "failed": 1}
    with open_store(tmp_path / "results") as store:
        (failed,) = [run for run in store.runs("tiny") if run.status == "failed"]
    assert re.search(r"tiny.py, line \d+: KeyError: 'lost'", failed.error or "")
    text = (tmp_path / "results" / "runs" / failed.key / "error.txt").read_text()
    assert "in modifiers" in text, "with the traceback of the process that failed"


@pytest.mark.slow
def test_an_error_of_all_ranks_ends_only_its_run(
    study_file: StudyFile, tmp_path: Path, torchrun: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "raise"
    file.touch()
    monkeypatch.setenv("TEST_FILE", str(file))
    monkeypatch.setenv("TEST_RANKS", "0 1")
    monkeypatch.setenv("TEST_ACTION", "raise")
    command = torchrun("work", study_file(encodings='[Own, "rope"]', before=OWN))
    assert command.end() != 0
    assert counts(tmp_path / "results") == DONE | {"done": 1, "failed": 1}
    assert [line for line in lines(command) if "1 of 2 runs failed; use `lengthwise retry`" in line]


SLOW = """
import os
import time
from pathlib import Path
from lengthwise.encodings import RoPE

class Slow(RoPE):
    def modifiers(self, span):
        if self.training and "TEST_FILE" in os.environ:
            Path(os.environ["TEST_FILE"]).touch()
            time.sleep(0.05)
        return super().modifiers(span)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM of torchrun", "SIGINT of a process that may be elsewhere"])
def test_a_signal_stops_all_ranks_and_the_same_command_continues(
    study_file: StudyFile, tmp_path: Path, torchrun: Start, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    study, begun = study_file(encodings="[Slow]", steps=100, before=SLOW), tmp_path / "begun"
    monkeypatch.setenv("TEST_FILE", str(begun))
    command = torchrun("work", study)
    wait_for_file(begun)
    if "SIGTERM" in how:
        command.process.terminate()
    else:
        (other,) = [pid for pid in processes(f"-m lengthwise work {study}") if is_rank(pid, 1)]
        os.kill(other, signal.SIGINT)
    assert command.end() != 0
    assert "0 of 1 runs are done and all progress is saved; run the same command again" in command.said
    with open_store(tmp_path / "results") as store:
        (run,) = store.runs("tiny")
    assert run.status == "pending" and run.worker is None and 0 < run.step < 100
    assert list((tmp_path / "results" / "runs" / run.key).glob(f"checkpoint-{run.step:08d}.safetensors"))
    if "SIGTERM" in how:
        monkeypatch.delenv("TEST_FILE")
        execute(load(study), tmp_path / "calm", executor=Local(workers=1), compute=Compute(devices_per_run=2))
        command = torchrun("work", study)
        assert command.end() == 0, command.said
        assert numbers(tmp_path / "results")[0] == numbers(tmp_path / "calm")[0], "bit for bit"


def is_rank(pid: int, rank: int) -> bool:
    return f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


@pytest.mark.slow
def test_a_refusal_is_printed_once_and_ends_all(study_file: StudyFile, tmp_path: Path, torchrun: Start) -> None:
    command = torchrun("work", study_file(), "--devices-per-run", 3)
    assert command.end(60) != 0
    expected = (
        "torchrun has started 2 processes, but --devices-per-run is 3; omit the option, or start as many processes"
    )
    assert lines(command) == [f"lengthwise: {expected}"]
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["run"],
            "torchrun -m lengthwise run is not supported; use torchrun -m lengthwise work STUDY, or omit torchrun",
        ),
        (["run", "--on", "ray"], "use torchrun -m lengthwise work STUDY"),
        (["work", "--workers", "2"], "under torchrun, one worker uses all processes; omit --workers"),
        (["work", "--devices-per-run", "2"], "torchrun has started 1 process, but --devices-per-run is 2; omit"),
        (["work", "--device", "cuda:1", "--devices-per-run", "1"], "device 'cuda:1' cannot be used"),
    ],
)
def test_what_is_refused(
    study_file: StudyFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    problem: str,
) -> None:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    place = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "TORCHELASTIC_RUN_ID": "x"}
    for name, value in {**place, "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert main([words[0], str(study_file()), *words[1:], "--results", str(tmp_path / "results")]) == 2
    printed = capfd.readouterr().err
    assert problem in printed and printed.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_the_executor_needs_torchrun(study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert launched() is None
    with pytest.raises(ConfigError, match="start it with torchrun -m lengthwise work"):
        execute(load(study_file()), tmp_path / "results", executor=Torchrun())
