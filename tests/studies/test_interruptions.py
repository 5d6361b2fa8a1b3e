"""The command as a process: stopped, killed, run twice at once; what is done stays done and nothing is done twice."""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import RunRow, open_store
from tests.made_answers import losses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc to see which processes live"),
]

StudyFile = Callable[..., Path]
Start = Callable[..., Any]
LONG = {"encodings": '["nope", "rope", "alibi"]', "seeds": 2, "steps": 400}


def rows(results: Path) -> list[RunRow]:
    with open_store(results, create=False) as store:
        return store.runs("tiny")


def numbers(results: Path) -> dict[tuple[str, int], tuple[float, int]]:
    """Every score, and the last loss of every run: to the last bit."""
    with open_store(results, create=False) as store:
        keys = [row.key for row in store.runs("tiny")]
        found = {(score.key, score.length): (score.mean, score.n) for score in store.scores(keys)}
        return found | {(key, -1): (losses(store, key)[-1][1], len(losses(store, key))) for key in keys}


def until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def undisturbed(calm: Callable[..., Path]) -> dict[tuple[str, int], tuple[float, int]]:
    """The numbers of a call that nothing happens to."""
    return numbers(calm(**LONG))


def ended_as_if_undisturbed(
    results: Path, before: list[RunRow], undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    after = {row.key: row for row in rows(results)}
    assert [row.status for row in after.values()] == ["done"] * 6
    for row in before:
        if row.status == "done":
            assert after[row.key] == row, "a finished run was touched again"
    assert numbers(results) == undisturbed


def test_ctrl_c_and_the_same_command_again(
    study_file: StudyFile, command: Start, tmp_path: Path, undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    results, path = tmp_path / "results", study_file(**LONG)
    first = command("run", path, "--workers", 2)
    first.wait_for("[2/6]")
    time.sleep(0.5)  # the workers train the next runs, unless the machine is too busy to begin
    first.interrupt()
    assert first.end(60) == 130
    assert "of 6 runs are done and all progress is saved; run the same command again to continue" in first.said
    assert "Traceback" not in first.said
    assert first.workers() == []
    until(lambda: not first.members(), 10)  # the interpreter's resource tracker ends a moment after its parent
    before = rows(results)
    done = sum(row.status == "done" for row in before)
    assert 2 <= done < 6
    assert all(row.worker is None for row in before), "every run was given back"
    half = [row for row in before if row.status == "pending" and row.step]
    assert all(list((results / "runs" / row.key).glob("checkpoint-*")) for row in half), "where it was is saved"

    second = command("run", path, "--workers", 2)
    assert second.end() == 0, second.said
    assert f"{done} of them already done" in second.said
    ended_as_if_undisturbed(results, before, undisturbed)


def test_sigterm_of_the_parent_alone(study_file: StudyFile, command: Start, tmp_path: Path) -> None:
    first = command("run", study_file(**LONG), "--workers", 2)
    first.wait_for("[1/6]")
    first.process.terminate()
    assert first.end(60) == 143
    assert "run the same command again to continue" in first.said
    assert all(row.worker is None for row in rows(tmp_path / "results"))
    assert first.workers() == []
    until(lambda: not first.members(), 10)  # the interpreter's resource tracker ends a moment after its parent


def test_ctrl_c_while_workers_start(study_file: StudyFile, command: Start, tmp_path: Path) -> None:
    first = command("run", study_file(**LONG), "--workers", 2)
    first.wait_for("2 workers")
    until(lambda: len(first.workers()) == 2)
    first.interrupt()
    assert first.end(60) == 130
    assert "Traceback" not in first.said
    assert first.workers() == []
    until(lambda: not first.members(), 10)  # the interpreter's resource tracker ends a moment after its parent


def test_kill_9_of_the_parent(
    study_file: StudyFile, command: Start, tmp_path: Path, undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    results, path = tmp_path / "results", study_file(**LONG)
    first = command("run", path, "--workers", 2)
    first.wait_for("[1/6]")
    first.kill()
    until(lambda: not first.members(), 30)  # no worker outlives it
    before = rows(results)
    assert any(row.status == "done" for row in before)
    assert any(row.status == "pending" for row in before)
    second = command("run", path, "--workers", 2)
    assert second.end() == 0, second.said
    ended_as_if_undisturbed(results, before, undisturbed)


def test_kill_9_of_everything_at_random_moments(
    study_file: StudyFile, command: Start, tmp_path: Path, undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    results, path, chance = tmp_path / "results", study_file(**LONG), random.Random(0)
    for _ in range(4):
        one = command("run", path, "--workers", 2)
        one.wait_for("Copy, seed")  # a run starts or continues
        time.sleep(chance.uniform(0, 1.5))
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()
    before = rows(results)
    last = command("run", path, "--workers", 2)
    assert last.end() == 0, last.said
    ended_as_if_undisturbed(results, before, undisturbed)


def test_kill_9_of_a_worker(
    study_file: StudyFile, command: Start, tmp_path: Path, undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    results = tmp_path / "results"
    one = command("run", study_file(**LONG), "--workers", 2)
    one.wait_for("RoPE, Copy, seed 0: starts")  # and so both have a run
    os.kill(one.workers()[0], signal.SIGKILL)
    assert one.end() == 0, one.said
    assert "a worker ended (killed by SIGKILL); the run continues from its last checkpoint" in one.said
    ended_as_if_undisturbed(results, [], undisturbed)


def test_two_at_once_share_the_work(
    study_file: StudyFile, command: Start, tmp_path: Path, undisturbed: dict[tuple[str, int], tuple[float, int]]
) -> None:
    results, path = tmp_path / "results", study_file(**LONG)
    both = [command("run", path, "--workers", 1) for _ in range(2)]
    for one in both:
        assert one.end(300) == 0, one.said
        assert "exact match" in one.said
        assert "report.html" in one.said
    assert [row.claims for row in rows(results)] == [1] * 6, "a run was done twice"
    assert all(one.said.count(": done in") >= 1 for one in both), "one did everything"
    ended_as_if_undisturbed(results, [], undisturbed)


def test_the_second_waits_for_the_last_run_of_the_first(study_file: StudyFile, command: Start, tmp_path: Path) -> None:
    path = study_file(encodings='["nope"]', steps=1000)
    first = command("run", path)
    first.wait_for("starts")
    os.killpg(first.process.pid, signal.SIGSTOP)  # so that the run lasts until the second waits for it, on any machine
    second = command("run", path)
    second.wait_for("waiting for 1 run", 50)
    os.killpg(first.process.pid, signal.SIGCONT)
    assert first.end(300) == second.end(60) == 0
    assert "starts" not in second.said
    assert [row.claims for row in rows(tmp_path / "results")] == [1]
    assert "exact match" in second.said
