"""A run that is stopped is stored with the step of its checkpoint, not with that of the last heartbeat."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.store import open_store
from lengthwise.studies import Study, grid, worker
from lengthwise.studies.spec import Spec
from lengthwise.training import Stopped


def test_the_step_of_a_stopped_run_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(
        name="tiny",
        runs=grid(
            ["nope"],
            ["copy"],
            model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
            training=TrainingConfig(train_length=3, steps=20, batch_size=4),
        ),
        evaluation=EvaluationConfig(lengths=(3,), examples=8),
    )

    def stopped(*_: object, **__: object) -> None:
        raise Stopped("train", 7, 20)

    monkeypatch.setattr(worker, "train", stopped)
    sent: list[Any] = []
    pipe: Any = SimpleNamespace(send=sent.append, stop_requested=threading.Event())
    spec = Spec(store=str(tmp_path), study="tiny", results=str(tmp_path))
    with open_store(tmp_path) as store:
        store.add_study(runs=study.rows(), **study.metadata())
        one = worker.Worker(spec, pipe, store)
        row = store.claim("tiny", one.name)
        assert row is not None
        one.process(row)
        (after,) = store.runs("tiny")
        assert (after.step, after.steps, after.status) == (7, 20, "pending")
