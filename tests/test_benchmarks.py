"""Figures that documents cite say where they come from; what is written, and by what."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main
from lengthwise.store import open_store
from lengthwise.studies import load

ROOT = Path(__file__).parents[1]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
HEADER = {"commit", "uncommitted_changes", "command", "date", "processor", "cores", "platform", "python", "torch"}
HEADER |= {"lengthwise", "gpu"}
STUDY = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="tiny: rows",
    runs=grid(["nope", "rope"], ["copy", "reverse"], 2, model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
              training=TrainingConfig(train_length=4, steps=2, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 6), examples=8),
)
"""


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def is_commit(text: Any) -> bool:
    return isinstance(text, str) and 7 <= len(text) <= 40 and set(text) <= set("0123456789abcdef")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_figures_say_where_they_come_from(path: Path) -> None:
    kept = json.loads(path.read_text(encoding="utf-8"))
    made = kept["made"]
    assert kept["figures"]
    assert set(made) - {"recorded_in"} == HEADER
    assert made["command"].partition(" ")[0] in ("python", "lengthwise")
    assert made["torch"] and made["python"] and made["date"]
    if made["commit"] is None:  # measured before commits were kept: the one that stored them stands for it
        assert is_commit(made["recorded_in"])
        assert made["uncommitted_changes"] is None
    else:
        assert is_commit(made["commit"])
        assert isinstance(made["uncommitted_changes"], bool)
        assert "recorded_in" not in made


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_results_are_written_by_one_function(path: Path) -> None:
    """What writes a file of results by itself leaves its header out."""
    calls = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert path.stem == "record" or not calls & {"write_text", "dump"}


def test_a_header_has_commit_and_changes(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = benchmark("record")
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py", "--rounds", "3"])

    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words], check=True)

    source = tmp_path / "src" / "lengthwise" / "__init__.py"
    figures = tmp_path / "benchmarks" / "results" / "old.json"
    for file in (source, figures):
        file.parent.mkdir(parents=True)
        file.write_text("")
    monkeypatch.setattr(record.lengthwise, "__file__", str(source))
    record.save("none", {"a": 1})  # no git at all
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "First")
    record.save("clean", {"a": 1})
    figures.write_text("other figures are no other code")
    record.save("figures", {"a": 1})
    source.write_text("changed = True")
    record.save("changed", {"a": 1})
    head = subprocess.run(["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    said = {
        name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("none", "clean", "figures", "changed")
    }
    assert all(set(kept["made"]) == HEADER and kept["figures"] == {"a": 1} for kept in said.values())
    assert said["clean"]["made"]["command"] == "python benchmarks/some.py --rounds 3"
    assert [kept["made"]["uncommitted_changes"] for kept in said.values()] == [None, False, False, True]
    assert said["none"]["made"]["commit"] is None
    assert all(head.stdout.startswith(said[name]["made"]["commit"]) for name in ("clean", "figures", "changed"))


def test_a_command_is_kept_without_folders_of_this_machine(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/a/b/some.py", "nope: small", "--results", "/tmp/nope-small", "--old=~/old", "--lengths", "1/2", "-x=a=b"]
    monkeypatch.setattr(sys, "argv", words)
    kept = "python benchmarks/some.py 'nope: small' --results nope-small --old=old --lengths 1/2 -x=a=b"
    assert benchmark("record").command() == kept


def test_the_rows_of_a_study(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every score of every run, as stored; a study that is not finished is refused."""
    study_rows, results = benchmark("study_rows"), tmp_path / "results"
    monkeypatch.setattr(benchmark("record"), "RESULTS", tmp_path)
    (tmp_path / "study.py").write_text(STUDY)
    assert main(["run", str(tmp_path / "study.py"), "--results", str(results), "--on", "inline"]) == 0
    capsys.readouterr()
    study_rows.main(["tiny: rows", "--results", str(results), "--name", "rows"])
    kept = json.loads((tmp_path / "rows.json").read_text())
    found = kept["figures"]
    assert set(kept["made"]) == HEADER
    assert len(found["runs"]) == len({run["key"] for run in found["runs"]}) == 8
    assert all(run["versions"]["torch"] and run["device"].startswith("cpu") for run in found["runs"])
    assert len(found["scores"]) == 16
    assert {score["length"] for score in found["scores"]} == {4, 6}
    for mean in found["means"]:
        seeds = [
            score["mean"]
            for score in found["scores"]
            if (score["task"], score["label"], score["length"]) == (mean["task"], mean["label"], mean["length"])
        ]
        assert len(seeds) == mean["seeds"] == 2
        assert mean["mean"] == pytest.approx(sum(seeds) / 2)
        assert mean["low"] <= mean["mean"] <= mean["high"]
    assert len(found["means"]) == 8
    assert {rank["label"] for rank in found["ranks"]} == {"NoPE", "RoPE"}
    assert all(run["steps"] > 0 and run["learning_rate"] > 0 for run in found["runs"])
    assert {panel["title"] for panel in found["panels"]} == {mean["task"] for mean in found["means"]}
    assert {key for panel in found["panels"] for key in panel["keys"]} == {run["key"] for run in found["runs"]}
    for panel in found["panels"]:
        assert panel["classes"] == {"NoPE": 1, "RoPE": 1, panel["task"]: 1}
        assert panel["settings"]["training.train_length"] == panel["train_length"] == 4
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    read = importlib.import_module("stored_rows").tasks_of(found)  # as generated pages read them
    means = {(t.title, s.label, p.length): p.mean for t in read for s in t.series for p in s.points}
    assert means == {(mean["task"], mean["label"], mean["length"]): mean["mean"] for mean in found["means"]}

    (tmp_path / "study.py").write_text(STUDY.replace("tiny: rows", "more").replace('"reverse"], 2', '"reverse"], 3'))
    study = load(tmp_path / "study.py")
    with open_store(results) as store:
        store.add_study(runs=study.rows(), **study.metadata())
    for name, says in (
        ("other", "there is no study 'other' in these results; there are: "),
        ("more", "4 of 12 runs of 'more' are not done, such as "),
    ):
        with pytest.raises(SystemExit) as ended:
            study_rows.main([name, "--results", str(results), "--name", "never"])
        assert ended.value.code == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "never.json").exists()
