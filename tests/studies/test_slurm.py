"""Studies in the jobs of a Slurm cluster: a real one of one node, see `tests/slurm_cluster.py`."""

import dataclasses
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError, Inline, Local, Slurm
from lengthwise.store import ResultsFolder, StoreError, open_results, open_store
from lengthwise.studies import Compute, Event, execute, load
from lengthwise.studies.events import Done, Note, Started
from lengthwise.studies.executors import WorkerError
from lengthwise.studies.executors.slurm import SlurmExecutor, end_job, job_name, script
from lengthwise.studies.parent import Flag
from lengthwise.studies.spec import Spec
from lengthwise.studies.worker import work
from tests.slurm_cluster import needs_slurm, slurm

__all__ = ["slurm"]

StudyFile = Callable[..., Path]
pytestmark = pytest.mark.timeout(900)  # other slow tests run at the same time


def numbers(results: Path) -> dict[str, Any]:
    with open_results(results, create=False) as store:
        return {
            run.key: (run.status, run.error, [(s.length, s.mean, s.standard_error) for s in store.scores([run.key])])
            for run in store.runs("tiny")
        }


def squeue(states: str = "all") -> list[list[str]]:
    words = ["squeue", "--noheader", "--format=%A|%T", f"--states={states}"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return [line.split("|") for line in lines]


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still not after {seconds} s; the queue is {squeue()}"
        time.sleep(0.2)


def start(file: Path, results: Path, *options: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "lengthwise", "run", str(file), "--results", str(results), "--on", "slurm", *options]
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def step_of_first(results: Path) -> int:
    with suppress(StoreError), open_store(results, create=False) as store:  # it may not exist yet
        runs = store.runs("tiny")
        return runs[0].step if runs and runs[0].worker else 0
    return 0


@pytest.fixture
def long_study(study_file: StudyFile) -> Path:
    return study_file(encodings='["nope"]', steps=10_000)


@needs_slurm
@pytest.mark.slow
def test_a_study_gives_what_it_gives_here(slurm: Path, study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(seeds=2))
    execute(study, tmp_path / "here", executor=Inline())
    heard: list[Event] = []
    outcome = execute(study, tmp_path / "there", executor=Slurm(slots=2, time="10m"), on_event=heard.append)
    assert outcome.counts == {"pending": 0, "running": 0, "done": 4, "failed": 0}
    assert numbers(tmp_path / "there") == numbers(tmp_path / "here")
    keys = {run.key for run in study.runs}
    assert {e.key for e in heard if isinstance(e, Started)} == keys
    assert {e.where for e in heard if isinstance(e, Started)} <= {"", socket.gethostname()}
    assert {e.key for e in heard if isinstance(e, Done) and len(e.scores) == 2} == keys
    logs = list((tmp_path / "there" / "slurm").glob("*/*_log.out"))
    assert len(logs) == 2
    wait_for(lambda: not squeue("pending,running"))


@needs_slurm
@pytest.mark.slow
def test_a_job_has_several_devices_for_each_run(slurm: Path, study_file: StudyFile, tmp_path: Path) -> None:
    study, compute = load(study_file()), Compute(devices_per_run=2)
    execute(study, tmp_path / "here", executor=Local(workers=1), compute=compute)
    execute(study, tmp_path / "there", executor=Slurm(slots=1, time="10m"), compute=compute)
    assert numbers(tmp_path / "there") == numbers(tmp_path / "here")
    wait_for(lambda: not squeue("pending,running"))


@needs_slurm
@pytest.mark.slow
def test_results_at_an_address(
    slurm: Path, study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    study, results, store = load(study_file()), f"file://{tmp_path}/bucket", f"sqlite:///{tmp_path}/results.db"
    outcome = execute(study, results, store=store, executor=Slurm(slots=1, time="10m"))
    assert outcome.counts == {"pending": 0, "running": 0, "done": 2, "failed": 0}
    files = {path.parent.name: path.name for path in (tmp_path / "bucket").glob("runs/*/*")}
    assert files == {run.key: "weights.safetensors" for run in study.runs}
    assert len(list((tmp_path / "cache").glob("results-*/slurm/*/*_log.out"))) == 1
    wait_for(lambda: not squeue("pending,running"))


@needs_slurm
@pytest.mark.slow
def test_the_driver_may_be_killed_and_ctrl_c_stops_the_jobs(slurm: Path, long_study: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    driver = start(long_study, results, "--slots", "1", "--time", "10m")
    wait_for(lambda: step_of_first(results) > 0)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert [state for _, state in squeue("running")] == ["RUNNING"]
    again = start(long_study, results, "--slots", "1", "--time", "10m")
    assert again.stderr is not None
    lines = [again.stderr.readline() for _ in range(2)]
    assert lines[1] == "found 1 job of an earlier command in the queue; this command follows it\n"
    again.send_signal(signal.SIGINT)
    assert again.wait(90) == 130
    assert "all progress is saved; run the same command again to continue" in again.stderr.read()
    wait_for(lambda: not squeue("pending,running"))
    with open_store(results, create=False) as store:
        (run,) = store.runs("tiny")
    assert (run.status, run.worker) == ("pending", None)
    assert list((results / "runs" / run.key).glob("checkpoint-*"))


@needs_slurm
@pytest.mark.slow
def test_a_time_limit_and_a_preemption(slurm: Path, long_study: Path, tmp_path: Path) -> None:
    """Each saves a checkpoint and queues the job again, and the numbers are those of an uninterrupted run."""
    execute(load(long_study), tmp_path / "here", executor=Inline())
    results = tmp_path / "results"
    driver = start(long_study, results, "--slots", "1", "--time", "10m", "--partition", "low")
    wait_for(lambda: step_of_first(results) > 0)
    (first,) = squeue("running")
    subprocess.run(["scancel", "--signal=USR2", first[0]], check=True)  # what Slurm sends before the time limit

    def queued_again() -> bool:
        found = squeue("pending")
        for job, _ in found:
            subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=False, capture_output=True)
        return bool(found)

    wait_for(queued_again)
    assert step_of_first(results) == 0  # its run was released
    wait_for(lambda: queued_again() or step_of_first(results) > 0)
    wait_for(lambda: step_of_first(results) > 0)
    urgent = ["sbatch", "--partition=high", "--cpus-per-task=4", "--output=/dev/null", "--wrap=sleep 1"]
    subprocess.run(urgent, check=True, capture_output=True)
    wait_for(lambda: len(squeue("pending,completing")) > 0)
    wait_for(lambda: driver.poll() is not None or (queued_again() and False), 400)
    assert driver.returncode == 0, driver.stderr.read() if driver.stderr else ""
    assert numbers(results) == numbers(tmp_path / "here")
    with open_store(results, create=False) as store:
        assert store.runs("tiny")[0].claims == 3


@needs_slurm
def test_what_slurm_refuses(slurm: Path, study_file: StudyFile, tmp_path: Path) -> None:
    study, results = load(study_file()), tmp_path / "results"
    with pytest.raises(
        ConfigError, match=r"^Slurm has no partition 'hihg'; did you mean 'high'\?; available: high, low$"
    ):
        execute(study, results, executor=Slurm(partition="hihg"))
    assert not results.exists()
    with pytest.raises(WorkerError, match=r"^Slurm refused the jobs: "):
        execute(study, results, executor=Slurm(sbatch=("constraint=nothing",)))
    assert numbers(results) == {run.key: ("pending", None, []) for run in study.runs}


def test_what_is_refused_before_anything_is_created(
    study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, results = load(study_file()), tmp_path / "results"

    def refused(store: str | None = None, compute: Compute = Compute(), **settings: Any) -> str:  # noqa: B008
        with pytest.raises(ConfigError) as error:
            execute(study, results, store=store, executor=Slurm(**settings), compute=compute)
        assert not results.exists()
        return str(error.value)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert refused().startswith(
        "there is no sbatch on this machine; run this command on a login node of a Slurm cluster"
    )
    for program in ("sbatch", "squeue", "scancel", "srun"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    assert refused(gpus=1) == "gpus is 1 but device is cpu; add --device cuda"
    assert refused(compute=Compute(device="cuda")) == "gpus is 0 but device is cuda; add --gpus 1"
    for address in ("postgresql://me:secret@host/db", "postgresql://host/db?password=secret"):
        message = refused(address)
        assert message.startswith("the address of the database must not contain a password") and "secret" not in message


def test_the_script(study_file: StudyFile, tmp_path: Path) -> None:
    config = Slurm(slots=64, partition="gpu", time="4h", gpus=1, memory="16G", sbatch=("account=physics", "exclusive"))
    text = script(config, Compute(device="cuda", threads=8), "my study/1", ResultsFolder(tmp_path))
    options = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    name = job_name("my study/1", "")
    assert {"array=0-63%64", "partition=gpu", "time=240", "gpus-per-node=1", "mem=16G", "cpus-per-task=8"} < set(
        options
    )
    assert {"account=physics", "exclusive", "requeue", "signal=USR2@90", f"job-name={name}"} < set(options)
    assert name.startswith("lengthwise-my-study-1-") and str(tmp_path) in text
    assert not list(tmp_path.iterdir())
    assert f" {sys.executable} -P -m lengthwise work {tmp_path}" in text  # not with modules of the current folder
    assert "#SBATCH --partition" not in script(Slurm(), Compute(), "n", ResultsFolder(tmp_path))


def test_a_folder_that_the_nodes_do_not_share(study_file: StudyFile, tmp_path: Path) -> None:
    study, results = load(study_file()), tmp_path / "results"
    specs: list[Spec] = []

    class Seen(SlurmExecutor):
        def start(self, workers: int) -> None:
            specs.append(self.spec)
            self.stopping.set()

    from lengthwise.studies.executors import EXECUTORS

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXECUTORS, "slurm", Seen)
        patch.setattr(SlurmExecutor, "require_usable", classmethod(lambda *_: None))
        execute(study, results, executor=Slurm())
    (spec,) = specs
    assert spec.results_id == ResultsFolder(results).identifier(create=False)
    parent = Quiet()
    elsewhere = dataclasses.replace(spec, results=str(tmp_path / "elsewhere"))
    with pytest.raises(
        StoreError, match=r"is not the results folder of the study, so the files of its runs would be missing"
    ):
        work(elsewhere, parent)
    assert not (tmp_path / "elsewhere").exists()
    work(spec, parent)  # and with the folder it works
    assert [value[0] for value in numbers(results).values()] == ["done", "done"]


class Quiet:
    def __init__(self) -> None:
        self.stop_requested = Flag()

    def send(self, event: Event) -> None:
        assert not isinstance(event, Note)


def test_a_worker_outside_a_job_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    end_job(signal.SIGTERM)
