"""The process of a tracker: kills, failures, and what it must not do."""

import os
import signal
import time
from pathlib import Path

import pytest

from lengthwise.trackers import parse_trackers, process
from lengthwise.trackers.base import Tracker
from lengthwise.trackers.child import problem
from lengthwise.trackers.process import TrackerProcess
from tests.trackers.read_back import OPTIONS, READERS, ReadBack, each_tracker

KEY = "0123456789abcdef"
RUN = {"key": KEY, "study": "My study", "label": "RoPE", "seed": 0, "config": {"seed": 0, "a.b": None, "x": "y" * 500}}


def start(tracker: Tracker, results: Path) -> TrackerProcess:
    return TrackerProcess(tracker, {"run": RUN, "results": str(results)})


def points(first: int, last: int) -> list[dict[str, float]]:
    return [{"step": step, "loss": 1 / step, "learning_rate": 0.5} for step in range(first, last + 1)]


def finish(one: TrackerProcess, status: str = "finished") -> None:
    one.finish(status, lambda: False, 120, 120)


@pytest.mark.slow
@pytest.mark.parametrize("name", each_tracker())
def test_a_killed_process_is_continued(tmp_path: Path, name: str) -> None:
    """The second process gets all points from the beginning, as a worker that continues from a checkpoint sends them."""
    (tracker,) = parse_trackers(OPTIONS.get(name, name))
    kill_and_continue(tracker, tmp_path)
    require_all_points_once(READERS[name](tmp_path, KEY))


def kill_and_continue(tracker: Tracker, tmp_path: Path) -> None:
    first = start(tracker, tmp_path)
    first.send({"points": points(1, 30)})
    end = time.monotonic() + 60
    while not first._has_begun:
        assert time.monotonic() < end and first.problem is None
        time.sleep(0.02)
    time.sleep(1.5 if tracker.name == "wandb" else 0.3)  # some points are written
    assert first._process is not None
    os.kill(first._process.pid, signal.SIGKILL)
    first._process.wait()
    time.sleep(0.1)

    for last in (40, 50):  # the worker is killed again, so its tracker ends by itself, and then is done
        one = start(tracker, tmp_path)
        one.send({"points": points(1, 20)})
        one.send({"points": points(21, last)})
        if last == 50:
            one.send({"scores": [{"name": "score/accuracy", "length": n, "value": n / 100} for n in (8, 64)]})
            finish(one)
        else:
            one._messages.put(None)  # the end of its input
            assert one._process is not None
            one._process.wait(60)
        assert one.problem is None

    again = start(tracker, tmp_path)  # a score was added later
    again.send({"points": points(1, 50)})
    again.send({"scores": [{"name": "score/accuracy", "length": n, "value": n / 100} for n in (8, 64, 99)]})
    finish(again)
    assert again.problem is None


def require_all_points_once(found: ReadBack) -> None:
    assert set(found.times.values()) == {1}
    assert found.curve["loss"] == pytest.approx({step: 1 / step for step in range(1, 51)})
    assert set(found.curve) == {"loss", "learning_rate"}
    assert found.scores == pytest.approx({("score/accuracy", n): n / 100 for n in (8, 64, 99)})


def test_a_process_that_hangs_never_makes_its_caller_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CODE", "import time; time.sleep(1000)")
    begin = time.monotonic()
    one = start(parse_trackers("tensorboard")[0], tmp_path)
    for _ in range(100):  # far more than a pipe holds
        one.send({"points": points(1, 100)})
    assert time.monotonic() - begin < 5
    one.finish("finished", lambda: False, 0.2, 0.2)
    assert one.problem == "it could not begin in time; it may be offline"
    assert one._process is not None and one._process.poll() == -signal.SIGKILL


def test_a_process_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CODE", "import os; os._exit(3)")
    one = start(parse_trackers("tensorboard")[0], tmp_path)
    one.send({"points": points(1, 100)})
    finish(one)
    assert one.problem == "its process ended with exit code 3"


def test_no_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    one = start(parse_trackers("tensorboard")[0], tmp_path)
    one.send({"points": []})
    finish(one)
    one.kill()
    assert one.problem == "its process cannot be started (No such file or directory)"


@pytest.mark.parametrize("link", [pytest.param("tensorboard", marks=pytest.mark.slow), "tensorboard/my-study"])
def test_no_file_is_deleted_or_written_behind_a_link(tmp_path: Path, link: str) -> None:
    """A results folder may come from somebody else."""
    pytest.importorskip("tensorboard", reason="needs the extra tensorboard")
    target = tmp_path / "elsewhere"
    (target / KEY).mkdir(parents=True)
    kept = target / KEY / "events.out.tfevents.1"
    kept.write_text("kept")
    results = tmp_path / "results"
    place = results / link
    place.parent.mkdir(parents=True)
    place.symlink_to(target)
    one = TrackerProcess(
        parse_trackers("tensorboard")[0], {"run": RUN | {"study": "my-study"}, "results": str(results)}
    )
    finish(one)
    assert one.problem is not None and "must not contain a link" in one.problem
    assert [path.name for path in target.rglob("*")] == [KEY, kept.name] and kept.read_text() == "kept"


def test_problems_have_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abcdef123456")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")
    text = problem(OSError("401 for abcdef123456\nat https://me:word@host/x with hunter2"))
    assert text == "OSError: 401 for *** at *** with ***"
    assert len(problem(ValueError("x" * 5000))) < 400


@pytest.mark.slow
@pytest.mark.parametrize(("name", "says"), [("wandb", "No API key configured")])
def test_wandb_without_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    one = start(parse_trackers(name)[0], tmp_path)
    one.send({"points": points(1, 3)})
    finish(one)
    assert one.problem is not None and says in one.problem
