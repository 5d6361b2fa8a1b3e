"""The threads of the CPU kernel: torch's own if torch computes with OpenMP, and otherwise the library's pool."""

import contextlib
import copy
import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from lengthwise import native
from lengthwise.attention import BACKENDS, Mask
from lengthwise.encodings import FIRE
from lengthwise.native import openmp
from lengthwise.native.openmp import Threads
from lengthwise.span import Span

pytestmark = pytest.mark.skipif(
    native.unsupported_reason() is not None, reason=f"no kernel here: {native.unsupported_reason()}"
)

HEADS, DIM = 4, 32
on_openmp = pytest.mark.skipif(
    "parallel backend: OpenMP" not in torch.__config__.parallel_info() or sys.platform != "linux",
    reason="torch does not compute with OpenMP here, or not on Linux",
)


@pytest.fixture(params=["openmp", "pool"])
def runtime(request, monkeypatch):
    """Whose threads compute."""
    if request.param == "pool":
        monkeypatch.setattr(openmp, "parallel_region", lambda: None)
    elif openmp.parallel_region() is None:
        pytest.skip("torch does not compute with OpenMP here")
    return request.param


@pytest.fixture(autouse=True)
def _number_of_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def inputs(seed=0, length=200):
    """An encoding and tensors; made in one thread, because Python's threads share torch's random numbers."""
    torch.manual_seed(seed)
    return FIRE(num_heads=HEADS, L=64.0), [torch.randn(3, HEADS, length, DIM) for _ in range(4)]


def answers(of):
    """The output of attention with FIRE, and all its gradients."""
    encoding, (q, k, v, weight) = of
    span, mask = Span.of(q.shape[2]), Mask(q.shape[2], q.shape[2])
    qkv = [x.clone().requires_grad_() for x in (q, k, v)]
    out = BACKENDS["fused"].prepare(encoding.modifiers(span), span, mask)(*qkv, scale=DIM**-0.5)
    return [out.detach(), *torch.autograd.grad(out, [*qkv, *encoding.parameters()], weight)]


def require_equal(found, expected):
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def on_one_thread(of):
    torch.set_num_threads(1)
    return answers(of)


@on_openmp
def test_torch_s_runtime_is_found():
    assert openmp.parallel_region()


@pytest.mark.parametrize("count", [2, 3, 16])
def test_the_bits_do_not_depend_on_the_threads(runtime, count):
    of = inputs()
    expected = on_one_thread(of)
    torch.set_num_threads(count)
    for _ in range(3):
        require_equal(answers(of), expected)


def test_several_python_threads_at_once(runtime):
    several = [inputs(seed) for seed in range(4)]
    expected = [on_one_thread(of) for of in several]
    torch.set_num_threads(3)
    with ThreadPoolExecutor(4) as executor:
        for _ in range(3):
            for found, wanted in zip(executor.map(answers, several), expected, strict=True):
                require_equal(found, wanted)


def test_denormals_are_flushed_as_in_the_calling_thread(runtime):
    """Torch sets this for the calling thread only."""
    of, found = inputs(length=600), []
    of[1][2].mul_(1e-39)  # values, and so the output
    torch.set_num_threads(2)
    answers(of)  # the threads begin while denormals are not flushed
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        try:
            on_two = [answers(of) for _ in range(4)]
            torch.set_num_threads(1)
            found.append(answers(of))
            torch.set_num_threads(2)
        finally:
            torch.set_flush_denormal(False)
        for one in on_two:
            require_equal(one, found[-1])
    assert found[0][0].any()
    assert not found[1][0].any()
    assert not all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@on_openmp
def test_inside_another_parallel_region():
    of, found = inputs(), []
    expected = on_one_thread(of)
    torch.set_num_threads(3)
    encoding, tensors = of
    others = [(copy.deepcopy(encoding), tensors) for _ in range(2)]
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: found.append(answers(others.pop())))
    region = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint] * 2)(openmp.parallel_region())
    region(ctypes.cast(call, ctypes.c_void_p), None, 2, 0)
    assert len(found) == 2
    for one in found:
        require_equal(one, expected)


STARTS_NO_THREADS = """
import os, sys, torch
from lengthwise.native import openmp
from tests.attention.fused.test_threads import answers, inputs
if sys.argv[1] == "pool":
    openmp.parallel_region = lambda: None
torch.set_num_threads(3)
torch.ones(10**6).add(1)
counts = []
for _ in range(4):
    counts.append(len(os.listdir("/proc/self/task")))
    answers(inputs())
print(counts)
"""


@pytest.mark.medium
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not list threads in /proc")
def test_no_thread_is_started_in_a_call(runtime):
    """On torch's threads not even in the first."""
    command = [sys.executable, "-c", STARTS_NO_THREADS, runtime]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[3]).stdout
    counts = json.loads(printed)
    assert counts == [counts[0], *[counts[0] + (2 if runtime == "pool" else 0)] * 3]


def _answers_of_a_child(of, expected, queue):
    torch.set_num_threads(1)
    try:
        queue.put(all(torch.equal(a, b) for a, b in zip(answers(of), expected, strict=True)))
    except BaseException as error:
        queue.put(repr(error))
        raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_in_a_child_after_fork(runtime, monkeypatch):
    """Torch has one thread in the child, as in a DataLoader's worker: more would wait forever. The pool has three."""
    of = inputs()
    if runtime == "pool":
        monkeypatch.setattr(openmp, "threads", lambda: Threads(None, 3))
    expected = on_one_thread(of)
    torch.set_num_threads(3)
    answers(of)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_answers_of_a_child, args=(of, expected, queue))
    child.start()
    with contextlib.ExitStack() as stack:
        stack.callback(child.kill)
        assert queue.get(timeout=60) is True
        child.join(60)
    require_equal(answers(of), expected)
