"""`Tracking`: what trackers are told about one run while a worker executes it."""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.analysis.differences import flat
from lengthwise.config import Run
from lengthwise.errors import first_line
from lengthwise.studies.events import Note
from lengthwise.studies.parent import Parent
from lengthwise.trackers import Status, TrackedRun, Tracker
from lengthwise.training import Stopped
from lengthwise.values import without_secrets


@dataclass
class _Started:
    """A tracker of this run: its settings, the object of accelerate, and the last step of the curve that it has."""

    settings: Tracker
    tracker: Any
    last_step: int


class Tracking:
    """Tell trackers about a run. If one of them fails, this is noted once, and the run continues without it.

    Trackers get all points up to the present at the beginning, from the checkpoint, and again at the end. Each one
    ignores the points that it has. So a curve has each step once, whatever was lost or repeated when a worker was
    killed.
    """

    def __init__(self, trackers: Iterable[Tracker], run: TrackedRun, results: Path, parent: Parent):
        self._trackers, self._run, self._results, self._parent = trackers, run, results, parent
        self._started: dict[str, _Started] = {}

    def __enter__(self) -> "Tracking":
        for tracker in self._trackers:
            with self._noting_errors(tracker.name):
                self._started[tracker.name] = _Started(tracker, *tracker.start(self._run, self._results))
        return self

    def log_points(self, points: Sequence[Mapping[str, float]]) -> None:
        for name, started in list(self._started.items()):
            with self._noting_errors(name):
                for point in points:
                    if (step := int(point["step"])) > started.last_step:
                        started.tracker.log({name: point[name] for name in point if name != "step"}, step=step)
                        started.last_step = step

    def log_scores(
        self, rows: Callable[[], Iterable[Any]], questions: Sequence[Mapping[str, Any]], metric: str
    ) -> None:
        """Log the stored scores that answer these questions. `rows` reads them, if there is a tracker."""
        if not self._started:
            return
        scores = [row for row in rows() if row.question in questions and math.isfinite(row.mean)]
        for name, started in list(self._started.items()):
            with self._noting_errors(name):
                if started.settings.steps_may_be_lengths:
                    for row in sorted(scores, key=lambda row: row.length):
                        started.tracker.log({score_name(metric, row.question): row.mean}, step=row.length)
                elif scores:
                    started.tracker.log(
                        {f"{score_name(metric, row.question)}/{row.length}": row.mean for row in scores}
                    )

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        status: Status = "finished" if kind is None else "stopped" if issubclass(kind, Stopped) else "failed"
        for name, started in list(self._started.items()):
            with self._noting_errors(name):
                started.settings.finish(started.tracker, status)

    @contextmanager
    def _noting_errors(self, name: str) -> Iterator[None]:
        try:
            with redirect_stdout(sys.stderr):  # the libraries print, and the output may be JSON
                yield
        except Exception as error:
            self._started.pop(name, None)
            text = f"tracker {name}: {without_secrets(first_line(error))}; the run continues without it"
            self._parent.send(Note(key=self._run.key, text=text))


def score_name(metric: str, question: Mapping[str, Any]) -> str:
    """Return the name of a stored score. A shift appears with its settings, in letters that every tracker accepts."""
    shift = "-".join(f"{name}-{value}" for name, value in question.get("shift", {}).items())
    return "/".join(["score", metric, *([re.sub(r"[^\w.-]+", "-", shift)] if shift else [])])


def tracked_run(run: Run, study: str) -> TrackedRun:
    plain = (bool, int, float, str, type(None))
    config = {name: value if isinstance(value, plain) else str(value) for name, value in flat(run.to_data()).items()}
    settings = {"key": run.key, "study": study, "label": run.label, **config}
    return TrackedRun(key=run.key, study=study, name=f"{run.label}, seed {run.seed}", settings=settings)
