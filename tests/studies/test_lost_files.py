"""Files of a study that are deleted: before it runs again, and while it runs."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, Inline, Local
from lengthwise.measurements import PROBES
from lengthwise.store import StoreGone, open_results
from lengthwise.studies import Event, execute, load
from lengthwise.studies.events import Advanced, Note, Started
from lengthwise.studies.probing import Prober, jobs_of_runs
from lengthwise.training.tensor_file import read

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, write_study: Callable[..., Path]) -> Path:
    """A folder with a study and its results."""
    folder = tmp_path_factory.mktemp("done")
    execute(load(write_study(folder)), folder / "results", executor=Inline())
    return folder


@pytest.fixture
def place(done: Path, tmp_path: Path) -> Path:
    shutil.copytree(done, tmp_path / "place")
    return tmp_path / "place"


def rerun(place: Path, study: Path | None = None) -> tuple[Any, list[Event]]:
    heard: list[Event] = []
    outcome = execute(load(study or place / "tiny.py"), place / "results", executor=Inline(), on_event=heard.append)
    return outcome, heard


@pytest.mark.medium
def test_runs_without_weights_are_trained_again(place: Path) -> None:
    with open_results(place / "results") as store:
        first, _ = store.runs("tiny")
        before = {(s.key, s.length): s.mean for s in store.scores([r.key for r in store.runs()])}
    old, _ = read(place / "results" / first.facts["weights"])
    shutil.rmtree(place / "results" / "runs")
    with open_results(place / "results") as store, pytest.raises(ConfigError) as caught:
        Prober(store).require(jobs_of_runs(PROBES["attended-distance"], store.runs("tiny")[:1], [8]))
    assert "has no weights here" in str(caught.value)
    assert "run its study again to retrain it" in str(caught.value)
    outcome, heard = rerun(place)
    assert outcome.counts["done"] == 2
    (note,) = (event.text for event in heard if isinstance(event, Note))
    assert "the weights of 2 finished runs are missing in" in note
    assert "the scores are kept" in note
    assert [event.what for event in heard if isinstance(event, Started)] == ["train", "train"]
    new, _ = read(place / "results" / first.facts["weights"])
    assert all(torch.equal(old[name], new[name]) for name in old)
    with open_results(place / "results") as store:
        assert {(s.key, s.length): s.mean for s in store.scores([r.key for r in store.runs()])} == before
    assert not [event for event in rerun(place)[1] if isinstance(event, (Note, Started))]


def test_runs_that_a_study_does_not_list_any_more_are_named(place: Path, write_study: Callable[..., Path]) -> None:
    (place / "new").mkdir()
    outcome, heard = rerun(place, write_study(place / "new", encodings='["rope"]'))
    assert outcome.counts["done"] == 1
    (note,) = (event.text for event in heard if isinstance(event, Note))
    assert note.startswith("tiny no longer lists 1 run: NoPE on Copy, seed 0 (")
    assert "still in the database" in note
    with open_results(place / "results") as store:
        assert len(store.runs()) == 2
    assert not [event for event in rerun(place, place / "new" / "tiny.py")[1] if isinstance(event, Note)]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_results_that_go_away_end_the_study_at_once(study_file: Callable[..., Path], tmp_path: Path, how: str) -> None:
    study = load(study_file(encodings='["nope"]', steps=200_000))
    results = tmp_path / "results"
    gone_at = 0.0

    def on_event(event: Event) -> None:
        nonlocal gone_at
        if isinstance(event, Advanced) and not gone_at:
            shutil.move(results, tmp_path / "elsewhere")
            if how == "replaced":
                with open_results(results):
                    pass
            gone_at = time.monotonic()

    with pytest.raises(StoreGone, match="was deleted or replaced while it was in use") as caught:
        execute(study, results, executor=Local(workers=1), on_event=on_event)
    assert "\n" not in str(caught.value)
    assert gone_at, "it never began"
    assert time.monotonic() - gone_at < 30
    assert not (results / "runs").exists()


WHEN: dict[str, Callable[[Event], bool]] = {
    "it starts": lambda event: isinstance(event, Started),
    "training": lambda event: isinstance(event, Advanced) and event.phase == "train",
    "evaluation": lambda event: isinstance(event, Advanced) and event.phase == "evaluate",
}


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("whole", [True, False], ids=["runs", "the run's folder"])
def test_a_folder_that_is_deleted_during_its_run_fails_the_run(
    study_file: Callable[..., Path], tmp_path: Path, when: str, whole: bool
) -> None:
    study = load(study_file(encodings='["nope"]'))
    (run,) = study.runs
    results, heard = tmp_path / "results", list[Event]()
    part = results / "runs" if whole else results / "runs" / run.key

    def on_event(event: Event) -> None:
        if WHEN[when](event) and not any(map(WHEN[when], heard)):
            shutil.rmtree(part, ignore_errors=True)
        heard.append(event)

    outcome = execute(study, results, executor=Inline(), on_event=on_event)
    if when == "it starts":
        assert outcome.counts["done"] == 1, "the folder was not created yet"
    else:
        ((_, error),) = outcome.failed
        assert "was deleted or replaced during the run; run the same command again to train it again" in error
        assert not (results / "runs" / run.key / "error.txt").exists()
        assert execute(study, results, executor=Inline()).counts["done"] == 1


@pytest.mark.parametrize("whole", [True, False], ids=["runs", "the run's folder"])
def test_a_file_in_the_place_of_a_folder_fails_the_run(
    study_file: Callable[..., Path], tmp_path: Path, whole: bool
) -> None:
    study = load(study_file(encodings='["nope"]'))
    part = tmp_path / "results" / "runs" / ("" if whole else study.runs[0].key)
    part.parent.mkdir(parents=True)
    part.write_text("mine")
    ((_, error),) = execute(study, tmp_path / "results", executor=Inline()).failed
    assert error.startswith(f"cannot use the folder {tmp_path}/results/runs/") and error.endswith("; give another one")
    assert part.read_text() == "mine"
