"""benchmarks/gpu_day.py on the CPU: its slices run in tiny sizes, keep what they measured, and continue."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def gpu_day(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_day")


class Slice:
    """A slice of three measurements, of which the second fails as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.measured = failures, ""

    def __call__(self, setting: Any) -> Any:
        for name in "abc":
            yield name, lambda name=name: self.measure(name)

    def measure(self, name: str) -> dict[str, Any]:
        self.measured += name
        if name == "b" and self.failures:
            self.failures -= 1
            raise RuntimeError("out of memory\nand more")
        return {"ms": 1.5}


def setting(gpu_day: Any, folder: Path, seconds: float = 60) -> Any:
    return gpu_day.Setting("cpu", True, folder, time.monotonic() + seconds)


def stored(folder: Path, name: str = "some") -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["figures"]


def test_a_failed_measurement_stops_nothing_and_is_tried_again(
    gpu_day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = Slice(failures=1)
    monkeypatch.setitem(gpu_day.SLICES, "some", some)
    gpu_day.measure(setting(gpu_day, tmp_path), "some")
    assert some.measured == "abc"
    assert stored(tmp_path)["b"]["error"] == "RuntimeError: out of memory"
    gpu_day.measure(setting(gpu_day, tmp_path), "some")
    assert some.measured == "abcb"
    assert [figure["ms"] for figure in stored(tmp_path).values()] == [1.5] * 3


def test_what_another_commit_or_gpu_measured_is_measured_again(
    gpu_day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, header = Slice(), gpu_day.header
    monkeypatch.setitem(gpu_day.SLICES, "some", some)
    gpu_day.measure(setting(gpu_day, tmp_path), "some")
    for other in ({"commit": "0123456"}, {"commit": "0123456", "gpu": "another"}):
        monkeypatch.setattr(gpu_day, "header", lambda other=other: header() | other)
        gpu_day.measure(setting(gpu_day, tmp_path), "some")
    assert some.measured == "abc" * 3
    assert {(figure["commit"], figure["gpu"]) for figure in stored(tmp_path).values()} == {("0123456", "another")}


def test_without_time_nothing_begins(
    gpu_day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = Slice()
    monkeypatch.setitem(gpu_day.SLICES, "some", some)
    gpu_day.measure(setting(gpu_day, tmp_path, seconds=0), "some")
    assert not some.measured and not (tmp_path / "some.json").exists()
    assert "no time is left" in capsys.readouterr().out


@pytest.mark.parametrize("tiny", [True, False])
def test_a_dry_run_measures_nothing(
    gpu_day: Any, tiny: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "gpu_day.py",
        "--dry-run",
        "--folder",
        str(tmp_path / "new"),
        *(["--tiny", "--device", "cpu"] if tiny else []),
    ]
    monkeypatch.setattr(sys, "argv", words)
    gpu_day.main()
    printed = capsys.readouterr().out
    assert all(f"{name}\n" in printed for name in gpu_day.SLICES)
    assert ("lengthwise check --device cuda" in printed) == (not tiny)
    assert ("dense bias of T5, 32768 tokens, 128 dims" in printed) == (not tiny)
    assert not (tmp_path / "new").exists()


def test_one_part_of_a_slice(gpu_day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Slice()
    monkeypatch.setitem(gpu_day.SLICES, "some", some)
    gpu_day.measure(setting(gpu_day, tmp_path), "some", "b")
    assert some.measured == "b"
    gpu_day.measure(setting(gpu_day, tmp_path), "some")
    assert some.measured == "bac"


def run(folder: Path, *words: str) -> str:
    command = [
        sys.executable,
        str(BENCHMARKS / "gpu_day.py"),
        "--device",
        "cpu",
        "--tiny",
        "--folder",
        str(folder),
        *words,
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.medium
def test_slices_run_in_processes_and_continue(tmp_path: Path) -> None:
    slices = [word for name in ("steps", "fox-shaw", "network-decoding", "train") for word in ("--slice", name)]
    assert "no time is left" in run(tmp_path, *slices, "--total-minutes", "0")
    assert not list(tmp_path.iterdir())
    printed = run(tmp_path, *slices) + run(tmp_path, "--slice", "agreement", "--only", "forms")
    assert "failed: " not in printed and "ended with exit code" not in printed
    assert 0 < stored(tmp_path, "agreement")["agreement of 3 forms"]["largest error"] < 4e-2
    steps, fox, train = (stored(tmp_path, name) for name in ("steps", "fox-shaw", "train"))
    assert steps["FIRE, of transformers"]["median"] > 0
    assert abs(fox["FoX, a model by `fused` and by `reference`"]["difference"]) < 0.05
    assert set(train["nats per byte after 2 steps"]["FIRE"]) == {"1x", "2x", "4x"}
    first = [figure.pop("seconds") for figure in train.values()]
    run(tmp_path, "--slice", "train")
    assert [figure["seconds"] for figure in stored(tmp_path, "train").values()] == first
    assert "4x" in run(tmp_path, "--summary")
