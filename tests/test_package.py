"""What is in the package that is built, used from another folder."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.studies.shipped import shipped_studies

pytest.importorskip("hatchling", reason="hatchling, which builds the package, is not installed")
pytestmark = pytest.mark.medium
ROOT = Path(__file__).parent.parent


def build(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def lengthwise(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Return a function that runs the command line of an unpacked wheel in an empty folder."""
    installed, folder = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"))) as wheel:
        wheel.extractall(installed)

    def run(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        command = [sys.executable, "-m", "lengthwise", *words]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_the_wheel_has_all_studies(lengthwise: Callable[..., str]) -> None:
    listed = json.loads(lengthwise("list", "studies", "--available", "--json"))
    assert [row["name"] for row in listed] == list(shipped_studies())
    assert not any(Path(row["path"]).is_relative_to(ROOT) for row in listed)


def test_a_study_of_the_wheel_runs_and_so_does_its_copy(lengthwise: Callable[..., str]) -> None:
    """They import a neighbour. `--dry-run` prints a script for Slurm, and trains nothing."""
    slurm = ("--on", "slurm", "--partition", "any", "--dry-run")
    assert "--job-name=lengthwise-nope-small" in lengthwise("run", "nope/small", *slurm)
    lengthwise("copy-study", "nope/small", "my.py")
    assert "--job-name=lengthwise-nope-small" in lengthwise("run", "my.py", *slurm)


def test_the_source_distribution_builds_the_package_but_has_no_measurements(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {"hatch_build.py", "studies/nope/small.py", "src/lengthwise/native/building.py", "SECURITY.md"} <= names
    assert not [name for name in names if name.startswith("benchmarks/results") or "__pycache__" in name]


def test_an_editable_installation_has_no_files_of_its_own(tmp_path: Path) -> None:
    """They would not follow changes, and Python would import their folder once it is uninstalled."""
    with zipfile.ZipFile(build("wheel:editable", tmp_path)) as wheel:
        assert [name for name in wheel.namelist() if ".dist-info/" not in name] == ["_lengthwise.pth"]
