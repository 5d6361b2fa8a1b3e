"""The protocol of executors and their list; the inline executor gives the results of worker processes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from lengthwise.config import EXECUTOR_CONFIGS, ConfigError, ExecutorConfig, Inline, Local, Slurm
from lengthwise.store import open_store
from lengthwise.store.rows import Activity
from lengthwise.studies import Interrupted, execute, executors, load
from lengthwise.studies.events import Advanced, Counted, Done, Event, Released, Started
from lengthwise.studies.executors import EXECUTORS, Executor, WorkerError
from lengthwise.studies.executors.inline import InlineExecutor
from lengthwise.studies.executors.watching import Watcher
from tests.made_answers import losses

pytestmark = pytest.mark.timeout(300)
StudyFile = Callable[..., Path]


def numbers(results: Path) -> dict[Any, Any]:
    """Everything that a run computes, to the last bit."""
    with open_store(results, create=False) as store:
        keys = [run.key for run in store.runs("tiny")]
        scores = {(score.key, score.length): (score.mean, score.standard_error) for score in store.scores(keys)}
        return scores | {key: losses(store, key) for key in keys}


def test_the_list_and_the_folder_agree() -> None:
    modules = {path.stem for path in Path(executors.__file__).parent.glob("*.py")} - {"__init__", "base", "watching"}
    assert {kind.__module__.rpartition(".")[2] for kind in EXECUTORS.values()} == modules == set(EXECUTORS)
    assert set(EXECUTORS) == set(EXECUTOR_CONFIGS)


@pytest.mark.slow
def test_inline_gives_what_processes_give(study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file())
    threads = torch.get_num_threads()
    for executor in (Inline(), Local(workers=1)):
        events: list[Event] = []
        outcome = execute(study, tmp_path / executor.name, executor=executor, on_event=events.append)
        assert outcome.counts == {"pending": 0, "running": 0, "done": 2, "failed": 0}
        assert [event.key for event in events if isinstance(event, Started)] == [run.key for run in study.runs]
        assert [event.key for event in events if isinstance(event, Done)] == [run.key for run in study.runs]
        assert {event.phase for event in events if isinstance(event, Advanced)} == {"train", "evaluate"}
        assert [event for event in events if isinstance(event, Counted)][-1].counts == outcome.counts
    assert torch.get_num_threads() == threads
    assert numbers(tmp_path / "inline") == numbers(tmp_path / "local")


def test_inline_runs_in_this_process(study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(encodings='["nope"]'))
    workers = []

    def ask(event: Event) -> None:
        if isinstance(event, Started):
            with open_store(tmp_path / "results") as store:
                workers.append(store.runs("tiny")[0].worker or "")

    execute(study, tmp_path / "results", executor=Inline(), on_event=ask)
    assert [worker.split(":")[1] for worker in workers] == [str(os.getpid())]


def test_ctrl_c_saves_an_inline_run_and_the_same_call_continues(study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(encodings='["nope"]', steps=4000))
    heard: list[Event] = []

    def interrupt(event: Event) -> None:
        heard.append(event)
        if isinstance(event, Advanced) and event.step >= 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as interrupted:
        execute(study, tmp_path / "results", executor=Inline(), on_event=interrupt)
    assert interrupted.value.counts["pending"] == 1
    assert [type(event) for event in heard if isinstance(event, (Started, Released, Done))] == [Started, Released]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with open_store(tmp_path / "results") as store:
        step = store.runs("tiny")[0].step
    (checkpoint,) = (tmp_path / "results" / "runs" / study.runs[0].key).glob("checkpoint-*")
    assert checkpoint.name == f"checkpoint-{step:08d}.safetensors"
    heard.clear()
    with pytest.raises(Interrupted):
        execute(study, tmp_path / "results", executor=Inline(), on_event=interrupt)
    assert [event.what for event in heard if isinstance(event, Started)] == ["continue"]


@pytest.mark.medium
def test_inline_waits_for_runs_of_others(study_file: StudyFile, tmp_path: Path) -> None:
    study = load(study_file(encodings='["nope"]'))
    results = tmp_path / "results"
    with open_store(results) as store:
        store.add_study(**study.metadata(), runs=study.rows())
        row = store.claim("tiny", "elsewhere:1:w")
        assert row is not None
        waited: list[bool] = []

        def release(event: Event) -> None:
            if getattr(event, "waiting", False) and not waited:
                waited.append(store.release(row.key, "elsewhere:1:w"))

        execute(study, results, executor=Inline(), on_event=release)
        assert waited == [True]
        assert [run.status for run in store.runs("tiny")] == ["done"]


def test_another_executor_is_one_class_and_one_line(
    study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settings(ExecutorConfig):
        name = "counting"

    class Counting(InlineExecutor):
        calls: ClassVar[list[str]] = []

        def start(self, workers: int) -> None:
            self.calls.append(f"start {workers}")
            super().start(workers)

        def close(self) -> None:
            self.calls.append("close")

    monkeypatch.setitem(EXECUTORS, "counting", Counting)
    assert execute(load(study_file()), tmp_path / "results", executor=Settings()).counts["done"] == 2
    assert Counting.calls == ["start 1", "close"]


def test_an_executor_that_cannot_work_ends_the_call(
    study_file: StudyFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Settings(ExecutorConfig):
        name = "broken"

    class Broken(InlineExecutor):
        def poll(self, seconds: float) -> None:
            raise WorkerError("the queue is closed")

    monkeypatch.setitem(EXECUTORS, "broken", Broken)
    with pytest.raises(WorkerError, match="the queue is closed"):
        execute(load(study_file()), tmp_path / "results", executor=Settings())


def test_an_executor_without_a_method_is_refused() -> None:
    class Half(Executor):
        remote = True

    with pytest.raises(TypeError, match=r"abstract class Half .*active.*stop"):
        Half(None, None, None, print)  # type: ignore[abstract, arg-type]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (lambda: Local(workers=0), "workers must be from 1 to 10,000, got 0"),
        (lambda: Slurm(slots=0), "slots must be from 1 to 10,000, got 0"),
        (lambda: Slurm(time="4"), "time must be a whole number with m, h or d, such as 4h, got '4'"),
        (lambda: Slurm(time="1m"), "time must be from 2m to 366d, got '1m'; a job needs time to save its progress"),
        (lambda: Slurm(gpus=0.5), "gpus must be a whole number from 0 to 64 on Slurm, got 0.5"),
        (lambda: Slurm(memory="16"), "memory must be a whole number with M, G or T, such as 16G, got '16'"),
        (lambda: Slurm(partition="a b"), "partition must be the name of a partition, got 'a b'; `sinfo` lists them"),
        (lambda: Slurm(sbatch=("=x",)), "sbatch must be NAME=VALUE or NAME, such as account=physics, got '=x'"),
        (lambda: Slurm(sbatch=("--array=1-9",)), "the sbatch option array is set by Lengthwise; use slots"),
    ],
)
def test_executors_that_cannot_be(settings: Callable[[], ExecutorConfig], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings()
    assert str(error.value) == says


def test_a_run_that_another_worker_continues_has_no_progress_before_its_first_step() -> None:
    def activity(claims: int, step: int, steps: int) -> Activity:
        return Activity(
            key="k",
            label="NoPE",
            task="Copy",
            seed=0,
            train_length=4,
            status="running",
            worker=f"vm:{claims}",
            claims=claims,
            step=step,
            steps=steps,
            finished=None,
            error=None,
        )

    looks = [activity(1, 300, 900), activity(2, 300, 900), activity(2, 0, 0), activity(2, 310, 900)]
    store: Any = SimpleNamespace(activity=lambda study: [looks.pop(0)])
    events: list[Any] = []
    watcher = Watcher(store, "tiny", events.append)
    while looks:
        watcher.look(now=True)
    assert [event.step for event in events if isinstance(event, Advanced)] == [310]
