"""What leaves a study says so, what differs stays beside it, and rows that cannot be read are made anew."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


SMALL = ["--d-model", "16", "--num-layers", "1", "--num-heads", "2", "--batch-size", "2", "--examples", "8"]


BASE = ["rope", "alibi", "--task", "copy", "--train-length", "4"]


def test_a_text_that_changed_is_named(here: Call, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("All happy families are alike.\n" * 400)
    words = ["compare", "nope", "--text", text, "--train-length", 16, "--lengths", 16, *SMALL, "--steps", 2]
    words += ["--results", tmp_path / "results", "--on", "inline", "--name", "mine"]
    assert here(*words).code == 0
    text.write_text("All happy families are different.\n" * 400)
    ran = here(*words)
    assert f"{text} changed since 1 run was trained; it will be trained again" in ran.err
    assert "does not list" not in ran.err


def test_runs_of_no_study_are_counted_apart(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = [
        *BASE[2:],
        *SMALL,
        "--lengths",
        "4,8",
        "--steps",
        2,
        "--results",
        results,
        "--on",
        "inline",
        "--name",
        "one",
    ]
    for encoding in ("nope", "rope"):
        assert here("compare", encoding, *words).code == 0
    found = json.loads(here("report", "--results", results, "--json").out)
    assert (len(found["runs"]), found["unlisted"]) == (1, 1)
    assert "1 more run belongs to no study" in here("report", "--results", results).out
    assert "1 more run belongs to no study" in (results / "report.html").read_text()
    listed = here("list", "runs", "--results", results).out
    assert listed.count("in no study") == 1


def test_the_study_of_a_file_has_a_command(here: Call, finished: Path) -> None:
    found = json.loads(here("report", "--results", finished, "--json").out)
    (study,) = found["studies"]
    assert study["command"].startswith("lengthwise run ")
    assert study["command"].endswith("tiny.py")
