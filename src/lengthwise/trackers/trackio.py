"""Runs in trackio, in a database on this machine that `trackio show` displays."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.trackers.base import Point, Status, TrackedRun, TrackedScore, Tracker, require_no_links


@dataclass(kw_only=True)
class Trackio(Tracker):
    """Runs in trackio, in the folder RESULTS/trackio, which `TRACKIO_DIR=RESULTS/trackio trackio show` displays."""

    name, package = "trackio", "trackio"
    project: str = "lengthwise"
    """The project."""
    folder: str | None = None
    """The folder of the database. [default: trackio in the results folder]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_folder()
        self.require_texts("project")

    def begin(self, run: TrackedRun, results: Path) -> int:
        folder = self.place(results, *(() if self.folder else ("trackio",)))
        require_no_links(folder)
        for name in [name for name in os.environ if name.startswith("TRACKIO_")]:
            del os.environ[name]  # they could send the run to a server
        os.environ["TRACKIO_DIR"] = str(folder)
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        name = f"{run.name} ({run.id})"
        self._run: Any = trackio.init(
            project=self.project,
            name=name,
            group=run.study,
            config=run.settings,
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        rows = SQLiteStorage.get_logs(self.project, run=name)
        self._last = max((row["step"] for row in rows if "loss" in row), default=0)
        self._scores = {name for row in rows for name in row if name.startswith("score/")}
        return self._last

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            self._last = int(point["step"])
            self._run.log({name: value for name, value in point.items() if name != "step"}, step=self._last)

    def log_scores(self, scores: Sequence[TrackedScore]) -> None:
        """Log the new scores at the last step of the training, because trackio shows values against steps."""
        values = {score.full_name: score.value for score in scores if score.full_name not in self._scores}
        if values:
            self._run.log(values, step=self._last)

    def end(self, status: Status) -> None:
        self._run.finish()
