"""The option --trackers, missing libraries, and the names of runs and scores."""

import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.studies.tracking import score_name
from lengthwise.trackers import TRACKERS, MLflow, TensorBoard, Trackio, WandB, parse_trackers, require_usable
from lengthwise.values import install_extra
from tests.cli.conftest import TINY

Call = Callable[..., Any]


def test_names_and_settings() -> None:
    assert parse_trackers("tensorboard") == (TensorBoard(),)
    assert parse_trackers("wandb:project=fire,mode=offline,entity=us, Trackio:folder=/a:b") == (
        WandB(project="fire", mode="offline", entity="us"),
        Trackio(folder="/a:b"),
    )
    assert parse_trackers("mlflow:uri=https://host:5000,tensorboard") == (
        MLflow(uri="https://host:5000"),
        TensorBoard(),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "tensorbord",
            "--trackers must be the names of trackers, and there is no 'tensorbord'; did you mean 'tensorboard'?",
        ),
        ("", "--trackers is empty; name one or more of tensorboard, wandb, mlflow, trackio"),
        (
            "wandb:projct=x",
            "wandb has no setting 'projct'; did you mean 'project'?; its settings are: folder, project,",
        ),
        ("wandb:mode=ofline", "wandb: mode must be 'online' or 'offline' or None, got 'ofline'"),
        ("wandb,wandb", "--trackers names wandb twice; name it once"),
        ("wandb:project=a,project=b", "--trackers sets wandb:project twice; omit one of them"),
        ("wandb:project", "--trackers must be names with settings as NAME=VALUE, as in: --trackers wandb:project=fire"),
        ("project=x", "--trackers must be names with settings as NAME=VALUE, as in: --trackers wandb:project=fire"),
        (
            "wandb:project= ",
            "--trackers must be names with settings as NAME=VALUE, as in: --trackers wandb:project=fire",
        ),
        ("tensorboard:folder=s3://bucket", "tensorboard: folder must be a folder on this machine"),
        ("mlflow:uri=sqlite:///x.db", "mlflow: uri must be the address of a tracking server without credentials"),
    ],
)
def test_what_is_wrong(here: Call, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    for verb in ("run", "work"):
        ran = here(verb, tmp_path / "tiny.py", "--results", tmp_path / "results", "--trackers", text)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"lengthwise: {says}") and ran.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("text", ["mlflow:uri=https://me:hunter2@host", "hunter2:https://me:hunter2@host"])
def test_no_password_is_printed(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_trackers(text.replace("hunter2:https", "https"))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("name", TRACKERS)
@pytest.mark.parametrize("spec", [None, importlib.machinery.ModuleSpec("x", None, is_package=True)])
def test_a_missing_library(here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, spec: Any) -> None:
    """A folder of the same name, such as wandb's own, is no library."""
    (tmp_path / "tiny.py").write_text(TINY)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda x, *rest: spec if x == name else find(x, *rest))
    ran = here("run", tmp_path / "tiny.py", "--results", tmp_path / "results", "--trackers", name)
    needs = f"lengthwise: tracker {name} needs the package {name}, which is not installed; {install_extra(name)}\n"
    assert (ran.code, ran.err) == (2, needs)
    assert not (tmp_path / "results").exists()


def test_results_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.machinery.ModuleSpec("x", None, origin="here")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: found)
    for name in TRACKERS:
        with pytest.raises(ConfigError, match=f"--trackers {name}:folder=PATH"):
            require_usable(parse_trackers(name), "s3://bucket/folder", True)
    require_usable(parse_trackers("tensorboard:folder=a,mlflow:uri=http://host"), "s3://bucket/folder", True)


def test_names_of_scores() -> None:
    def name(asked: dict[str, Any]) -> str:
        return score_name("accuracy", asked)

    assert name({"length": 8}) == "score/accuracy"
    assert name({"length": 8, "shift": {"depth": 0.5}}) == "score/accuracy/depth-0.5"
    assert name({"length": 8, "shift": {"path": "a/b:c"}}) == "score/accuracy/path-a-b-c"
