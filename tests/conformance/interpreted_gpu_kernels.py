"""The comparison of the GPU kernels with the reference, with the kernels in Triton's interpreter on a CPU.
test_gpu_kernels.py runs this file in a process of its own; by hand:

    TRITON_INTERPRET=1 python -m pytest tests/conformance/interpreted_gpu_kernels.py
"""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton.compiler.errors import CompilationError

from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.buffers import empty_gradients
from lengthwise.attention.fused.gpu import Blocks, query_parts
from lengthwise.conformance import gpu_kernels, gpu_table
from lengthwise.conformance.gpu_kernels import Form, compare

assert os.environ.get("TRITON_INTERPRET") == "1", "set TRITON_INTERPRET=1"

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
interpreted = importlib.import_module("interpreted")
interpreted.ready_once()
interpreted.as_on_a_gpu()
interpreted.check_overflow(False)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, for log2(0) and the like

SMALL = (Blocks(16, 8, 4, 1), Blocks(8, 16, 4, 1), Blocks(16, 8, 4, 1), Blocks(8, 8, 4, 1))
FORMS = [
    *(Form(biases, 8, "float32") for biases in gpu_kernels.BIASES),
    Form(("table",), 8, "bfloat16"),
    Form(("segments",), 5, "float32"),
    Form(("many segments",), 8, "float16"),
    Form(("table", "segments", "vectors"), 8, "float32"),
    Form(("vectors",), 8, "bfloat16"),
    Form(("table", "segments", "vectors", "sink"), 8, "float32"),
    Form(("table", "vectors", "sink", "prefix sum"), 8, "bfloat16"),
    Form(("vectors", "values"), 8, "bfloat16"),
    Form(("values",), 8, "float16"),
    Form(("table", "segments", "vectors", "sink", "values"), 5, "float32"),
    Form(("vectors", "prefix sum", "values"), 8, "float32"),
]


SHAPES = tuple(replace(shape, batch=1, heads=2, kv_heads=1) for shape in gpu_kernels.SHAPES)


@pytest.fixture(autouse=True)
def _kernels(monkeypatch):
    """With smaller blocks and fewer heads, because the interpreter is slow."""
    monkeypatch.setattr(gpu, "blocks", lambda dtype, wide, pieces: SMALL)
    monkeypatch.setattr(gpu_kernels, "SHAPES", SHAPES)
    with interpreted.in_place_of_the_cpu():
        yield


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_kernels_that_are_right_are_equal(form):
    assert compare(form, "cpu").failure is None


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[-1]], ids=lambda shape: shape.name)
@pytest.mark.parametrize("other", sorted({bias for biases in gpu_kernels.BIASES for bias in biases} - {"vectors"}))
def test_several_parts_of_the_queries(other, shape, monkeypatch):
    """Products with vectors are computed for some queries at a time, and each part sees its own keys and their sums."""
    monkeypatch.setattr(gpu_kernels, "SHAPES", (shape,))
    monkeypatch.setattr(query_parts, "queries_per_chunk", lambda *sizes: 16)
    assert compare(Form(("vectors", other), 8, "float32"), "cpu").failure is None


def _no_gradients(monkeypatch):
    """Where the output is wrong, which is said first: gradients take most of the time."""

    def zeros(grad, q, k, v, out, lse, arguments, needs):
        found = empty_gradients(q, k, v, lse, arguments, needs)
        for x in found.values():
            x.zero_()
        return found

    monkeypatch.setattr(gpu, "backward", zeros)


def _off(place, by):
    """The kernel that is given, with one of its answers changed: the output (0), or the gradient of an argument."""

    def wrap(kernel):
        def wrong(*given):
            answers = kernel(*given)
            if place == 0:
                return by(answers[0]), answers[1]
            return answers | {place: by(answers[place])}

        return wrong

    return wrap


def _last_row(x):
    x = x.clone()
    x[:, :, -1] = 0
    return x


WRONG = {
    "output": ("forward", _off(0, lambda x: x * 1.001), "grouped queries: output is off by 1.0e-03"),
    "a row": ("forward", _off(0, _last_row), "grouped queries: output is off"),
    "not a number": ("forward", _off(0, lambda x: x / 0 * 0), "output is off by nan"),
    "q": ("backward", _off("q", lambda x: -x), "the gradient of q is off"),
    "v": ("backward", _off("v", lambda x: x + 0.01), "the gradient of v is off"),
    "table": ("backward", _off("table", lambda x: x.roll(1, -1)), "the gradient of table is off"),
    "slope": ("backward", _off("slope", lambda x: x * 0), "the gradient of slope is off"),
    "prefix_sum": ("backward", _off("prefix_sum", lambda x: x.roll(1, -1)), "the gradient of prefix_sum is off"),
    "values": ("backward", _off("value_vectors", lambda x: x.roll(1, 1)), "the gradient of values is off"),
    "query_scale": ("backward", _off("query_scale", lambda x: x + 0.1), "the gradient of query_scale is off"),
}


QUICK = ("output", "q", "table")


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in WRONG])
def test_kernels_that_are_wrong_are_found(name, monkeypatch):
    monkeypatch.setattr(gpu_kernels, "SHAPES", SHAPES[:1])
    which, wrap, said = WRONG[name]
    if which == "forward":
        _no_gradients(monkeypatch)
    monkeypatch.setattr(gpu, which, wrap(getattr(gpu, which)))
    biases = {"prefix_sum": ("prefix sum",), "values": ("values",)}.get(name, ("table", "segments"))
    found = compare(Form(biases, 8, "float32"), "cpu").failure
    assert found and said in found, found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_shape_is_what_its_name_says(shape, monkeypatch):
    """A kernel that is wrong in this kind of call alone is found."""
    monkeypatch.setattr(gpu_kernels, "SHAPES", (shape,))
    _no_gradients(monkeypatch)
    forward, form = gpu.forward, Form(("table",), 8, "float32")

    def wrong(q, k, v, arguments):
        out, lse = forward(q, k, v, arguments)
        documents, causal, window = arguments.documents, arguments.causal, arguments.window
        here = {
            "grouped queries": q.shape[1] == 2 * k.shape[1] and q.shape[2] > 1,
            "packed documents, rotated": documents is not None,
            "positions with gaps, a window": window,
            "decoding": q.shape[2] == 1,
            "both ways": not causal,
        }[shape.name]
        return (out + 0.1 if here else out), lse

    monkeypatch.setattr(gpu, "forward", wrong)
    assert str(compare(form, "cpu").failure).startswith(f"{shape.name}: output is off by")


def test_an_error_is_a_failure_in_one_line(monkeypatch):
    monkeypatch.setattr(gpu_kernels, "SHAPES", SHAPES[3:4])
    form, device = Form((), 8, "float32"), torch.device("cpu")
    assert gpu_table._compare(device, form).failure is None
    for error, reason in (
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to"), "OutOfMemoryError: CUDA out of memory."),
        (CompilationError("", None, "wrong"), "CompilationError: "),
        (RuntimeError(), "RuntimeError: without a message"),
    ):

        def fail(*given, error=error):
            raise error

        monkeypatch.setattr(gpu, "forward", fail)
        found = gpu_table._compare(device, form).failure
        assert found.startswith(reason) and "\n" not in found
