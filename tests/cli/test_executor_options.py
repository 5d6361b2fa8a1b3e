"""The options of executors, which `run`, `compare` and `work` share."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from lengthwise.cli.options import Executors, LocalExecutors
from lengthwise.config import EXECUTOR_CONFIGS, Inline, Local, Ray, Slurm
from tests.cli.conftest import TINY
from tests.field_docs import field_docs

Call = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--on", "slrm"], "--on must be the name of an executor, and there is no 'slrm'; did you mean 'slurm'?"),
        (["--on", "ray:"], "--on must be ray or ray:HOST:PORT, got 'ray:'"),
        (["--on", "local:x"], "--on must be local, which has no address, got 'local:x'"),
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


def test_settings_of_executors() -> None:
    assert LocalExecutors().executor() == Local()
    assert Executors(workers=3).executor() == Local(workers=3)
    assert Executors(on="inline").executor() == Inline()
    assert Executors(on="ray:10.0.0.5:6379", gpus=0.5).executor() == Ray(address="10.0.0.5:6379", gpus=0.5)
    assert Executors(on="slurm", sbatch=("qos=low",), slots=2).executor() == Slurm(slots=2, sbatch=("qos=low",))


def test_options_are_the_settings_of_executors_with_their_help() -> None:
    configs = {name: EXECUTOR_CONFIGS[name] for name in Executors.names}
    docs = {name: field_docs(config) for name, config in configs.items()}
    settings = list(dict.fromkeys(setting for of_config in docs.values() for setting in of_config))
    assert [field.name for field in dataclasses.fields(Executors)] == ["on", *settings]
    options, hints = field_docs(Executors), get_type_hints(Executors)
    for name, config in configs.items():
        assert f" {name}: {(config.__doc__ or '').lower()}" in options["on"].lower()
        for setting, text in docs[name].items():
            owners = " or ".join(other for other in configs if setting in docs[other])
            sentences = text.partition(" [default:")[0]
            assert options[setting].startswith(f"{sentences} Only with --on {owners}."), setting
            assert (
                get_type_hints(config)[setting] in get_args(hints[setting])
                or get_type_hints(config)[setting] == hints[setting]
            )
