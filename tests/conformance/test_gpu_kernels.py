"""`lengthwise check --device cuda`. Without a GPU, Triton interprets the kernels (interpreted_gpu_kernels.py)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.attention.fused import gpu
from lengthwise.conformance import gpu_table
from lengthwise.conformance.gpu_kernels import BIASES, DIMS, DTYPES, FORMS, Comparison, Form, compare
from lengthwise.native import tested_gpus
from lengthwise.native.tested_gpus import Combination
from lengthwise.values import ConfigError

needs_triton = pytest.mark.skipif(gpu.unsupported_reason() is not None, reason=str(gpu.unsupported_reason()))
KNOWN = Combination("9.0", "3.6", "abc")


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Combination]]:
    """A GPU that is not there. Returns the combinations that are recorded."""
    monkeypatch.setenv("LENGTHWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(gpu, "unsupported_reason", lambda: None)
    monkeypatch.setattr(tested_gpus, "combination_of", lambda device: KNOWN)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA Imagined 1")
    return tested_gpus._recorded


def kernels(failures: dict[Form, str]) -> Callable[..., list[Comparison]]:
    """Results in place of those of the worker processes."""

    def run(function: Any, forms: tuple[Form, ...], on_result: Callable[..., None]) -> list[Comparison]:
        comparisons = [Comparison(2e-6, failures.get(form)) for form in forms]
        for form, comparison in zip(forms, comparisons, strict=True):
            on_result(form, comparison)
        return comparisons

    return run


def test_kernels_that_pass_everything_are_recorded(
    record: Callable[[], list[Combination]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_table, "run_in_processes", kernels({}))
    assert gpu_table.main("cuda") == 0
    assert record() == [KNOWN]
    out = capsys.readouterr().out
    assert out.count("✓") == len(FORMS) and "✗" not in out
    assert "All passed on NVIDIA Imagined 1 (compute capability 9.0, Triton 3.6)." in out


@pytest.mark.parametrize("form", [FORMS[0], FORMS[-1]], ids=str)
def test_one_failure_is_named_and_nothing_is_recorded(
    form: Form,
    record: Callable[[], list[Combination]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tested_gpus.record(KNOWN, passed=True)  # by another driver
    monkeypatch.setattr(gpu_table, "run_in_processes", kernels({form: "decoding: [b]output[/b] is off by 1.0e-01"}))
    assert gpu_table.main("cuda") == 1
    assert record() == []
    out = capsys.readouterr().out
    assert out.count("✗") == 1 and out.count("✓") == len(FORMS) - 1
    assert f"{form}: decoding: [b]output[/b] is off by 1.0e-01" in out
    assert "The kernels failed on NVIDIA Imagined 1 (compute capability 9.0, Triton 3.6)." in out


def test_json(
    record: Callable[[], list[Combination]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_table, "run_in_processes", kernels({FORMS[1]: "wrong"}))
    assert gpu_table.main("cuda", json=True) == 1
    data = json.loads(capsys.readouterr().out)
    assert {**data, "comparisons": [], "torch": ""} == {
        "gpu": "NVIDIA Imagined 1", **KNOWN._asdict(), "torch": "", "comparisons": [], "ok": False
    }  # fmt: skip
    assert [row["failure"] for row in data["comparisons"]] == [None, "wrong", *[None] * (len(FORMS) - 2)]
    expected = {"biases": [], "head_dim": 64, "dtype": "float32", "error": 2e-6, "failure": "wrong"}
    assert data["comparisons"][1] == expected


def crash(device: torch.device, form: Form) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.medium
def test_a_kernel_that_crashes_is_one_clear_line(
    record: Callable[[], list[Combination]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In real worker processes."""
    monkeypatch.setattr(gpu_table, "FORMS", FORMS[:2])
    monkeypatch.setattr(gpu_table, "_compare", crash)
    with pytest.raises(ConfigError, match="ended without a result, so nothing was recorded"):
        gpu_table.main("cuda")
    assert record() == []


@pytest.mark.medium
def test_worker_processes_compare() -> None:
    """On a CPU, whose kernel has its own tests."""
    forms = Form(("table",), 8, "float32"), Form(("vectors",), 8, "bfloat16")
    seen: list[Form] = []
    comparisons = gpu_table.compare(torch.device("cpu"), lambda form, comparison: seen.append(form), forms)
    assert [comparison.failure for comparison in comparisons.values()] == [None, None]
    assert 0 < comparisons[forms[0]].error < 1e-5 < comparisons[forms[1]].error
    assert seen == list(forms)


def test_every_form_is_compared() -> None:
    assert len(set(FORMS)) == len(BIASES) * len(DIMS) * len(DTYPES)
    assert {getattr(torch, dtype) for dtype in DTYPES} == set(gpu.DTYPES)
    assert max(DIMS) == gpu.MAX_HEAD_DIM


@needs_triton
@pytest.mark.parametrize("part", [pytest.param("not slow", id="brief"), "slow"])
@pytest.mark.slow
def test_in_the_interpreter(part: str) -> None:
    """A process of its own: Triton decides when it is imported whether it interprets."""
    file = Path(__file__).with_name("interpreted_gpu_kernels.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", part, str(file)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    env |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=file.parents[2], check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.gpu
@needs_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biases", BIASES, ids=str)
def test_on_a_gpu(biases: tuple[str, ...], dtype: str) -> None:
    assert compare(Form(biases, 64, dtype), "cuda").failure is None
