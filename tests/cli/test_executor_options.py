"""The options of executors, which `run`, `compare` and `work` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lengthwise.cli.derived_options import executor_of, executor_options

from lengthwise.config import EXECUTOR_CONFIGS, Inline, Local, Ray, Slurm
from tests.cli.conftest import TINY

Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "slrm"], "--on must be the name of an executor, and there is no 'slrm'; did you mean 'slurm'?"),
        (["--on", "ray:"], "--on ray: has an empty address; write --on ray:HOST:PORT, or --on ray"),
        (["--on", "local:x"], "--on local must have no address, got 'local:x'; write --on local"),
        (["--slots", "3"], "--slots applies only to --on slurm, not to --on local; omit it"),
        (["--on", "inline", "--workers", "2"], "--workers applies only to --on local, not to --on inline; omit it"),
        (["--on", "slurm", "--cpus", "2"], "--cpus applies only to --on ray, not to --on slurm; omit it"),
        (["--on", "local", "--gpus", "1"], "--gpus applies only to --on slurm or ray, not to --on local; omit it"),
        (["--on", "slurm", "--time", "4"], "time must be a whole number with m, h or d, such as 4h, got '4'"),
        (["--workers", "0"], "workers must be from 1 to 10,000, got 0"),
        (["--dry-run"], "--dry-run prints the script for Slurm; add --on slurm, or omit --dry-run"),
    ],
)
def test_options_that_do_not_fit(here: Call, tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    ran = here("run", tmp_path / "tiny.py", "--results", tmp_path / "results", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"lengthwise: {says}") and ran.err.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_worker_works_here(here: Call, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    ran = here("work", tmp_path / "tiny.py", "--results", tmp_path / "results", "--on", "slurm")
    assert ran.code == 2 and "there is no 'slurm'; available: local, inline" in ran.err
    assert "--slots" not in here("work", "--help").out
    assert "--slots" in here("run", "--help").out


def test_no_default_is_refused_where_pydantic_is_imported(here: Call, tmp_path: Path) -> None:
    """cyclopts then checks values by pydantic, also those of defaults. A study or a plug-in may import it."""
    pytest.importorskip("pydantic", reason="pydantic is not installed")
    (tmp_path / "tiny.py").write_text(TINY)
    ran = here("run", tmp_path / "tiny.py", "--results", tmp_path / "results", "--on", "slurm", "--dry-run")
    assert (ran.code, ran.err) == (0, "") and "#SBATCH" in ran.out


def test_settings_of_executors() -> None:
    names = tuple(EXECUTOR_CONFIGS)
    assert executor_of("local", names, {"workers": 3, "slots": None, "sbatch": ()}) == Local(workers=3)
    assert executor_of("inline", names, {}) == Inline()
    assert executor_of("ray:10.0.0.5:6379", names, {"gpus": 0.5}) == Ray(address="10.0.0.5:6379", gpus=0.5)
    assert executor_of("slurm", names, {"sbatch": ("qos=low",), "slots": 2}) == Slurm(slots=2, sbatch=("qos=low",))
    assert [option.name for option in executor_options(names)] == [
        "on", "workers", "slots", "partition", "time", "gpus", "memory", "sbatch", "cpus"
    ]  # fmt: skip
