"""Event files for TensorBoard, by TensorBoard's own writer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.trackers.base import Point, Status, TrackedRun, TrackedScore, Tracker, path_part


@dataclass(kw_only=True)
class TensorBoard(Tracker):
    """Event files in RESULTS/tensorboard/STUDY/KEY."""

    name, package = "tensorboard", "tensorboard"
    folder: str | None = None
    """The folder of the event files. [default: tensorboard in the results folder]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_folder()

    def begin(self, run: TrackedRun, results: Path) -> int:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        parts = () if self.folder else ("tensorboard",)
        folder = self.place(results, *parts, path_part(run.study), run.key)
        for old in folder.glob("events.out.tfevents.*"):  # of the same run, all of which is logged again
            old.unlink()
        settings = {name: "None" if value is None else value for name, value in run.settings.items()}
        self._event: Any = Event
        self._writer = EventFileWriter(str(folder), flush_secs=10)
        self._writer.add_event(Event(wall_time=time.time(), summary=hparams_pb(settings, trial_id=run.id)))
        return 0

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            self._add(int(point["step"]), {name: value for name, value in point.items() if name != "step"})

    def log_scores(self, scores: Sequence[TrackedScore]) -> None:
        """Log scores as charts of score against length: the step of such a point is the length."""
        for score in sorted(scores, key=lambda score: score.length):
            self._add(score.length, {score.name: score.value})
        self._writer.flush()

    def end(self, status: Status) -> None:
        self._writer.close()

    def _add(self, step: int, values: dict[str, float]) -> None:
        event = self._event(wall_time=time.time(), step=step)
        for name, value in values.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)
