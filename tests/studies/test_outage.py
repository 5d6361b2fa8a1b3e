"""A database server that is down while a study runs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import Inline, Local
from lengthwise.store import StoreUnreachable, open_results
from lengthwise.studies import Event, execute, load
from lengthwise.studies.events import Done, Note, Started
from lengthwise.studies.parent import Flag, when_reachable
from tests.postgres_server import needs_own_postgres, new_server

StudyFile = Callable[..., Path]


@needs_own_postgres
@pytest.mark.slow
@pytest.mark.parametrize("executor", [Inline(), Local(workers=2)])
def test_a_study_waits_for_its_server(study_file: StudyFile, tmp_path: Path, executor: Any) -> None:
    study = load(study_file(seeds=2))
    execute(study, tmp_path / "here", executor=Inline())
    heard: list[Event] = []
    with new_server() as server:

        def crash(event: Event) -> None:
            heard.append(event)
            if isinstance(event, Started) and sum(isinstance(e, Started) for e in heard) == 2:
                server.stop()
                threading.Timer(4.0, server.start).start()

        outcome = execute(study, tmp_path / "results", store=server.url, executor=executor, on_event=crash)
        assert outcome.counts == {"pending": 0, "running": 0, "done": 4, "failed": 0}
        notes = [event.text for event in heard if isinstance(event, Note)]
        assert any(text.endswith("; the worker waits for it and then continues") for text in notes)
        assert all("user" not in text for text in notes)
        assert len([event for event in heard if isinstance(event, Done)]) == 4
        with (
            open_results(tmp_path / "here", create=False) as here,
            open_results(tmp_path / "results", create=False, store=server.url) as there,
        ):
            for run in study.runs:
                rows = [[(s.length, s.mean) for s in store.scores([run.key])] for store in (here, there)]
                assert rows[0] == rows[1] != []


class Failing:
    """A store that does not answer for the first calls."""

    def __init__(self, failures: int):
        self.failures, self.calls = failures, 0

    def claim(self, study: str) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise StoreUnreachable("the server cannot be reached (refused); start the server")
        return study


class Hears:
    def __init__(self) -> None:
        self.stop_requested = Flag()
        self.notes: list[str] = []

    def send(self, event: Event) -> None:
        assert isinstance(event, Note)
        self.notes.append(event.text)


def test_calls_are_repeated_and_one_note_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.studies.parent.LONGEST_PAUSE", 0.01)
    failing, hears = Failing(2), Hears()
    assert when_reachable(hears, failing.claim, "s") == "s"
    assert failing.calls == 3
    assert hears.notes == ["the server cannot be reached (refused); the worker waits for it and then continues"]


def test_a_stop_ends_the_waiting() -> None:
    failing, hears = Failing(1000), Hears()
    threading.Timer(0.3, hears.stop_requested.set).start()
    begun = time.monotonic()
    with pytest.raises(StoreUnreachable):
        when_reachable(hears, failing.claim, "s")
    assert time.monotonic() - begun < 10
