"""The kernels for a GPU: in Triton's interpreter on any Linux machine, compiled where there is a GPU."""

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lengthwise.attention.fused import gpu
from lengthwise.conformance import gpu_kernels

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BENCHMARKS = ROOT / "benchmarks"
INTERPRETED = HERE / "interpreted_gpu.py"
SMALL_KERNELS = HERE / "interpreted_small_kernels.py"

needs_triton = pytest.mark.skipif(gpu.unsupported_reason() is not None, reason=str(gpu.unsupported_reason()))


PARTS = ["errors and not hidden", "errors and hidden", "every_mask", "not errors and not every_mask"]


@needs_triton
@pytest.mark.parametrize(
    ("marks", "part"),
    [
        pytest.param("not slow", "errors", marks=pytest.mark.slow, id="brief errors"),
        pytest.param("not slow", "not errors", marks=pytest.mark.slow, id="brief, all else"),
        *(pytest.param("slow", part, marks=pytest.mark.slow) for part in PARTS),
    ],
)
def test_in_the_interpreter(marks, part):
    _run_interpreted(INTERPRETED, marks, part)


@needs_triton
@pytest.mark.medium
def test_small_kernels_in_the_interpreter():
    _run_interpreted(SMALL_KERNELS, "not slow", "")


@needs_triton
@pytest.mark.slow
def test_larger_networks_in_the_interpreter():
    _run_interpreted(SMALL_KERNELS, "slow", "")


def _run_interpreted(file, marks, part):
    """A process of its own: Triton decides when it is imported whether it interprets."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks, "-k", part,
               str(file), "--jaxtyping-packages=lengthwise.attention,beartype.beartype"]  # fmt: skip
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for name in [name for name in env if name.startswith("PYTEST_XDIST")]:
        del env[name]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "Triton" in str(gpu.unsupported_reason())


# ---- compiled for a GPU that need not be there


def _load(name, path, monkeypatch):
    monkeypatch.syspath_prepend(str(path))
    spec = importlib.util.spec_from_file_location(name, path / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("dim", [32, 64, 128, 256])
@pytest.mark.parametrize("form", ["none", "short table", "table", "pieces", "rows", "rows values", "prefix"])
def test_machine_code(form, dim, dtype, monkeypatch):
    """Half precision runs on tensor cores, most tiles with all numbers in registers; no kernel asks for more shared
    memory than there is."""
    gpu_code = _load("gpu_code", BENCHMARKS, monkeypatch)
    for one in gpu_code.compiled(form, dim, dtype):
        if one.name not in gpu_code.NO_PRODUCTS:
            assert not gpu_code.problems(one.report(form), one.name, form, dim, dtype)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("batch", [1, 2])
def test_small_kernels_compile(batch, monkeypatch):
    """Those without products of matrices, with everything that changes their machine code: positions, documents, one
    query.
    """
    seen = {one.name for one in _load("gpu_code", BENCHMARKS, monkeypatch).small_kernels(batch)}
    assert seen == {"classify_tiles", "sort_tiles", "find_steps", "sum_columns", "split_segments", "write_segments",
                    "segments_backward", "tables_forward", "tables_backward"}  # fmt: skip


def test_machine_code_that_will_not_do_is_named(monkeypatch):
    if reason := gpu.unsupported_reason():
        pytest.skip(reason)
    gpu_code = _load("gpu_code", BENCHMARKS, monkeypatch)
    good = {
        "shared memory": 1024,
        "pipelined loops with branches": 0,
        "loops": {"CLEAN": {"tensor cores": 8, "spills": 0}},
    }

    def said(dim=64, dtype=torch.bfloat16, form="none", **other):
        return "; ".join(gpu_code.problems({**good, **other}, "key_gradients", form, dim, dtype))

    assert said() == ""
    assert "232449 bytes of shared memory; a block on sm_90 has 232448" in said(**{"shared memory": 232449})
    spilling = {"loops": {"CLEAN": {"tensor cores": 8, "spills": 28}}}
    assert "key_gradients spills 28 registers in CLEAN; at most 27" in said(**spilling)
    assert said(dim=128, **spilling) == "" == said(form="rows", **spilling)
    assert "at most 8" in said(dim=256, **spilling)
    assert "at most 0" in said(dim=128, dtype=torch.float32, **spilling)
    assert "loads tiles ahead in a loop with branches" in said(**{"pipelined loops with branches": 1})
    untensored = {"loops": {"CLEAN": {"tensor cores": 0, "spills": 0}}}
    assert "bfloat16, 64 dims, none: key_gradients uses no tensor cores in CLEAN" in said(**untensored)
    assert said(dtype=torch.float32, **untensored) == ""
    assert "none of" in said(loops={})


@needs_triton
def test_a_form_that_is_not_known_is_refused(monkeypatch):
    gpu_code = _load("gpu_code", BENCHMARKS, monkeypatch)
    assert gpu_code.list_of([32, 64])("64,32") == [64, 32]
    with pytest.raises(argparse.ArgumentTypeError, match="there is no 'fire'; available: none, short table, "):
        gpu_code.list_of(gpu_code.FORMS)("none,fire")


def test_a_pipelined_loop_with_branches_is_found(monkeypatch):
    """Triton let such a loop overwrite tiles that its branches still read, which made gradients wrong on a GPU."""
    if reason := gpu.unsupported_reason():
        pytest.skip(reason)
    gpu_code = _load("gpu_code", BENCHMARKS, monkeypatch)
    loop = "  scf.for {{\n    {}\n    scf.for {{\n      {}\n    }}\n  }}\n"
    assert gpu_code.pipelined_branches(loop.format("async_copy", "scf.if")) == 0  # in different loops
    assert gpu_code.pipelined_branches(loop.format("x", "async_copy\n      scf.if")) == 1


def test_blocks_of_distances_are_square():
    for dtype in gpu.DTYPES:
        for wide in (16, 32, 64, 128, 256):
            for form in ("none", "table", "segments"):
                _, _, _, distances = gpu.blocks(dtype, wide, form)
                assert distances.queries == distances.keys


# ---- on a GPU

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")


@pytest.mark.gpu
@no_gpu
@needs_triton
@pytest.mark.parametrize(("dtype", "close"), gpu_kernels.TOLERANCE.items(), ids=str)
def test_on_a_gpu(dtype, close, monkeypatch):
    cases = _load("gpu_cases", HERE, monkeypatch)
    for case in cases.on_a_gpu(dtype):
        cases.require_equal(case, close)


@pytest.mark.gpu
@no_gpu
@needs_triton
@pytest.mark.parametrize("kind", ["table", "pieces", "many", "rows", "rows values", "prefix"])
def test_the_same_bits_every_time(kind, monkeypatch):
    cases = _load("gpu_cases", HERE, monkeypatch)
    for positions in (None, torch.arange(1024)[None] * 2):
        case = cases.Case(
            kind, batch=2, heads=(4, 2), queries=1000, keys=1024, dim=64, positions=positions, device="cuda"
        )
        first, *others = (case.ours() for _ in range(3))
        for other in others:
            assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
