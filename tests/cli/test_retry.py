"""`lengthwise retry`, `--retries`, and `lengthwise list runs --failed`."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import ConfigError
from lengthwise.store import open_store
from lengthwise.studies import worker
from lengthwise.training import train
from tests.cli.conftest import TINY

Call = Callable[..., Any]


def failed(results: Path) -> list[str]:
    """Let the first run of a finished study have failed. Return all keys."""
    with open_store(results) as store:
        keys = [run.key for run in store.runs("tiny")]
        assert store.reopen(keys[:1]) == 1
        assert store.claim("tiny", "elsewhere:1:w") is not None
        assert store.fail(keys[0], "elsewhere:1:w", "the disk is full")
    return keys


def test_failed_runs_are_listed_and_tried_again(here: Call, finished: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    assert here("list", "runs", "--failed", "--results", results).out.startswith("There are no failed runs in ")
    first, second = failed(results)
    ran = here("list", "runs", "--failed", "--results", results)
    assert first[:8] in ran.out and "failed: the disk is full" in ran.out and second[:8] not in ran.out
    assert [row["key"] for row in json.loads(here("list", "runs", "--failed", "--results", results, "--json").out)] == [
        first
    ]
    ran = here("retry", first[:6], second[:6], "--results", results)
    assert ran.code == 0
    assert ran.out.splitlines()[0].startswith(f"to be tried again: {first} (")
    assert ran.out.splitlines()[1].startswith(f"unchanged: {second} (") and ran.out.endswith(") is done\n")
    assert here("retry", "--study", "tiny", "--results", results).out == "unchanged: 2 of 2 runs\n"
    assert json.loads(here("list", "runs", "--failed", "--results", results, "--json").out) == []


@pytest.mark.parametrize("command", ["retry", "cancel"])
def test_what_cannot_be_chosen(here: Call, finished: Path, command: str) -> None:
    place = ("--results", finished)
    ran = here(command, *place)
    assert ran.code == 2 and f"{command} needs either the keys of runs or --study NAME, got neither" in ran.err
    ran = here(command, "abcd", "--study", "tiny", *place)
    assert ran.code == 2 and "got both" in ran.err
    ran = here(command, "--study", "tyny", *place)
    assert ran.code == 2 and "there is no study 'tyny'; did you mean 'tiny'?" in ran.err
    ran = here(command, "xyz", *place)
    assert ran.code == 2 and "no run has a key that starts with 'xyz'" in ran.err
    ran = here("list", "studies", "--failed", *place)
    assert ran.code == 2 and "--failed applies only to list runs" in ran.err


@pytest.mark.parametrize(("failures", "retries", "code"), [(2, 2, 0), (2, 1, 1), (1, 0, 1)])
def test_retries(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, retries: int, code: int
) -> None:
    left = [failures]

    def train_or_fail(*arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise RuntimeError("the disk is full")
        return train(*arguments, **options)

    monkeypatch.setattr(worker, "train", train_or_fail)
    study = tmp_path / "study.py"
    study.write_text(TINY.replace('"nope", "fire-s"', '"nope"'))
    ran = here("work", study, "--results", tmp_path / "results", "--on", "inline", "--retries", retries)
    assert ran.code == code
    for n in range(min(failures, retries)):
        assert "failed: " in ran.err and "the disk is full" in ran.err
        assert f"it is tried again (retry {n + 1} of {retries})" in ran.err
    assert ("run failed; use `lengthwise retry` to retry it" in ran.err) == (code == 1)
    assert left == [0]


def test_settings_that_cannot_be_are_not_tried_again(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise ConfigError("the batch is too large; make it smaller")

    monkeypatch.setattr(worker, "train", fail)
    (tmp_path / "study.py").write_text(TINY.replace('"nope", "fire-s"', '"nope"'))
    ran = here("work", tmp_path / "study.py", "--results", tmp_path / "results", "--on", "inline", "--retries", 3)
    assert (ran.code, asked) == (1, [1])
