"""Trackers, which show training curves and scores beside the database, by the classes of `accelerate.tracking`."""

import dataclasses
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from lengthwise.config.layers import split_at_commas
from lengthwise.validation import parse_value
from lengthwise.values import ConfigError, install_extra, require_known, require_no_address, unlisted

Status = Literal["finished", "failed", "stopped"]

NO_REPORTS = {  # what the libraries send to their makers unless they are told not to
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as trackers show it. `settings`: by their full names, such as `training.steps`, with plain values."""

    key: str
    study: str
    name: str
    settings: Mapping[str, bool | int | float | str | None]

    @property
    def id(self) -> str:
        """The identifier in every tracker. A run that two studies list is tracked once for each."""
        return f"{self.key}-{hashlib.sha256(self.study.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """Base class of the trackers. The fields of a subclass are its settings."""

    name: ClassVar[str]  # in --trackers, of the library, and of the extra that installs it
    steps_may_be_lengths: ClassVar[bool] = False  # so that scores are drawn against lengths
    folder: str | None = None
    """The folder of its files. [default: in the results folder]"""

    def to_data(self) -> dict[str, Any]:
        """Return its name and settings, from which `tracker_of` makes an equal tracker."""
        return {"name": self.name, **dataclasses.asdict(self)}

    def start(self, run: TrackedRun, results: Path) -> tuple[Any, int]:
        """Start a run, or continue the same one after a kill, also on another machine.

        Return accelerate's tracker, and the last step of the training curve that it has. `results`: the results folder.
        """
        raise NotImplementedError

    def finish(self, tracker: Any, status: Status) -> None:
        """Finish the run, and wait until everything is written. `tracker`: what `start` has returned."""
        tracker.finish()

    def needs_results(self) -> bool:
        """Return whether its files are in the results folder, which must then be on this machine."""
        return self.folder is None

    def place(self, default: Path) -> Path:
        """Return the folder of the tracker's files, and create it."""
        place = Path(self.folder or default).expanduser().absolute()
        place.mkdir(parents=True, exist_ok=True)
        return place


@dataclass(frozen=True, kw_only=True)
class TensorBoard(Tracker):
    """Event files in RESULTS/tensorboard/STUDY/KEY."""

    name = "tensorboard"
    steps_may_be_lengths = True

    def start(self, run: TrackedRun, results: Path) -> tuple[Any, int]:
        tracking = _accelerate()
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        place = self.place(results / "tensorboard") / re.sub(r"[^\w-]+", "-", run.study)
        shutil.rmtree(place / run.key, ignore_errors=True)  # of the same run, all of which is logged again
        tracker = tracking.TensorBoardTracker(run.key, place)
        _start(tracker)
        # accelerate's own method would write the settings into a run of their own, so the table of settings would have
        # no scores.
        settings = {name: "None" if value is None else value for name, value in run.settings.items()}
        tracker.tracker.file_writer.add_summary(hparams_pb(settings, trial_id=run.id))
        return tracker, 0


@dataclass(frozen=True, kw_only=True)
class WandB(Tracker):
    """Runs in Weights & Biases. The API key is read where the library looks for it."""

    name = "wandb"
    project: str = "lengthwise"
    """The project."""
    entity: str | None = None
    """The user or team. [default: that of the account]"""
    mode: Literal["online", "offline"] | None = None
    """`offline` writes files for `wandb sync` and needs no network. [default: WANDB_MODE, or online]"""

    def start(self, run: TrackedRun, results: Path) -> tuple[Any, int]:
        place = self.place(results)
        for old in place.glob(f"wandb/offline-run-*-{run.id}"):  # of the same run, all of which is logged again
            shutil.rmtree(old)
        tracker = _accelerate().WandBTracker(
            self.project,
            entity=self.entity,
            mode=self.mode,
            dir=str(place),
            id=run.id,
            name=run.name,
            group=run.study,
            config=dict(run.settings),
            resume="allow",
            settings={"silent": True, "console": "off"},
        )
        _start(tracker)
        return tracker, tracker.tracker.step - 1 if tracker.tracker.resumed else 0

    def finish(self, tracker: Any, status: Status) -> None:
        tracker.tracker.finish(exit_code={"finished": 0, "failed": 1, "stopped": 255}[status])


@dataclass(frozen=True, kw_only=True)
class MLflow(Tracker):
    """Runs in MLflow. Without `uri`, they are in the database RESULTS/mlflow/mlflow.db."""

    name = "mlflow"
    steps_may_be_lengths = True
    experiment: str | None = None
    """The experiment. [default: the name of the study]"""
    uri: str | None = None
    """The address of a tracking server, such as https://host:5000. Its user and password belong in
    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. [default: a database in the folder]"""

    def __post_init__(self) -> None:
        if self.uri is not None and not re.fullmatch(r"https?://[^\s@?#]+", self.uri):
            raise ConfigError(
                "mlflow: uri must be the address of a tracking server without credentials, such as https://host:5000; "
                "the user and the password belong in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )

    def needs_results(self) -> bool:
        return self.uri is None and self.folder is None

    def start(self, run: TrackedRun, results: Path) -> tuple[Any, int]:
        tracking = _accelerate()
        import mlflow

        mlflow.set_tracking_uri(self.uri or f"sqlite:///{self.place(results / 'mlflow') / 'mlflow.db'}")
        experiment = self.experiment or run.study
        # Unlike accelerate's tracker, this allows for another worker that creates the same experiment.
        mlflow.set_experiment(experiment)
        runs = mlflow.search_runs(
            experiment_names=[experiment],
            filter_string=f"tags.`lengthwise.id` = '{run.id}'",
            max_results=1,
            output_format="list",
        )
        tags = {"lengthwise.id": run.id, "lengthwise.key": run.key, "lengthwise.study": run.study}
        run_id = runs[0].info.run_id if runs else None
        tracker = tracking.MLflowTracker(experiment, run_id=run_id, tags=tags, run_name=run.name)
        _start(tracker)
        if run_id is None:
            tracker.store_init_configuration(run.settings)
            return tracker, 0
        return tracker, max((m.step for m in mlflow.MlflowClient().get_metric_history(run_id, "loss")), default=0)

    def finish(self, tracker: Any, status: Status) -> None:
        import mlflow

        mlflow.end_run({"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}[status])


@dataclass(frozen=True, kw_only=True)
class Trackio(Tracker):
    """Runs in trackio, in the folder RESULTS/trackio, which `TRACKIO_DIR=RESULTS/trackio trackio show` displays."""

    name = "trackio"
    project: str = "lengthwise"
    """The project."""

    def start(self, run: TrackedRun, results: Path) -> tuple[Any, int]:
        os.environ["TRACKIO_DIR"] = str(self.place(results / "trackio"))  # read when trackio is imported
        tracker = _accelerate().TrackioTracker(
            self.project,
            name=f"{run.name} ({run.id})",
            group=run.study,
            config=dict(run.settings),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        _start(tracker)
        return tracker, tracker.tracker._next_step - 1


def _accelerate() -> Any:
    """Return the module `accelerate.tracking`, for use without its `Accelerator`."""
    for name, value in NO_REPORTS.items():
        os.environ.setdefault(name, value)
    from accelerate import tracking

    # accelerate's own logger needs its process group. Under torchrun, creating that would wait for the other ranks
    # forever.
    tracking.logger = logging.getLogger(tracking.__name__)
    return tracking


def _start(tracker: Any) -> None:
    # Only rank 0 has trackers. Otherwise accelerate would ask its process group which rank this is.
    tracker.main_process_only = False
    tracker.start()


TRACKERS: dict[str, type[Tracker]] = {tracker.name: tracker for tracker in (TensorBoard, WandB, MLflow, Trackio)}


def tracker_of(data: Mapping[str, Any]) -> Tracker:
    """Return the tracker that `to_data` described."""
    settings = dict(data)
    return TRACKERS[settings.pop("name")](**settings)


def parse_trackers(text: str) -> tuple[Tracker, ...]:
    """Return the trackers of `tensorboard,wandb:project=fire,mode=offline`. Raise `ConfigError` for anything else."""
    settings: dict[str, dict[str, Any]] = {}
    name = ""
    for item in filter(None, map(str.strip, split_at_commas(text))):
        begin = re.fullmatch(r"([^:=]+)(?::(.*))?", item)
        if begin is not None:
            name, item = begin[1].strip().lower(), begin[2] or ""
            if name not in TRACKERS:
                raise ConfigError(
                    f"--trackers must be the names of trackers, and there is no {unlisted(name, TRACKERS)}"
                )
            if name in settings:
                raise ConfigError(f"--trackers names {name} twice; name it once")
            settings[name] = {}
        if item:
            _add_setting(settings, name, item)
    if not settings:
        raise ConfigError(f"--trackers is empty; name one or more of {', '.join(TRACKERS)}")
    return tuple(TRACKERS[name](**values) for name, values in settings.items())


def _add_setting(settings: dict[str, dict[str, Any]], name: str, text: str) -> None:
    """Parse `NAME=VALUE`. Messages leave out the text, because a mistyped setting may contain a password."""
    setting, _, value = (word.strip() for word in text.partition("="))
    if not name or not value:
        example = f"--trackers {name or 'wandb'}:{'folder=PATH' if name == 'tensorboard' else 'project=fire'}"
        raise ConfigError(f"--trackers must be names with settings as NAME=VALUE, as in: {example}")
    tracker = TRACKERS[name]
    require_known(name, [setting], [field.name for field in dataclasses.fields(tracker)])
    if setting in settings[name]:
        raise ConfigError(f"--trackers sets {name}:{setting} twice; omit one of them")
    settings[name][setting] = parse_value(value, typing.get_type_hints(tracker)[setting], f"{name}: {setting}")


def require_usable(trackers: Iterable[Tracker], results: str, is_remote: bool) -> None:
    """Raise `ConfigError` if a library is missing, or if files have no folder because the results are at an address."""
    for tracker in trackers:
        for package in (tracker.name, "accelerate"):
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:  # any folder of that name is found, but has no origin
                raise ConfigError(
                    f"tracker {tracker.name} needs the package {package}, which is not installed; "
                    f"{install_extra(tracker.name)}"
                )
        if tracker.folder is not None:
            require_no_address(f"{tracker.name}: folder", tracker.folder)
        if is_remote and tracker.needs_results():
            raise ConfigError(
                f"tracker {tracker.name} writes files, and the results folder {results} is not on this machine; name a "
                f"folder, as in: --trackers {tracker.name}:folder=PATH"
            )
