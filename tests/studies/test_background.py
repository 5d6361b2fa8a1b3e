"""The thread that sends the files of a run while it is trained."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.store import StoreUnreachable
from lengthwise.studies.background import Sender
from lengthwise.studies.parent import Flag


class Files:
    """A results folder at an address that cannot be reached for the first calls."""

    is_remote = True

    def __init__(self, failures: int):
        self.failures, self.threads = failures, list[str]()

    def send(self, key: str) -> None:
        self.threads.append("main" if threading.current_thread() is threading.main_thread() else "thread")
        if len(self.threads) <= self.failures:
            raise StoreUnreachable("s3://b cannot be reached (reset); check the network")


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("SEND_SECONDS", "RETRY_SECONDS"):
        monkeypatch.setattr(f"lengthwise.studies.background.{name}", 0.01)
    monkeypatch.setattr("lengthwise.studies.parent.LONGEST_PAUSE", 0.01)
    notes: list[str] = []
    return SimpleNamespace(notes=notes, send=lambda event: notes.append(event.text), stop_requested=Flag())


def use(files: Files, parent: Any, calls: int, lost: bool = False) -> Sender:
    heartbeat: Any = SimpleNamespace(lost=lost)
    sender = Sender(files, "key", parent, heartbeat)  # type: ignore[arg-type]
    with sender:
        end = time.monotonic() + 20
        while len(files.threads) < calls and time.monotonic() < end:
            time.sleep(0.005)
        for _ in range(2):
            sender.note_problem()
        if calls == 3:
            raise KeyError("a bug")
    return sender


def test_files_are_sent_beside_training_and_at_the_end(parent: Any) -> None:
    files = Files(0)
    use(files, parent, 2)
    assert files.threads[:2] == ["thread", "thread"] and files.threads[-1] == "main"
    assert parent.notes == []


def test_a_problem_is_noted_once(parent: Any) -> None:
    files = Files(2)
    use(files, parent, 4)
    assert parent.notes == ["s3://b cannot be reached (reset); training continues, and its files are sent later"]
    assert files.threads[-1] == "main"


def test_after_an_error_one_attempt_is_made(parent: Any) -> None:
    files = Files(1000)
    with pytest.raises(KeyError):
        use(files, parent, 3)
    assert files.threads.count("main") == 1
    assert parent.notes[1:] == [
        "s3://b cannot be reached (reset); check the network; the progress of the run stays on this machine"
    ]


def test_a_worker_that_has_lost_its_run_sends_nothing(parent: Any) -> None:
    files = Files(0)
    use(files, parent, 0, lost=True)
    assert files.threads == []


def test_a_folder_on_this_machine_needs_no_thread(parent: Any) -> None:
    files = Files(0)
    files.is_remote = False
    use(files, parent, 0)
    assert files.threads == ["main"]
