"""Runs in MLflow, in a database on this machine or on a tracking server."""

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.cache_folder import locked
from lengthwise.trackers.base import Point, Status, TrackedRun, TrackedScore, Tracker, require_no_links
from lengthwise.values import ConfigError

STATUS: dict[Status, str] = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
TAG = "lengthwise.id"
MAX_PARAMETERS, MAX_METRICS = 100, 800  # of one request
MAX_VALUE = 6000  # characters
LOCK_SECONDS = 120.0


@dataclass(kw_only=True)
class MLflow(Tracker):
    """Runs in MLflow. Without `uri`, they are in the database RESULTS/mlflow/mlflow.db."""

    name, package = "mlflow", "mlflow"
    experiment: str | None = None
    """The experiment. [default: the name of the study]"""
    uri: str | None = None
    """The address of a tracking server, such as https://host:5000. Its user and password belong in MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD. [default: a database in the folder]"""
    folder: str | None = None
    """The folder of the database. [default: mlflow in the results folder]"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_folder()
        self.require_texts("experiment")
        if self.uri is not None and not re.fullmatch(r"https?://[^\s@?#]+", self.uri):
            raise ConfigError(
                "mlflow: uri must be the address of a tracking server without credentials, such as https://host:5000; the user and "
                "the password belong in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        if self.uri is not None and self.folder is not None:
            raise ConfigError("mlflow: a run is stored either at an address or in a folder; omit uri or folder")

    def needs_results(self) -> bool:
        return self.uri is None and self.folder is None

    def begin(self, run: TrackedRun, results: Path) -> int:
        from mlflow import MlflowClient

        uri, artifacts = self.uri, None
        lock: Any = nullcontext()
        if uri is None:
            folder = self.place(results, *(() if self.folder else ("mlflow",)))
            uri, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
            require_no_links(folder)
            lock = locked(folder / "mlflow.lock", LOCK_SECONDS, what="another run begins in MLflow")
        with lock:  # only one worker may create the database and the experiment
            self._client: Any = MlflowClient(tracking_uri=uri)
            name = self.experiment or run.study
            found = self._client.get_experiment_by_name(name)
            experiment = found.experiment_id if found else self._client.create_experiment(name, artifacts)
            runs = self._client.search_runs([experiment], f"tags.`{TAG}` = '{run.id}'", max_results=1)
            tags = {TAG: run.id, "lengthwise.key": run.key, "lengthwise.study": run.study}
            own = runs[0] if runs else self._client.create_run(experiment, tags=tags, run_name=run.name)
        self._id = own.info.run_id
        if runs:
            self._client.update_run(self._id, status="RUNNING")
            return max((metric.step for metric in self._client.get_metric_history(self._id, "loss")), default=0)
        self._log_settings(run.settings)
        return 0

    def log_points(self, points: Sequence[Point]) -> None:
        self._log_metrics(
            (name, value, int(point["step"])) for point in points for name, value in point.items() if name != "step"
        )

    def log_scores(self, scores: Sequence[TrackedScore]) -> None:
        """Log scores as metrics whose step is the length."""
        logged = {
            (name, metric.step)
            for name in {score.name for score in scores}
            for metric in self._client.get_metric_history(self._id, name)
        }
        self._log_metrics((s.name, s.value, s.length) for s in scores if (s.name, s.length) not in logged)

    def end(self, status: Status) -> None:
        self._client.set_terminated(self._id, STATUS[status])

    def _log_settings(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        parameters = [Param(name, str(value)[:MAX_VALUE]) for name, value in settings.items()]
        for begin in range(0, len(parameters), MAX_PARAMETERS):
            self._client.log_batch(self._id, params=parameters[begin : begin + MAX_PARAMETERS])

    def _log_metrics(self, values: Any) -> None:
        """Log (name, value, step). The values of one step are in one request, so that all or none of them are logged."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value, step in values]
        for begin in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self._id, metrics=metrics[begin : begin + MAX_METRICS])
