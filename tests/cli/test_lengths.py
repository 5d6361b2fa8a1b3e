"""`lengthwise lengths`: counts of files, of standard input and of stored runs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]


def test_lengths_of_a_file(here: Call, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text('{"input": "a b", "length": 12}\n{"input": "c d", "length": 3}\n{"input": "e", "length": 3}\n')
    ran = here("lengths", file)
    assert ran.code == 0
    table = [line.split() for line in ran.out.splitlines()]
    assert table[0][:4] == ["input,", "length", "examples", "share"]
    assert table[1][:3] == ["1", "1", "33.3%"]
    assert table[2][:3] == ["2", "2", "66.7%"]
    assert table[2][3] == "█" * 40
    assert ran.out.splitlines()[-1] == "3 examples, lengths 1 to 2, median 2, mean 1.7"
    found = json.loads(here("lengths", file, "--field", "length", "--json").out)
    assert found["lengths"] == {"3": 2, "12": 1}
    assert (found["field"], found["examples"], found["median"]) == ("length", 3, 3)


@pytest.mark.medium
def test_lengths_of_a_stored_run(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    key = json.loads(here("list", "runs", "--results", results, "--json").out)[0]["key"]
    ran = here("lengths", key[:8], "--results", results)
    assert ran.code == 0
    assert ran.out.startswith("words per question  train")
    assert "drawn at random; equally many test examples of each length, if there are enough" in ran.out
    assert here("lengths", key[:8], "--field", "length", "--results", results).out.startswith("symbols  train")
    found = json.loads(here("lengths", key, "--results", results, "--json").out)
    assert (found["run"], found["drawn"], found["train"]["examples"]) == (key, 1000, 1000)
    assert set(found["test"]["lengths"]) == {"4", "8"}
    answers = json.loads(here("show", key, "--results", results, "--json").out)["answers"]
    fields = [answer["question"]["field"] for answer in answers if answer["measurement"] == "lengths"]
    assert fields == ["input", "length"]  # each stored once
    assert (
        f"`lengthwise lengths {key[:8]} --results {results}` shows them" in here("show", key, "--results", results).out
    )
    here("report", "--results", results)
    assert "Lengths of examples" in (results / "report.html").read_text()


def test_lengths_of_neither_a_file_nor_a_run(here: Call, finished: Path) -> None:
    ran = here("lengths", "abc123", "--results", finished)
    assert ran.code == 2
    assert "there is no file abc123, and if it is a run's key: no run has a key that starts with" in ran.err


def test_one_example_is_no_range(here: Call, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    file.write_text('{"input": "a b c"}\n')
    assert here("lengths", file).out.splitlines()[-1] == "1 example of length 3"
    file.write_text('{"input": "a b c"}\n' * 2)
    assert here("lengths", file).out.splitlines()[-1] == "2 examples, all of length 3"


def test_a_field_that_a_terminal_would_obey(here: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text('{"a\\u001b[31m\\u202eb": "x", "\\u009b2J": 1}\n')
    ran = here("lengths", file)
    assert ran.code == 2
    assert ran.err.isprintable() or ran.err[:-1].isprintable()
    assert r"it has: a\x1b[31m\u202eb, \x9b2J" in ran.err
    field = "a\x1b[31m\u202eb"
    assert r"a\x1b[31m\u202eb, length" in here("lengths", file, "--field", field).out
    assert here("lengths", file, "--field", field, "--json").out[:-1].isprintable()


def test_lengths_of_what_comes_through_a_pipe() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "lengthwise", "lengths", "-", "--field", "target", "--json"],
        input='{"target": "x y z"}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout)["lengths"] == {"3": 1}


def test_lengths_of_what_is_no_data_set(here: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"input": "a"}\nno\n')
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for words, says in (
        ([bad], f"{bad}: line 2 is no JSON: Expecting value: 'no'"),
        ([bad, "--field", "inptu"], "line 1 has no field 'inptu'; did you mean 'input'?"),
        ([empty], f"{empty}: it must contain at least one example"),
        ([tmp_path / "nowhere"], "there is no such file"),
        (["--feild", "input", bad], "There is no option --feild"),
    ):
        ran = here("lengths", *words)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1
        assert says in ran.err
