"""Studies whose results folder is at an address: other machines, lost working folders, kills, failing networks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import EvaluationConfig, Inline, Local, ModelConfig, TrainingConfig
from lengthwise.measurements import PROBES
from lengthwise.store import RunRow, StoreUnreachable, open_folder, open_results
from lengthwise.studies import Event, Study, continued, execute, grid, load, probing
from lengthwise.studies.events import Note, Started
from lengthwise.training import load_weights
from tests.postgres_server import needs_postgres, postgres
from tests.store.remote_system import FlakySystem

__all__ = ["postgres"]

MODEL = ModelConfig(d_model=16, num_layers=1, num_heads=2)
TRAINING = TrainingConfig(train_length=4, steps=12, batch_size=4)
WEIGHTS = "weights.safetensors"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The results folder and the database of `execute`."""
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bucket").mkdir()
    yield {"results": f"flaky://{tmp_path}/bucket", "store": f"sqlite:///{tmp_path}/results.db"}
    FlakySystem.problem = None


def a_study(lengths: tuple[int, ...] = (4, 8), seeds: int = 1) -> Study:
    runs = grid(["nope"], ["copy"], seeds=seeds, model=MODEL, training=TRAINING)
    return Study(name="tiny", question="?", runs=runs, evaluation=EvaluationConfig(lengths=lengths, examples=16))


def numbers(results: str | Path, store: str | None = None) -> dict[tuple[str, int], float]:
    with open_results(results, create=False, store=store) as opened:
        keys = [row.key for row in opened.runs("tiny")]
        return {(score.key, score.length): score.mean for score in opened.scores(keys)}


def run(study: Study, place: dict[str, Any], executor: Any = Inline()) -> list[Event]:  # noqa: B008
    heard: list[Event] = []
    outcome = execute(study, place["results"], store=place["store"], executor=executor, on_event=heard.append)
    assert outcome.counts["done"] == len(study.runs), outcome
    return heard


def started(heard: list[Event]) -> list[str]:
    return [event.what for event in heard if isinstance(event, Started)]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("protocol", ["flaky", pytest.param("file", marks=pytest.mark.slow)])
def test_the_results_are_those_of_a_folder(place: dict[str, Any], tmp_path: Path, protocol: str) -> None:
    place["results"] = place["results"].replace("flaky:", f"{protocol}:")
    study = a_study(seeds=2)
    run(study, place, Inline() if protocol == "flaky" else Local(workers=2))
    execute(study, tmp_path / "here", executor=Inline())
    assert numbers(**place) == numbers(tmp_path / "here") != {}
    assert tree(tmp_path / "bucket") == sorted(["results-id", *(f"runs/{run.key}/{WEIGHTS}" for run in study.runs)])
    for one in study.runs:
        files = [folder / "runs" / one.key / WEIGHTS for folder in (tmp_path / "bucket", tmp_path / "here")]
        states = [load_weights(file.parent, one).state_dict() for file in files]
        assert all(states[0][name].equal(states[1][name]) for name in states[1])


def test_another_machine_evaluates_and_continues_what_one_has_trained(
    place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = a_study()
    run(study, place)
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "other"))
    assert started(run(a_study((4, 8, 12)), place)) == ["evaluate"]
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "third"))
    children = continued(study.runs, ["rope"], steps=2)
    lineage = Study(name="lineage", question="?", runs=tuple(children), evaluation=study.evaluation)
    assert started(run(lineage, place)) == ["train"]
    execute(study, tmp_path / "here", executor=Inline())
    execute(lineage, tmp_path / "here", executor=Inline())
    with open_results(tmp_path / "here", create=False) as here, open_results(**_where(place)) as there:
        keys = [children[0].key]
        assert [s.mean for s in there.scores(keys)] == [s.mean for s in here.scores(keys)] != []


def _where(place: dict[str, Any]) -> dict[str, Any]:
    return {"where": place["results"], "store": place["store"], "create": False}


def test_another_machine_probes(place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = a_study()
    run(study, place)
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "other"))
    probe = PROBES["attended-distance"]
    with open_results(**_where(place)) as store:
        rows = [store.run(run.key) for run in study.runs]
        jobs = probing.jobs_of_runs(probe, rows, [4])
        (result,) = probing.probe_all(probing.Prober(store), jobs)
        assert result.new and result.row.rows
        (tmp_path / "bucket" / "runs" / study.runs[0].key / WEIGHTS).unlink()
        with pytest.raises(ValueError, match=r"has no weights here \(flaky://.*/weights.safetensors\)"):
            probing.probe_all(probing.Prober(store), probing.jobs_of_runs(probe, rows, [5]))
    notes = [event.text for event in run(study, place) if isinstance(event, Note)]
    assert any("the weights of 1 finished run are missing in flaky://" in text for text in notes)


