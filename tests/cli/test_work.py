"""`lengthwise work`: workers that share a study, their time limit, and signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import Inline
from lengthwise.store import open_results
from lengthwise.studies import execute, load
from tests.cli.conftest import TINY
from tests.postgres_server import needs_postgres, postgres

__all__ = ["postgres"]

Call = Callable[..., Any]
LONG = TINY.replace("steps=10", "steps=100_000")


def study_file(folder: Path, text: str = TINY) -> Path:
    (folder / "tiny.py").write_text(text)
    return folder / "tiny.py"


def test_it_finishes_the_runs_of_the_study(here: Call, finished: Path, tmp_path: Path) -> None:
    ran = here("work", study_file(tmp_path), "--results", tmp_path / "results", "--on", "inline")
    assert (ran.code, ran.out) == (0, "")
    assert not (tmp_path / "results" / "report.html").exists()
    scores = []
    for folder in (finished, tmp_path / "results"):
        with open_results(folder, create=False) as store:
            scores.append([(s.length, s.mean) for run in store.runs("tiny") for s in store.scores([run.key])])
    assert scores[0] == scores[1] != []


@pytest.mark.medium
def test_failed_runs_are_not_tried_again(here: Call, tmp_path: Path) -> None:
    on = ("--results", tmp_path / "results", "--on", "inline")
    file = study_file(tmp_path)
    with open_results(tmp_path / "results") as store:
        study = load(file)
        store.add_study(**study.metadata(), runs=study.rows())
        row = store.claim("tiny", "elsewhere:1:0-0-0")
        assert row is not None and store.fail(row.key, "elsewhere:1:0-0-0", "the disk is full")
    ran = here("work", file, *on)
    assert ran.code == 1
    assert "the disk is full" in ran.err and "1 of 2 runs failed; use `lengthwise retry` to retry it" in ran.err
    file.write_text(TINY.replace("(4, 8)", "(4, 8, 12)"))  # another study of this name: it is added
    assert here("work", file, *on).code == 0
    with open_results(tmp_path / "results", create=False) as store:
        assert [len(store.scores([run.key])) for run in store.runs("tiny")] == [3, 3]


@pytest.mark.medium
def test_the_time_limit_saves_the_progress(tmp_path: Path) -> None:
    study = load(study_file(tmp_path, LONG))
    start = time.monotonic()
    outcome = execute(study, tmp_path / "results", executor=Inline(), join=True, max_seconds=1.0)
    assert time.monotonic() - start < 20
    assert outcome.out_of_time and outcome.counts == {"pending": 2, "running": 0, "done": 0, "failed": 0}
    with open_results(tmp_path / "results", create=False) as store:
        (first, *_) = store.runs("tiny")
        assert first.step > 0 and first.worker is None
        assert list((tmp_path / "results" / "runs" / first.key).glob("*checkpoint*"))


@pytest.mark.parametrize("minutes", ["0", "-1", "1.5", "soon"])
def test_limits_that_cannot_be(here: Call, tmp_path: Path, minutes: str) -> None:
    ran = here("work", study_file(tmp_path), "--max-minutes", minutes, "--results", tmp_path / "results")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "--max-minutes" in ran.err
    assert not (tmp_path / "results").exists()


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lengthwise", "work", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGUSR2"), reason="this system has no SIGUSR2")
@pytest.mark.parametrize("number", [signal.SIGTERM, getattr(signal, "SIGUSR2", 0)])
def test_a_signal_saves_the_progress(number: int, tmp_path: Path) -> None:
    results = tmp_path / "results"
    worker = start(study_file(tmp_path, LONG), "--results", results)
    try:
        end = time.monotonic() + 60
        while not list(results.glob("runs/*/*checkpoint*")):
            assert worker.poll() is None and time.monotonic() < end
            time.sleep(0.1)
        os.kill(worker.pid, number)
        error = worker.communicate(timeout=60)[1]
    finally:
        worker.kill()
    assert worker.returncode == 128 + number
    assert "0 of 2 runs are done and all progress is saved; run the same command again to continue" in error
    with open_results(results, create=False) as store:
        assert [run.status for run in store.runs("tiny")] == ["pending", "pending"]


@pytest.mark.slow
@needs_postgres
def test_machines_share_the_runs(postgres: str, tmp_path: Path) -> None:
    file = study_file(tmp_path, TINY.replace('["copy"]', '["copy"], seeds=4'))
    on = ("--results", tmp_path / "results", "--store", postgres)
    workers = [start(file, *on) for _ in range(3)]
    errors = [worker.communicate(timeout=200)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], errors
    with open_results(tmp_path / "results", create=False, store=postgres) as store:
        runs = store.runs("tiny")
        assert [(run.status, run.claims) for run in runs] == [("done", 1)] * 8
    assert sum(error.count(": done in ") for error in errors) == 8
