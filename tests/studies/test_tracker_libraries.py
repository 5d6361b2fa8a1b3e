"""What accelerate's trackers tell the libraries that tests do not install, which small stand-ins replace here."""

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lengthwise.studies.tracking import Tracking
from lengthwise.trackers import TrackedRun, parse_trackers
from lengthwise.training import Stopped

pytest.importorskip("accelerate", reason="needs the extra trackers")

RUN = TrackedRun(key="0" * 16, study="A study", name="RoPE, seed 0", settings={"training.steps": 9, "model.bias": None})
SCORES = [SimpleNamespace(question={"length": n}, length=n, mean=n / 100) for n in (64, 8)]


class Library:
    """What a library has stored: (name, step, value) of each logged value, the settings, and the status of the run."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int | None, float]] = []
        self.settings: dict[str, Any] = {}
        self.status: object = None
        self.opened: list[dict[str, Any]] = []

    def log(self, values: dict[str, float], step: int | None = None) -> None:
        self.rows += [(name, step, value) for name, value in values.items()]

    @property
    def last(self) -> int:
        return max((step for _, step, _ in self.rows if step is not None), default=0)

    def init(self, **options: Any) -> Any:
        """As of wandb and of trackio."""
        self.opened.append(options)
        self.settings = options["config"]
        run = SimpleNamespace(log=self.log, resumed=bool(self.rows), step=self.last + 1, _next_step=self.last + 1)
        run.finish = lambda exit_code=0: setattr(self, "status", exit_code)
        return run


def wandb(library: Library) -> ModuleType:
    module: Any = ModuleType("wandb")
    module.init = library.init
    return module


def trackio(library: Library) -> ModuleType:
    module: Any = ModuleType("trackio")
    module.init = library.init
    return module


def mlflow(library: Library) -> ModuleType:
    module: Any = ModuleType("mlflow")

    def start_run(**options: Any) -> Any:
        library.opened.append(options)
        return SimpleNamespace()

    def search_runs(filter_string: str, **_: Any) -> list[Any]:
        assert filter_string == f"tags.`lengthwise.id` = '{RUN.id}'"
        return [SimpleNamespace(info=SimpleNamespace(run_id="old"))] if library.opened else []

    module.set_tracking_uri = module.set_experiment = lambda name: None
    module.search_experiments = lambda filter_string: [SimpleNamespace(experiment_id="1")]
    module.start_run, module.search_runs = start_run, search_runs
    module.log_params = library.settings.update
    module.log_metrics = library.log
    module.end_run = lambda status: setattr(library, "status", status)
    module.MlflowClient = lambda: SimpleNamespace(
        get_metric_history=lambda run_id, name: [SimpleNamespace(step=step) for n, step, _ in library.rows if n == name]
    )
    validation = SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=100)
    module.utils = SimpleNamespace(validation=validation)
    return module


@pytest.fixture
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(sys.modules, request.param.__name__, request.param(library))
    monkeypatch.setenv("TRACKIO_DIR", "")
    return library


def track(name: str, results: Path, steps: range, scores: bool = False, error: Exception | None = None) -> list[str]:
    """Track a run to its end. Return the notes."""
    notes: list[Any] = []
    points = [{"step": step, "loss": 1 / step} for step in steps]
    parent: Any = SimpleNamespace(send=notes.append)
    with suppress(Stopped, ZeroDivisionError), Tracking(parse_trackers(name), RUN, results, parent) as tracking:
        tracking.log_points(points[:2])
        tracking.log_points(points)
        if scores:
            tracking.log_scores(lambda: SCORES, [row.question for row in SCORES], "accuracy")
        if error is not None:
            raise error
    return [note.text for note in notes]


each = pytest.mark.parametrize("library", [wandb, mlflow, trackio], indirect=True, ids=lambda make: make.__name__)


@each
def test_a_run_is_continued(library: Library, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    stopped = Stopped("train", 5, 9)
    assert track(name, tmp_path, range(1, 6), error=stopped) == []
    assert library.status == {"wandb": 255, "mlflow": "KILLED", "trackio": 0}[name]
    assert track(name, tmp_path, range(1, 10), scores=True) == []
    curve = [(step, value) for name, step, value in library.rows if name == "loss"]
    assert curve == [(step, 1 / step) for step in range(1, 10)]
    assert library.settings["training.steps"] == 9
    scores = [row for row in library.rows if row[0] != "loss"]
    if name == "mlflow":
        assert scores == [("score/accuracy", 8, 0.08), ("score/accuracy", 64, 0.64)]
        assert [options["run_id"] for options in library.opened] == [None, "old"]
        assert library.status == "FINISHED"
    else:
        assert scores == [("score/accuracy/64", None, 0.64), ("score/accuracy/8", None, 0.08)]
        first, second = library.opened
        assert first == second and first["resume"] == "allow" and RUN.id in (first.get("id"), first["name"][-26:-1])
        assert library.status == 0


@pytest.mark.parametrize(
    ("library", "status"), [(wandb, 1), (mlflow, "FAILED")], indirect=["library"], ids=["wandb", "mlflow"]
)
def test_a_failed_run_is_shown_as_failed(
    library: Library, status: object, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    assert track(name, tmp_path, range(1, 3), error=ZeroDivisionError()) == []
    assert library.status == status


@pytest.mark.parametrize("library", [wandb], indirect=True)
@pytest.mark.parametrize("where", ["init", "log"])
def test_an_error_is_noted_once(library: Library, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError("https://me:hunter2@host does not answer\nmore")

    monkeypatch.setattr(library, where, fail)
    monkeypatch.setitem(sys.modules, "wandb", wandb(library))
    (note,) = track("wandb", tmp_path, range(1, 6), scores=True)
    assert note == "tracker wandb: ConnectionError: *** does not answer; the run continues without it"
