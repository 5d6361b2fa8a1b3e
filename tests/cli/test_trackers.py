"""The option --trackers, missing libraries, and the names of runs and scores."""

import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.trackers import TRACKERS, parse_trackers, require_usable
from lengthwise.trackers.base import flat, path_part, score_name
from lengthwise.trackers.mlflow import MLflow
from lengthwise.trackers.tensorboard import TensorBoard
from lengthwise.trackers.trackio import Trackio
from lengthwise.trackers.wandb import WandB
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
            "wandb has no setting 'projct'; did you mean 'project'?; its settings are: project, entity,",
        ),
        ("wandb:mode=ofline", "wandb: mode must be 'online' or 'offline' or None, got 'ofline'"),
        ("wandb,wandb", "--trackers names wandb twice; name it once"),
        ("wandb:project=a,project=b", "--trackers sets wandb:project twice; omit one of them"),
        ("wandb:project", "--trackers must be names with settings as NAME=VALUE, as in: --trackers wandb:project=fire"),
        ("project=x", "--trackers must be names with settings as NAME=VALUE, as in: --trackers wandb:project=fire"),
        ("wandb:project= ", "wandb: project must be a printable text, got ''"),
        ("tensorboard:folder=s3://bucket", "tensorboard: folder must be a folder on this machine"),
        ("mlflow:uri=sqlite:///x.db", "mlflow: uri must be the address of a tracking server without credentials"),
        ("mlflow:uri=http://h,folder=x", "mlflow: a run is stored either at an address or in a folder"),
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


def test_names_of_folders_and_scores() -> None:
    assert path_part("tiny") == "tiny"
    odd = ["Tiny", "tIny", "a/b", "a b", "..", ".", "", "/etc", "x" * 100, "x" * 101, "名前"]
    parts = [path_part(name) for name in odd]
    assert len(set(parts)) == len(odd)
    assert all(part and "/" not in part and part.strip(".") and len(part) < 80 for part in parts)
    assert score_name("accuracy", {}) == "score/accuracy"
    assert score_name("accuracy", {"path": "a/b:c"}).startswith("score/accuracy/path-a-b-c-")
    assert score_name("accuracy", {"path": "a/b"}) != score_name("accuracy", {"path": "a-b"})
    assert flat({"a": {"b": 1, "c": [1, 2]}, "d": None}) == {"a.b": 1, "a.c": "[1, 2]", "d": None}
