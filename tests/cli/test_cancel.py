"""`lengthwise cancel`, also of a run that a worker has."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import StoreError, open_store
from tests.cli.conftest import TINY

Call = Callable[..., Any]


@pytest.mark.medium
def test_finished_runs_are_left_alone(here: Call, finished: Path) -> None:
    (first, *_) = json.loads(here("list", "runs", "--results", finished, "--json").out)
    ran = here("cancel", first["key"][:8], "--results", finished)
    assert ran.code == 0 and ran.out.startswith(f"unchanged: {first['key']} (") and ran.out.endswith(") is done\n")
    assert here("cancel", "--study", "tiny", "--results", finished).out == "unchanged: 2 of 2 runs\n"


@pytest.mark.slow
def test_a_running_run_is_stopped_and_continues_after_retry(here: Call, tmp_path: Path) -> None:
    file, results = tmp_path / "tiny.py", tmp_path / "results"
    file.write_text(TINY.replace("steps=10", "steps=100_000").replace('"nope", "fire-s"', '"nope"'))
    words = [sys.executable, "-m", "lengthwise", "run", str(file), "--results", str(results), "--on", "inline"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as running:
        end = time.monotonic() + 60
        while True:
            try:
                with open_store(results, create=False) as store:
                    (run,) = store.runs("tiny")
                if run.step:
                    break
            except (StoreError, ValueError):  # not there yet
                pass
            assert time.monotonic() < end
            time.sleep(0.2)
        ran = here("list", "runs", "--results", results)
        host = (run.worker or "").partition(":")[0]
        assert f"running on {host}" in ran.out
        ran = here("cancel", "--study", "tiny", "--results", results)
        assert ran.out.startswith(f"cancelled: {run.key} (") and ran.out.endswith(f"which was running on {host}\n")
        assert running.wait(60) == 1
        assert running.stderr is not None and "seed 0 (" + run.key[:8] + "): cancelled" in running.stderr.read()
    (row,) = json.loads(here("list", "runs", "--failed", "--results", results, "--json").out)
    assert (row["error"], row["worker"]) == ("cancelled", None)
    assert list((results / "runs" / run.key).glob("checkpoint-*"))
    assert here("retry", run.key, "--results", results).code == 0
    (row,) = json.loads(here("list", "runs", "--results", results, "--json").out)
    assert row["status"] == "pending" and row["step"] > 0
