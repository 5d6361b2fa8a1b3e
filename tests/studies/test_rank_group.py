"""Runs that several processes compute together: they are interrupted and fail like others.

`test_torchrun.py` compares their results with those of one process.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError, Inline, Local, Ray, Slurm
from lengthwise.store import open_store
from lengthwise.studies import Compute, Outcome, Study, execute, load
from lengthwise.studies.events import Advanced, Event, Failed, Note
from lengthwise.studies.executors.watching import require_consistent
from tests.made_answers import losses

pytestmark = pytest.mark.timeout(300)
StudyFile = Callable[..., Path]
TWO = Compute(devices_per_run=2)
DONE = {"pending": 0, "running": 0, "done": 1, "failed": 0}

# An encoding of a study file; what it does in a process is decided by the environment.
OWN = """
import os
import signal
import torch
import torch.distributed as dist
from lengthwise.encodings import PositionEncoding

class Own(PositionEncoding):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.zeros(3))

    def modifiers(self, span):
        file = os.environ.get("TEST_FILE", "")
        due = self.training and os.path.exists(file) and dist.is_initialized()
        if due and dist.get_rank() == int(os.environ["TEST_RANK"]):
            if os.environ["TEST_ACTION"] == "raise":
                raise KeyError("lost")
            if os.environ["TEST_ACTION"] == "large":
                raise ValueError("lost " + "x" * 5_000_000)
            if os.environ["TEST_ACTION"] == "interrupt":
                raise KeyboardInterrupt("lost")
            os.unlink(file)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().modifiers(span)
"""


def numbers(results: Path) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    """The scores and losses, and the facts of the runs."""
    with open_store(results, create=False) as store:
        runs = store.runs("tiny")
        scores = {(s.key, s.length): (s.mean, s.standard_error) for s in store.scores([run.key for run in runs])}
        curves = {(run.key, step): loss for run in runs for step, loss in losses(store, run.key)}
        return scores | curves, [run.facts for run in runs]


def run(study: Study, results: Path, compute: Compute = TWO, **settings: Any) -> tuple[Outcome, list[Event]]:
    events: list[Event] = []
    settings = {"executor": Local(workers=1)} | settings
    return execute(study, results, compute=compute, on_event=events.append, **settings), events


def workers_of(parent: int) -> list[int]:
    """The processes of a worker that another process has started, such as the ranks that torchrun has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_bytes().rpartition(b")")[2].split()
            line = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == parent and b"\0work\0-\0" in line:
            found.append(int(stat.parent.name))
    return found


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


@pytest.mark.slow
def test_a_run_that_was_interrupted_on_two_devices_ends_on_one(study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(encodings='["rope"]', steps=200))
    run(study, tmp_path / "calm", TWO)
    with pytest.raises(KeyboardInterrupt):

        def interrupt(event: Event) -> None:
            if isinstance(event, Advanced) and event.step >= 20:
                os.kill(os.getpid(), signal.SIGINT)

        execute(study, tmp_path / "cut", executor=Local(workers=1), compute=TWO, on_event=interrupt)
    with open_store(tmp_path / "cut") as store:
        (row,) = store.runs("tiny")
        assert row.status == "pending" and 20 <= row.step < 200
    assert run(study, tmp_path / "cut", TWO)[0].counts == DONE
    assert numbers(tmp_path / "cut")[0] == numbers(tmp_path / "calm")[0], "bit for bit, on as many devices"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_of_a_run(
    study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    study = load(study_file(encodings="[Own]", before=OWN))
    file = tmp_path / "kill"
    file.touch()
    monkeypatch.setenv("TEST_FILE", str(file))
    monkeypatch.setenv("TEST_RANK", str(rank))
    monkeypatch.setenv("TEST_ACTION", "kill")
    outcome, events = run(study, tmp_path / "results")
    assert outcome.counts == DONE
    assert not file.exists()
    notes = [event.text for event in events if isinstance(event, Note)]
    ended = "a worker ended (device 0: killed by SIGKILL); the run continues from its last checkpoint"
    if rank == 1:
        ended = "failed: the process of device 1 of the run ended; it is tried again (retry 1 of 1)"
    assert notes == [ended]
    assert not workers_of(os.getpid())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "action"),
    # "large": more than is sent to rank 0; "interrupt": a KeyboardInterrupt that is not Ctrl-C
    [(0, "raise"), (1, "large"), (1, "interrupt")],
)
def test_an_error_of_any_process_fails_the_run_with_its_text_and_line(
    study_file: StudyFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rank: int,
    action: str,
) -> None:
    study = load(study_file(encodings='[Own, "nope"]', before=OWN))
    file = tmp_path / "raise"
    file.touch()
    monkeypatch.setenv("TEST_FILE", str(file))
    monkeypatch.setenv("TEST_RANK", str(rank))
    monkeypatch.setenv("TEST_ACTION", action)
    outcome, events = run(study, tmp_path / "results")
    assert outcome.counts == DONE | {"failed": 1}, "the other run goes on"
    (failed,) = [event for event in events if isinstance(event, Failed)]
    texts = {"raise": "KeyError: 'lost'", "large": "ValueError: lost xx", "interrupt": "KeyboardInterrupt: lost"}
    lines = (tmp_path / "tiny.py").read_text().splitlines()
    number = 1 + next(n for n, line in enumerate(lines) if f"raise {texts[action].partition(':')[0]}" in line)
    assert f"{tmp_path}/tiny.py, line {number}: {texts[action]}" in failed.error
    assert "Traceback" not in capfd.readouterr().err
    text = (tmp_path / "results" / "runs" / failed.key / "error.txt").read_text()
    assert "in modifiers" in text, "with the traceback of the process that failed"


