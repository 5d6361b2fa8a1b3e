"""Commands whose results folder is at an address."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TINY

Call = Callable[..., Any]
COMMANDS = [
    ["run", "study.py"],
    ["work", "study.py"],
    ["run", "study.py", "--on", "slurm", "--dry-run"],
    ["compare", "nope", "--task", "copy", "--train-length", "4"],
    ["report"],
    ["list", "runs"],
    ["show", "3f9a"],
    ["drop", "3f9a"],
    ["probe", "recency", "3f9a"],
    ["lengths", "3f9a"],
    ["retry", "3f9a"],
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "study.py").write_text(TINY)
    return tmp_path


@pytest.mark.medium
def test_every_command(here: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = ("--results", f"file://{place}/bucket", "--store", f"sqlite:///{place}/results.db")
    ran = here("run", "study.py", "--on", "inline", *on)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Report: report.html"), ran.err
    assert f"results in file://{place}/bucket" in ran.err
    assert (place / "report.html").read_text().startswith("<!doctype html")
    (place / "report.html").unlink()
    monkeypatch.setenv("LENGTHWISE_CACHE", str(place / "other"))
    runs = sorted(path.name for path in (place / "bucket" / "runs").iterdir())
    for words in (["report"], ["report", "--output", "x.html"], ["list", "runs"], ["show", runs[0]],
                  ["lengths", runs[0]], ["probe", "attended-distance", runs[0], "--lengths", "4"],
                  ["work", "study.py"]):  # fmt: skip
        ran = here(*words, *on)
        assert ran.code == 0, ran.err
    assert (place / "report.html").is_file() and (place / "x.html").is_file()
    ran = here("show", "ffff", *on)
    assert f"`lengthwise list runs --store ADDRESS --results file://{place}/bucket`" in ran.err
    ran = here("drop", runs[0], "--finished", *on)
    assert ran.code == 0 and [path.name for path in (place / "bucket" / "runs").iterdir()] == runs[1:]
    (place / "report.html").write_text("my notes")
    for words in (["report"], ["run", "study.py"]):
        ran = here(*words, *on)
        assert ran.code == 2 and "The report report.html exists and is not an older HTML page" in ran.err
    assert (place / "report.html").read_text() == "my notes"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("address", "store", "message"),
    [
        ("s3://bucket/x", False, "must be a folder on this machine if it has the database too"),
        ("s3://key:hunter2@bucket/x", True, "without credentials"),
        ("s3://key:hunter2@bucket/x", False, "without credentials"),
    ],
)
def test_what_is_refused(here: Call, place: Path, command: list[str], address: str, store: bool, message: str) -> None:
    ran = here(*command, "--results", address, *(["--store", f"sqlite:///{place}/x.db"] if store else []))
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert message in ran.err, ran.err
    assert "hunter2" not in ran.err + ran.out
    assert [path.name for path in place.iterdir()] == ["study.py"]


def test_an_unknown_protocol(here: Call, place: Path) -> None:
    ran = here("run", "study.py", "--results", "s4://bucket/x", "--store", f"sqlite:///{place}/x.db")
    assert ran.code == 2 and ran.err.count("\n") == 1 and "Protocol not known: s4" in ran.err
    assert not (place / "x.db").exists()
