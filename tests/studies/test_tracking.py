"""Runs of a study in trackers: the same numbers as in the store, after kills too, and never another result."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from lengthwise.config import Inline, Local
from lengthwise.measurements import Table
from lengthwise.store import open_store
from lengthwise.studies import RunOptions, Study, execute, load
from lengthwise.studies.events import Event, Note
from lengthwise.studies.tracking import tracked_run
from lengthwise.studies.worker import Worker
from lengthwise.trackers import TensorBoard, parse_trackers
from tests.studies.tracker_files import OPTIONS, READERS, each_tracker

pytestmark = pytest.mark.timeout(300)


def run(study: Study, results: Path, trackers: str, workers: int = 0) -> list[str]:
    """Execute the study. Return the notes."""
    heard: list[Event] = []
    executor = Local(workers=workers) if workers else Inline()
    options = RunOptions(trackers=parse_trackers(trackers) if trackers else ())
    outcome = execute(study, results, executor=executor, options=options, on_event=heard.append)
    assert outcome.counts["done"] == len(study.runs), outcome.failed
    return [event.text for event in heard if isinstance(event, Note)]


def require_same(study: Study, results: Path, name: str, exact_speed: bool = True) -> None:
    """The tracker has each point of the store once, its scores, and the settings of the runs."""
    with open_store(results, create=False) as store:
        for one in study.runs:
            found = READERS[name](results, one.key)
            answer = store.answer(one.key, "training", {})
            assert answer is not None
            curve = Table.from_data(answer.rows)
            assert len(curve) and set(found.times.values()) == {1}
            for column in ("loss", "learning_rate", "gradient_norm", "tokens_per_second"):
                if column == "tokens_per_second" and not exact_speed:
                    assert set(found.curve[column]) == set(curve.column("step"))
                    continue
                assert found.curve[column] == pytest.approx(
                    dict(zip(curve.column("step"), curve.column(column), strict=True))
                )
            rows = store.scores([one.key])
            assert rows
            assert found.scores == pytest.approx(
                {(f"score/{store.run(one.key).metric}", row.length): row.mean for row in rows}
            )
            settings = tracked_run(one, study.name).settings
            assert settings["training.steps"] == one.training.steps
            assert {k: str(v) for k, v in found.settings.items() if not k.startswith("_")}.items() >= {
                k: str(float(v)) if name == "tensorboard" and type(v) is int else str(v) for k, v in settings.items()
            }.items()


@pytest.mark.medium
@pytest.mark.parametrize("name", each_tracker())
def test_a_tracker_has_the_numbers_of_the_store(study_file: Callable[..., Path], tmp_path: Path, name: str) -> None:
    study = load(study_file(encodings='["rope"]', steps=250))
    assert run(study, tmp_path / "results", OPTIONS.get(name, name)) == []
    require_same(study, tmp_path / "results", name)
    longer = load(study_file(encodings='["rope"]', steps=250, lengths=(4, 8, 16)))  # is evaluated, and not trained
    assert run(longer, tmp_path / "results", OPTIONS.get(name, name)) == []
    require_same(longer, tmp_path / "results", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", each_tracker())
def test_two_workers_at_once(study_file: Callable[..., Path], tmp_path: Path, name: str) -> None:
    study = load(study_file(seeds=2, steps=60))
    assert run(study, tmp_path / "results", OPTIONS.get(name, name), workers=2) == []
    require_same(study, tmp_path / "results", name)


@pytest.mark.slow
@pytest.mark.parametrize("name", each_tracker())
def test_a_killed_command_is_continued(
    study_file: Callable[..., Path], tmp_path: Path, command: Callable[..., Any], name: str
) -> None:
    """It is killed a little after its first checkpoint, when more points were logged."""
    file = study_file(encodings='["rope"]', steps=15_000)
    words = ("run", file, "--workers", 1, "--trackers", OPTIONS.get(name, name))
    first, end = command(*words), time.monotonic() + 200
    while not list(tmp_path.glob("results/runs/*/checkpoint-*.safetensors")):
        assert time.monotonic() < end and first.process.poll() is None, first.said
        time.sleep(0.05)
    time.sleep(2)
    assert not list(tmp_path.glob("results/runs/*/weights.safetensors"))
    for pid in first.members():
        os.kill(pid, signal.SIGKILL)
    second = command(*words)
    assert second.end(300) == 0
    assert "tracker" not in second.said
    # MLflow and trackio keep the points that they have, with the speed of the killed worker.
    require_same(load(file), tmp_path / "results", name, exact_speed=name in ("tensorboard", "wandb"))


def weights(results: Path, key: str) -> dict[str, object]:
    with safe_open(results / "runs" / key / "weights.safetensors", "pt") as file:
        return {name: file.get_tensor(name).tolist() for name in file.keys()}  # noqa: SIM118


@pytest.mark.medium
def test_a_tracker_that_fails_gives_one_warning_and_changes_nothing(
    study_file: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    study = load(study_file(encodings='["rope"]'))
    (key,) = (one.key for one in study.runs)
    assert run(study, tmp_path / "without", "") == []
    (tmp_path / "file").touch()
    (note,) = run(study, tmp_path / "failed", f"tensorboard:folder={tmp_path / 'file'}")
    assert re.fullmatch(r"tracker tensorboard: FileExistsError: .*; the run continues without it", note)
    assert run(study, tmp_path / "logged", "tensorboard") == []
    for results in ("failed", "logged"):
        assert weights(tmp_path / results, key) == weights(tmp_path / "without", key)
        with open_store(tmp_path / results) as one, open_store(tmp_path / "without") as other:
            assert [row.mean for row in one.scores([key])] == [row.mean for row in other.scores([key])]


def test_a_run_that_stops_or_fails_ends_its_tracker(
    study_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    sent: list[str] = []
    monkeypatch.setattr(TensorBoard, "finish", lambda self, tracker, status: sent.append(status))
    monkeypatch.setattr(Worker, "evaluate", lambda *_: 1 / 0)
    study = load(study_file(encodings='["rope"]'))
    options = RunOptions(trackers=parse_trackers(f"tensorboard:folder={tmp_path / 'logs'}"))
    outcome = execute(study, tmp_path / "results", executor=Inline(), options=options)
    assert len(outcome.failed) == 1 and sent == ["failed"]
