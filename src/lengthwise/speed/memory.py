"""The peak memory of training one encoding at one length.

It is the highest memory during two training steps, minus the memory before the first: activations, gradients, AdamW's
moments and scratch memory of kernels, but not the weights. On a CPU it is the resident memory of a fresh process (VmHWM
and VmRSS of Linux). That process first trains on one short sequence, so that libraries and thread pools, which are
loaded once, do not count. It returns every freed tensor to the system; otherwise the figure would depend on what the C
library keeps, and vary by a tenth. On CUDA it is the memory of tensors in PyTorch's allocator (`max_memory_allocated`).
"""

import dataclasses
import gc
import os
import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch

from lengthwise.child_processes import end_with_parent, starting_processes
from lengthwise.errors import first_line
from lengthwise.machine_memory import is_out_of_memory
from lengthwise.measurements.speed import SpeedOptions
from lengthwise.plugins import load_plugins, loaded_plugins
from lengthwise.speed.model import EncodingPlan, Subject, encoding_plans
from lengthwise.training.memory import STATUS, release_freed_memory, reset_peak, resident, return_when_freed
from lengthwise.training.numerics import reproducible, torch_threads

LARGE = 1 << 16  # bytes; allocations from this size are returned to the system as soon as they are freed
SHORT = 64  # tokens of the first step, which does not count
JOIN_SECONDS = 30.0


class NoMemory(Exception):
    """There was not enough memory. The message is one line."""


def measure_memory(plan: EncodingPlan, options: SpeedOptions, length: int) -> tuple[int | None, str | None]:
    """Return the peak memory in bytes, or None and the reason why it could not be measured.

    Raise `NoMemory` if the process that measures was killed, because training here would end this process in the same
    way.
    """
    kind = torch.device(options.device).type
    if kind == "cuda":
        return _on_cuda(plan, options, length)
    if kind != "cpu":
        return None, f"peak memory is measured on cpu and cuda, not on {kind}"
    if not STATUS.exists():
        return None, "on a CPU, peak memory is measured on Linux only (/proc/self/status)"
    return _in_child(plan, options, length)


def _on_cuda(plan: EncodingPlan, options: SpeedOptions, length: int) -> tuple[int | None, str | None]:
    device = torch.device(options.device)
    with reproducible(device):
        _train_short(plan, options, length)
        subject = Subject(plan, options, length)
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        subject.training()
        subject.training()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before, None


def _in_child(plan: EncodingPlan, options: SpeedOptions, length: int) -> tuple[int | None, str | None]:
    # The server imports torch once; each process that it forks is new, and its peak begins with its own memory.
    context = get_context("forkserver")
    context.set_forkserver_preload(["lengthwise.speed.memory"])
    pipe, child_pipe = context.Pipe()
    arguments = (child_pipe, plan.text, options, length, loaded_plugins())
    process = context.Process(target=_child, args=arguments, daemon=True)
    try:
        with starting_processes():  # the server and its processes inherit this: Ctrl-C is for this process
            process.start()
        child_pipe.close()
        try:
            result, reason = pipe.recv()
        except EOFError:
            process.join(JOIN_SECONDS)
            raise NoMemory(death_message(process.exitcode)) from None
        return result, reason
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
        pipe.close()


def death_message(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "not enough memory: the process that trained one step was killed"
    return f"the process that trained one step ended with code {code}"


def _child(pipe: Connection, text: str, options: SpeedOptions, length: int, plugins: tuple[str, ...]) -> None:
    end_with_parent()
    try:
        load_plugins(plugins)
        plan = next(plan for plan in encoding_plans([text]) if plan.text == text)
        with torch_threads(options.threads), reproducible(torch.device("cpu")):
            pipe.send((_resident_growth(plan, options, length), None))
    except BaseException as error:
        pipe.send((None, "not enough memory" if is_out_of_memory(error) else first_line(error)))
    os._exit(0)


def _resident_growth(plan: EncodingPlan, options: SpeedOptions, length: int) -> int:
    return_when_freed(LARGE)
    _train_short(plan, options, length)
    subject = Subject(plan, options, length)
    gc.collect()
    release_freed_memory()  # what the first step has freed would be used again without counting
    reset_peak()
    before = resident("VmRSS")
    subject.training()
    subject.training()
    return max(0, resident("VmHWM") - before)


def _train_short(plan: EncodingPlan, options: SpeedOptions, length: int) -> None:
    subject = Subject(plan, dataclasses.replace(options, batch_tokens=1), min(length, SHORT))
    subject.training()
