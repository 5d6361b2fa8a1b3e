"""Runs in Weights & Biases, on its servers or in files that `wandb sync` uploads later."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lengthwise.trackers.base import Point, Status, TrackedRun, TrackedScore, Tracker, delete_folders

EXIT_CODES: dict[Status, int] = {"finished": 0, "failed": 1, "stopped": 255}


@dataclass(kw_only=True)
class WandB(Tracker):
    """Runs in Weights & Biases. The API key is read where the library looks for it."""

    name, package = "wandb", "wandb"
    project: str = "lengthwise"
    """The project."""
    entity: str | None = None
    """The user or team. [default: that of the account]"""
    mode: Literal["online", "offline"] | None = None
    """`offline` writes files for `wandb sync` and needs no network. [default: WANDB_MODE, or online]"""
    folder: str | None = None
    """The folder in which the library creates its folder `wandb`. [default: the results folder]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_folder()
        self.require_texts("project", "entity")

    def begin(self, run: TrackedRun, results: Path) -> int:
        import wandb

        folder = self.place(results, "wandb")
        settings = wandb.Settings(
            silent=True,
            init_timeout=45,  # seconds, so that it can say what is wrong before a worker stops to wait
            console="off",
            disable_git=True,
            save_code=False,
            disable_job_creation=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
        )
        self._run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            dir=str(folder.parent),
            id=run.id,
            name=run.name,
            group=run.study,
            config=run.settings,
            resume="allow",
            settings=settings,
        )
        if self._run.offline:  # the new folder gets all of the run, and syncing both would repeat it
            new = Path(self._run.dir).parent
            delete_folders(old for old in folder.glob(f"offline-run-*-{run.id}") if old != new)
            return 0
        return self._run.step - 1 if self._run.resumed else 0

    def log_points(self, points: Sequence[Point]) -> None:
        for point in points:
            values = {name: value for name, value in point.items() if name != "step"}
            self._run.log(values, step=int(point["step"]), commit=True)

    def log_scores(self, scores: Sequence[TrackedScore]) -> None:
        self._run.summary.update({score.full_name: score.value for score in scores})

    def end(self, status: Status) -> None:
        self._run.finish(exit_code=EXIT_CODES[status])
