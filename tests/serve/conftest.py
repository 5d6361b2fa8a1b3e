"""Results of two studies, and the pages on them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.serve import snapshots
from lengthwise.serve.app import application
from lengthwise.serve.snapshots import Watcher
from lengthwise.store import Store, open_results, worker_name
from tests.made_answers import score_answer, training_answer

WORKER = worker_name()
EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
STEPS = 1000


def key(study: int, number: int) -> str:
    return f"{study:08x}{number:08x}"


def question(length: int) -> dict[str, Any]:
    return {"length": length, "examples": 256, "seed": 0}


def run_data(study: int, number: int, **changes: Any) -> dict[str, Any]:
    encoding = ("NoPE", "FIRE", "RoPE")[number % 3]
    config = {
        "encoding": {"is": encoding},
        "training": {"train_length": 8, "steps": STEPS, "learning_rate": 1e-3 * (1 + study)},
    }
    return {
        "key": key(study, number),
        "label": encoding,
        "encoding": encoding,
        "task": "Copy",
        "metric": "exact match",
        "better": "higher",
        "unit": "symbols",
        "seed": number // 3,
        "train_length": 8,
        "config": config,
        "questions": [question(8), question(16)],
        **changes,
    }


def curve(last: int) -> list[dict[str, Any]]:
    """The points of a training curve up to a step."""
    rest = {"learning_rate": 1e-3, "gradient_norm": 1.0, "tokens_per_second": 1e4}
    return [{"step": step, "loss": 2 * math.exp(-step / 300), **rest} for step in range(50, last + 1, 50)]


def finish(store: Store, study: str, mean: float = 0.75) -> str:
    """Train the next run of a study."""
    row = store.claim(study, WORKER)
    assert row is not None
    store.heartbeat(row.key, WORKER, STEPS, STEPS)
    scores = [score_answer(asked, mean / (1 + n), standard_error=0.02) for n, asked in enumerate(row.questions)]
    store.add_answers(row.key, [training_answer(curve(STEPS)), *scores], worker=WORKER)
    store.finish(row.key, WORKER, {"seconds": 60.0, "versions": {"torch": f"2.{row.seed}"}, "backend": "fused"})
    return row.key


def advance(store: Store, run: str, step: int) -> None:
    """Report a step of a run that is training."""
    store.heartbeat(run, WORKER, step, STEPS)


def add_study(store: Store, name: str, number: int, runs: int, question: str = "Is it live?", **changes: Any) -> None:
    rows = [run_data(number, n, **changes) for n in range(runs)]
    store.add_study(name, question=question, evaluation={}, runs=rows)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "INTERVAL", 0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The study `first` with two trained runs, one that failed, one in training and one that waits; and `second`."""
    with open_results(tmp_path / "results") as store:
        add_study(store, "first", 1, 5)
        finish(store, "first"), finish(store, "first", 0.5)
        failing = store.claim("first", WORKER)
        assert failing is not None
        store.fail(failing.key, WORKER, "the loss is not finite")
        running = store.claim("first", WORKER)
        assert running is not None
        advance(store, running.key, 100)
        add_study(store, "second", 2, 2, question=EVIL, label=EVIL)
    return tmp_path / "results"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with open_results(folder, create=False) as opened:
        yield opened


@pytest.fixture
def watcher(folder: Path) -> Iterator[Watcher]:
    watcher = Watcher(lambda: open_results(folder, create=False))
    yield watcher
    watcher.close()


@pytest.fixture
def client(watcher: Watcher) -> Any:
    return new_client(watcher)


def new_client(watcher: Watcher) -> Any:
    from starlette.testclient import TestClient

    return TestClient(application(watcher), base_url="http://127.0.0.1:8090")
