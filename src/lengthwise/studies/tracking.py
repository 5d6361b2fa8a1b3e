"""`Tracking`: what trackers are told about one run while a worker executes it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.config import Run
from lengthwise.store import ClaimLost
from lengthwise.studies.background import Heartbeat
from lengthwise.studies.events import Note
from lengthwise.trackers import Tracker
from lengthwise.trackers.base import TrackedRun, flat, scores_of
from lengthwise.trackers.process import TrackerProcess
from lengthwise.training import Stopped

if TYPE_CHECKING:
    from lengthwise.studies.worker import Parent

END_SECONDS = 60.0  # for a tracker to send what it has
STOP_SECONDS = 5.0  # the same, if the worker was asked to stop


class Tracking:
    """Tell trackers about a run. Nothing here raises an error or waits for a tracker, except for the end of its process.

    Trackers get all points up to the present at the beginning, from the checkpoint, and again at the end. Each one ignores the
    points that it has. So a curve has each step once, whatever was lost or repeated when a worker was killed.
    """

    def __init__(
        self, trackers: Iterable[Tracker], run: TrackedRun, results: Path, parent: "Parent", heartbeat: Heartbeat
    ):
        self._key, self._parent, self._heartbeat = run.key, parent, heartbeat
        first = {"run": asdict(run), "results": str(results)}
        self._processes = [TrackerProcess(tracker, first) for tracker in trackers]
        self._noted: set[str] = set()

    def log_points(self, points: Sequence[Mapping[str, float]]) -> None:
        if points:
            self._send({"points": list(points)})

    def log_scores(self, rows: Callable[[], Iterable[Any]], asked: Sequence[Mapping[str, Any]]) -> None:
        """Log the stored scores that answer the questions `asked`. `rows` reads them, if there is a tracker."""
        if self._processes:
            self._send({"scores": [asdict(score) for score in scores_of(rows(), asked)]})

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._heartbeat.lost or (
            kind is not None and issubclass(kind, ClaimLost)
        ):  # another worker tracks the run now
            for process in self._processes:
                process.kill()
            return
        status = "finished" if kind is None else "stopped" if issubclass(kind, Stopped) else "failed"
        for process in self._processes:
            process.finish(status, self._parent.stop_requested.is_set, END_SECONDS, STOP_SECONDS)
        self._note_problems()

    def _send(self, message: dict[str, Any]) -> None:
        for process in self._processes:
            process.send(message)
        self._note_problems()

    def _note_problems(self) -> None:
        for process in self._processes:
            name = process.tracker.name
            if process.problem is not None and name not in self._noted:
                self._noted.add(name)
                hint = "; wandb:mode=offline needs no network" if name == "wandb" else ""
                text = f"tracker {name}: {process.problem}; the run continues without it{hint}"
                self._parent.send(Note(key=self._key, text=text))


def tracked_run(run: Run, study: str) -> TrackedRun:
    return TrackedRun(key=run.key, study=study, label=run.label, seed=run.seed, config=flat(run.to_data()))