OWN_BIAS = """
import torch
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import AttentionModifiers, ToeplitzBias

print("loaded")

class OwnBias(PositionEncoding):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.3, -0.2]))

    def modifiers(self, span):
        table = self.weight[:, None] * torch.arange(span.distance_bound).log1p()
        return AttentionModifiers(terms=(ToeplitzBias(table),))
"""


@pytest.mark.slow
def test_own_code_prints_only_in_the_first_process(
    study_file: StudyFile, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome, _ = run(load(study_file(encodings="[OwnBias]", before=OWN_BIAS)), tmp_path / "results")
    assert outcome.counts == DONE
    captured = capfd.readouterr()
    assert captured.out == "loaded\n", "this process"
    assert captured.err == "loaded\n", "the worker; and DDP has no warning of unused parameters"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_no_process_outlives_a_worker(study_file: StudyFile, command: Any) -> None:
    started = command("run", study_file(encodings='["nope"]', steps=20_000), "--devices-per-run", 2, "--workers", 1)
    started.wait_for("starts")
    (worker,) = workers_of(started.process.pid)
    end = time.monotonic() + 60
    others = workers_of(worker)
    assert len(others) == 2
    os.kill(worker, signal.SIGKILL)
    os.kill(others[0], signal.SIGKILL)
    started.kill()
    while not all(map(has_ended, others)) and time.monotonic() < end:
        time.sleep(0.05)
    assert all(map(has_ended, others))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"devices_per_run": 0}, "devices_per_run must be from 1 to 64, got 0"),
        ({"devices_per_run": 65}, "devices_per_run must be from 1 to 64, got 65"),
        ({"devices_per_run": 2, "sharding": "fdsp"}, "sharding must be ddp or fsdp, and there is no 'fdsp'.*fsdp"),
        ({"sharding": "fsdp"}, "sharding fsdp needs several devices per run; add --devices-per-run, or omit sharding"),
        ({"devices_per_run": 2, "device": "cuda:1"}, "device must be cpu or cuda, got 'cuda:1'"),
        (
            {"devices_per_run": 5},
            "5 devices per run divide a batch into 5 micro-batches, so batch_size must be at least 5, got 4",
        ),
    ],
)
def test_devices_that_cannot_be_used(
    study_file: StudyFile, tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        execute(load(study_file()), tmp_path / "results", compute=Compute(**settings))
    assert not (tmp_path / "results").exists()


def test_inline_has_one_device(study_file: StudyFile, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="inline executes runs in this process, which has one device; use --on local"):
        execute(load(study_file()), tmp_path / "results", executor=Inline(), compute=TWO)
    assert not (tmp_path / "results").exists()


def test_compiling_needs_a_compiler(study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(
        ConfigError, match=r"compile needs a C\+\+ compiler on a CPU, and none was found; install g\+\+"
    ):
        execute(load(study_file()), tmp_path / "results", compute=Compute(compile=True))
    assert not (tmp_path / "results").exists()


def test_a_cluster_reserves_what_a_run_needs() -> None:
    compute = Compute(device="cuda", devices_per_run=4)
    for config in (Slurm(gpus=4), Ray(gpus=4)):
        require_consistent(config.gpus, compute, None)
        with pytest.raises(ConfigError, match="gpus is 2 but a run has 4 devices; use --gpus 4"):
            require_consistent(2, compute, None)
