"""Real processes on one study at once, some of them killed: no run is lost, none is done twice."""

import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lengthwise.store import Store, open_store
from tests.made_answers import losses
from tests.postgres_server import needs_postgres
from tests.store.conftest import empty_store

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[needs_postgres, pytest.mark.slow])])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be opened."""
    return empty_store(request, tmp_path)


@pytest.fixture
def start(where: str, tmp_path: Path) -> Iterator[Start]:
    """Start a worker process on the study."""
    processes: list[subprocess.Popen[str]] = []

    def start(runs: int, pause: float = 0.0, *more: str) -> "subprocess.Popen[str]":
        script = Path(__file__).with_name("store_worker.py")
        command = [sys.executable, str(script), where, str(tmp_path / "log"), str(runs), str(pause), *more]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ended_well(process: "subprocess.Popen[str]") -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def log(tmp_path: Path, what: str) -> list[list[str]]:
    file = tmp_path / "log"
    return [line.split() for line in file.read_text().splitlines() if line.startswith(what)] if file.exists() else []


def everything_is_there(store: Store, runs: int) -> None:
    rows = store.runs("s")
    assert [row.key for row in rows] == [f"{n:016x}" for n in range(runs)]
    assert {row.status for row in rows} == {"done"}
    for row in rows:
        assert [score.length for score in store.scores([row.key])] == [8, 16], row.key
        assert [step for step, _ in losses(store, row.key)] in ([1, 2], [1, 7]), row.key


@pytest.mark.medium
def test_processes_that_start_at_once_share_the_work(where: str, tmp_path: Path, start: Start) -> None:
    """Each of them creates the database and adds the study, then they race for 30 runs that take no time."""
    processes = [start(30) for _ in range(4)]
    for process in processes:
        ended_well(process)
    with open_store(where) as store:
        everything_is_there(store, 30)
        assert {row.claims for row in store.runs()} == {1}
    assert Counter(key for _, key, _, _ in log(tmp_path, "claim")) == Counter(f"{n:016x}" for n in range(30))
    assert Counter(key for _, key, _ in log(tmp_path, "finish")) == Counter(f"{n:016x}" for n in range(30))


@pytest.mark.medium
def test_the_run_of_a_killed_process_is_taken_over_at_once(where: str, tmp_path: Path, start: Start) -> None:
    victim = start(12, 0.004, "hang")
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    holding, key = victim.stdout.readline().split()
    assert holding == "holding"
    others = [start(12, 0.004) for _ in range(2)]  # not before: on a slow machine they would leave it nothing to hold
    deadline = time.monotonic() + 60
    with open_store(where) as store:
        while store.progress("s")["done"] < 11 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert store.progress("s") == {"pending": 0, "running": 1, "done": 11, "failed": 0}, "held while it lives"
        victim.kill()  # and nobody waits for it: to the system it is a zombie now
        killed = time.monotonic()
        for process in others:
            ended_well(process)
        assert time.monotonic() - killed < 30, "nobody waits 60 s for a process that is gone"
        everything_is_there(store, 12)
        assert {row.key: row.claims for row in store.runs() if row.claims != 1} == {key: 2}
        assert store.run(key).facts["pid"] != victim.pid
    assert Counter(key for _, key, _ in log(tmp_path, "finish")) == Counter(f"{n:016x}" for n in range(12))


@pytest.mark.medium
def test_kills_at_random_moments_lose_nothing(where: str, tmp_path: Path, start: Start) -> None:
    chance = random.Random(7)
    killed = 0
    for _ in range(3):
        process = start(30, 0.02)
        claims = 1 + chance.randrange(4)  # counted, not timed: a slow machine may need long for one
        while len([pid for _, _, pid, _ in log(tmp_path, "claim") if int(pid) == process.pid]) < claims:
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(0.06 * chance.random())
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed == 3, "each was at work when it was killed"
    with open_store(where) as store:
        before = {row.key: row for row in store.runs() if row.status == "done"}
        assert 0 < len(before) < 30
    ended_well(start(30))
    with open_store(where) as store:
        everything_is_there(store, 30)
        assert {key: store.run(key) for key in before} == before, "what was finished is not touched again"
        if store.path is not None:
            assert sqlite3.connect(store.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    finishes = Counter(key for _, key, _ in log(tmp_path, "finish"))
    assert set(finishes.values()) == {1}
    assert len(finishes) >= 30 - killed, "at most the line after a stored finish is missing, once per kill"