@pytest.mark.medium
def test_training_continues_while_the_network_fails(
    place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads fail until the worker has waited for the end of the outage."""
    monkeypatch.setattr("lengthwise.studies.parent.LONGEST_PAUSE", 0.01)
    failures = 0

    def fail(operation: str, path: str) -> None:
        nonlocal failures
        if operation == "put_file" and failures < 5:
            failures += 1
            raise ConnectionError("connection reset")

    FlakySystem.problem = fail
    heard = run(a_study(), place)
    assert failures == 5
    notes = [event.text for event in heard if isinstance(event, Note)]
    assert any("cannot be reached (connection reset)" in text and "the worker waits" in text for text in notes), notes
    assert tree(tmp_path / "bucket")[1:] == [f"runs/{run.key}/{WEIGHTS}" for run in a_study().runs]


def test_nothing_is_lost_if_the_network_stays_down(
    place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lengthwise.studies.parent.PATIENCE_SECONDS", 0.0)

    def fail(operation: str, path: str) -> None:
        if operation == "put_file":
            raise ConnectionError("connection reset")

    FlakySystem.problem = fail
    study = a_study()
    with pytest.raises(StoreUnreachable, match=r"cannot be reached \(connection reset\)"):
        run(study, place)
    with open_results(**_where(place)) as store:
        row: RunRow = store.run(study.runs[0].key)
        assert (row.status, row.worker, row.finished) == ("pending", None, None)
    assert tree(tmp_path / "bucket") == ["results-id"]
    FlakySystem.problem = None
    assert started(run(study, place)) == ["evaluate"], "the weights were still here"
    assert tree(tmp_path / "bucket")[1:] == [f"runs/{row.key}/{WEIGHTS}"]


FAILING = """
from lengthwise.encodings import NoPE

class Failing(NoPE):
    def modifiers(self, span):
        raise RuntimeError("a bug of the user")
"""


def test_the_traceback_of_a_failed_run_is_at_the_address(
    place: dict[str, Any], tmp_path: Path, study_file: Callable[..., Path]
) -> None:
    study = load(study_file(encodings="[choose(Failing)]", before=FAILING))
    outcome = execute(study, place["results"], store=place["store"], executor=Inline())
    ((key, error),) = outcome.failed
    assert f"(see {place['results']}/runs/{key}/error.txt)" in error
    assert "a bug of the user" in (tmp_path / "bucket" / "runs" / key / "error.txt").read_text()


def command(file: Path, cache: Path, *on: object) -> subprocess.Popen[str]:
    environment = os.environ | {"LENGTHWISE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "lengthwise", "work", str(file), *map(str, on)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


@needs_postgres
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kill_and_continue_on_another_machine(postgres: str, study_file: Callable[..., Path], tmp_path: Path) -> None:
    """A worker is killed after its first checkpoint; another machine without its files gets the same bits."""
    file = study_file(encodings='["nope"]', steps=12_000)
    bucket = tmp_path / "bucket"
    on = ("--results", f"file://{bucket}", "--store", postgres)
    first = command(file, tmp_path / "a", *on)
    try:
        end = time.monotonic() + 120
        while not list(bucket.glob("runs/*/checkpoint-*")):
            assert first.poll() is None and time.monotonic() < end, first.stderr and first.stderr.read()
            time.sleep(0.02)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    before = [path.name for path in bucket.glob("runs/*/checkpoint-*")]
    assert before and not list(bucket.glob(f"runs/*/{WEIGHTS}")), "the training was too short for this test"
    second = command(file, tmp_path / "b", *on)
    while not (fetched := [path.name for path in (tmp_path / "b").glob("results-*/runs/*/checkpoint-*")]):
        assert second.poll() is None
        time.sleep(0.01)
    assert set(fetched) <= set(before), "it began with the checkpoint of the first machine"
    error = second.communicate(timeout=300)[1]
    assert second.returncode == 0, error
    execute(load(file), tmp_path / "here", executor=Inline())
    assert numbers(f"file://{bucket}", postgres) == numbers(tmp_path / "here") != {}
    with open_results(f"file://{bucket}", store=postgres) as store:
        (row,) = store.runs("tiny")
        assert row.claims == 2
        files = open_folder(f"file://{bucket}")
        assert files.trained([row.key]) == {row.key}
        assert [path.name for path in bucket.glob("runs/*/*")] == [WEIGHTS]
        store.drop([row.key], finished=True)
    assert not list(bucket.glob("runs/*"))
