"""What a report and a list say after a study was dropped, stopped or damaged."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli import main

Call = Callable[..., Any]
COMPARE = [
    "compare",
    "nope",
    "--task",
    "copy:symbols=4",
    "--train-length",
    3,
    "--lengths",
    "3,6",
    "--steps",
    2,
    "--d-model",
    8,
]
COMPARE += ["--num-layers", 1, "--num-heads", 1, "--examples", 8, "--batch-size", 4, "--on", "inline"]


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the comparison, made once."""
    results = tmp_path_factory.mktemp("once") / "r"
    assert main([*map(str, COMPARE), "--results", str(results)]) == 0
    return results


@pytest.fixture
def compared(once: Path, tmp_path: Path) -> Path:
    """A copy of the results of the comparison."""
    return shutil.copytree(once, tmp_path / "r")


def test_runs_that_no_study_lists_are_results_all_the_same(here: Call, tmp_path: Path) -> None:
    results = tmp_path / "r"
    assert here(*COMPARE, "--name", "n", "--results", results).code == 0
    assert here(*COMPARE[:3], "reverse", *COMPARE[4:], "--name", "n", "--results", results).code == 0
    assert here("drop", "--study", "n", "--finished", "--results", results).code == 0
    ran = here("report", "--results", results)
    assert ran.code == 0
    assert "No results yet" not in ran.out
    assert (
        f"1 run belongs to no study and is not shown; `lengthwise list runs --results {results}` lists every run"
        in " ".join(ran.out.split())
    )


needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


def test_the_glob_of_a_file_is_refused(here: Call, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("some text " * 1000)
    ran = here("compare", "nope", "--text", text, "--glob", "*.md", "--train-length", 8, "--results", tmp_path / "r")
    assert ran.code == 2
    assert f"--glob selects files of a folder, but {text} is not a folder; leave --glob out" in ran.err
    ran = here("compare", "nope", "--task", "copy", "--glob", "*.md", "--train-length", 8, "--results", tmp_path / "r")
    assert ran.code == 2
    assert "--task has no files; leave --glob out" in ran.err


def test_an_unknown_command_names_no_partial_list(here: Call) -> None:
    ran = here("lst")
    assert ran.code == 2
    assert "Available commands" not in ran.err
    assert 'Did you mean "list"?' in ran.err or "list" in ran.err


def test_a_report_overwrites_nothing_but_an_older_report(here: Call, compared: Path) -> None:
    results, page = compared, compared.with_name("page.html")
    database = results / "results.db"
    before = database.read_bytes()
    (weights,) = results.glob("runs/*/weights.safetensors")
    for file in (database, weights):
        ran = here("report", "--results", results, "--output", file)
        assert ran.code == 2
        assert not ran.out
        assert f"--output {file} exists and is not an older HTML page, so it is not overwritten" in ran.err
    assert database.read_bytes() == before
    assert [here("report", "--results", results, "--output", page).code for _ in range(2)] == [0, 0]


@needs_pipes
@pytest.mark.parametrize(
    ("words", "option"),
    [(["report"], "--output"), (["reach", ".", "--tasks", "functions"], "--out")],
    ids=["report", "reach"],
)
def test_a_pipe_is_no_output(here: Call, compared: Path, words: list[str], option: str) -> None:
    pipe = compared.with_name("pipe.jsonl")
    os.mkfifo(pipe)
    place = ["--results", compared] if words[0] == "report" else []
    ran = here(*words, *place, option, pipe)
    assert ran.code == 2
    assert f"{option} {pipe} must be a regular file, but it is a pipe or a device; name another file" in ran.err
    assert pipe.is_fifo()


@pytest.mark.parametrize("threads", [1025, 10**8])
def test_a_huge_number_of_threads(here: Call, tmp_path: Path, threads: int) -> None:
    ran = here(*COMPARE, "--threads", threads, "--results", tmp_path / "r")
    assert ran.code == 2
    assert f"threads must be at most 1,024, got {threads:,}" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "rope,alibi"], "inspect shows one encoding, got 'rope,alibi'; run the command once for each"),
        (["compare", "rope,", "alibi", "--task", "copy", "--train-length", 4],
         "separate encodings with spaces, as in: rope"),
        (["sample", "copy,symbols=10"], "write settings after a colon: copy:symbols=10"),
        (["inspect", "rope:base=1e4 layout=half"], "separate settings with commas, without spaces"),
    ],
)  # fmt: skip
def test_misplaced_commas(here: Call, words: list[object], message: str) -> None:
    ran = here(*words)
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.medium
def test_a_shared_encoding_is_inspected_like_the_encoding(here: Call) -> None:
    assert here("inspect", "fire-s", "--json").out == here("inspect", "fire", "--json").out != ""
