"""`lengthwise drop`: what it deletes, what it keeps, and what it says."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import open_results, open_store

Call = Callable[..., Any]


def test_a_run_is_dropped_with_what_lies_in_its_folder(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    rows = json.loads(here("list", "runs", "--results", results, "--json").out)
    key = rows[0]["key"]
    ran = here("drop", key[:8], "--results", results)
    assert ran.code == 2
    assert "is finished and its results would be lost; nothing was deleted; add --finished to delete it" in ran.err
    ran = here("drop", "--study", "tiny", "--results", results)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "all runs of study tiny are finished" in ran.err
    assert "nothing was deleted; add --finished to delete them" in ran.err
    assert (results / "runs" / key).is_dir()
    ran = here("drop", key[:8], "--finished", "--results", results)
    assert ran.code == 0
    assert ran.out.startswith(f"deleted {key} (")
    assert not (results / "runs" / key).exists()
    left = json.loads(here("list", "runs", "--results", results, "--json").out)
    assert [row["key"] for row in left] == [row["key"] for row in rows[1:]]
    assert here("report", "--results", results).code == 0


def test_the_unfinished_runs_of_a_study_are_dropped(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_store(results) as store:
        row = store.runs()[0]
        names = ("label", "encoding", "task", "metric", "better", "unit", "train_length", "config", "questions")
        pending = {name: getattr(row, name) for name in names} | {"key": "ffff000011112222", "seed": 5}
        store.add_study("later", evaluation={}, runs=[pending, {**pending, "key": row.key, "seed": row.seed}])
    ran = here("drop", "--study", "later", "--results", results)
    assert ran.code == 0
    dropped, kept, study = ran.out.splitlines()
    assert dropped.startswith("deleted ffff000011112222 (")
    assert kept.startswith(f"kept {row.key} (")
    assert kept.endswith(": study tiny lists it too")
    assert study == "deleted study later"
    assert [s["name"] for s in json.loads(here("list", "studies", "--results", results, "--json").out)] == ["tiny"]
    ran = here("drop", "--study", "tiny", "--finished", "--results", results)
    assert (ran.code, ran.out.count("deleted ")) == (0, 3)
    assert list((results / "runs").iterdir()) == []
    assert json.loads(here("list", "studies", "--results", results, "--json").out) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "drop needs either the keys of runs or --study NAME"),
        (["ab", "--study", "s"], "got both"),
        (["--study", "s", "--finished"], "there is no study 's'"),
        (["zz"], "no run has a key that starts with 'zz'"),
    ],
)
def test_drops_that_cannot_be(here: Call, finished: Path, words: list[str], says: str) -> None:
    ran = here("drop", *words, "--results", finished)
    assert ran.code == 2
    assert says in ran.err


def test_drop_deletes_nothing_outside_of_the_results(here: Call, finished: Path, tmp_path: Path) -> None:
    """A database by somebody else, whose keys are paths."""
    results, victim = tmp_path / "results", tmp_path / "victim"
    shutil.copytree(finished, results)
    victim.mkdir()
    (victim / "diary.txt").write_text("dear diary")
    for key in (str(victim), "../../victim", "a\x1b]0;PWN\x07\x1b[31m"):
        with sqlite3.connect(results / "results.db") as other:
            (old,) = other.execute("SELECT key FROM runs ORDER BY rowid DESC").fetchone()
            for table in ("runs", "study_runs", "asked", "answers"):
                other.execute(f"UPDATE {table} SET key = ? WHERE key = ?", (key, old))
        other.close()
        for words in (["drop", key], ["drop", key, "--finished"], ["drop", "--study", "tiny", "--finished"]):
            again = tmp_path / "again"
            shutil.copytree(results, again)
            ran = here(*words, "--results", again)
            assert ran.code in (0, 2)
            assert "\x1b" not in ran.out + ran.err
            assert (victim / "diary.txt").read_text() == "dear diary"
            shutil.rmtree(again)


@pytest.mark.parametrize("whole", [True, False])
def test_files_that_cannot_be_deleted_keep_their_run_alone(
    here: Call, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    with open_results(results) as store:
        first, second = (run.key for run in store.runs("tiny"))
    usual = shutil.rmtree

    def rmtree(path: Path) -> None:
        if path.name == first:
            raise PermissionError(13, "Permission denied", str(path))
        usual(path)

    with monkeypatch.context() as patched:
        patched.setattr("lengthwise.store.folders.shutil.rmtree", rmtree)
        words = ["--study", "tiny"] if whole else [first, second]
        ran = here("drop", *words, "--finished", "--results", results)
    assert ran.code == 2
    assert f"kept {first}: its files cannot be deleted (Permission denied" in ran.out
    assert f"deleted {second}" in ran.out
    assert ran.err.count("\n") == 1
    with open_results(results) as store:
        assert [run.key for run in store.runs("tiny")] == [first]
    assert [path.name for path in (results / "runs").iterdir()] == [first]
    assert here("drop", first, "--finished", "--results", results).code == 0, "and afterwards it goes"
