"""The slice of gpu_day.py that measures the time of each kernel with other block sizes (block_sizes.py has ours).

Times are those of the profiler, in ms, means of three calls forward and backward, as `Attention` of gpu_attention.py.
"""

import collections
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from gpu_attention import Attention
from gpu_setting import Figures, Measurement, Setting
from torch.profiler import ProfilerActivity, profile

from lengthwise.attention.fused import gpu
from lengthwise.attention.fused.gpu import Blocks

CALLS = 3
# Queries and keys of a block, warps, stages of the pipeline. In the order that `blocks` returns.
TRIED = {
    "attend": (
        (64, 64, 4, 3), (64, 128, 4, 3), (128, 64, 4, 2), (128, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 2),
        (128, 128, 8, 2), (128, 128, 8, 3), (64, 32, 4, 4), (64, 64, 4, 2), (64, 64, 4, 4), (128, 32, 4, 4),
        (64, 64, 8, 3),
    ),
    "key_gradients": (
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 1), (32, 64, 4, 2), (32, 64, 4, 3), (64, 128, 8, 2),
        (64, 128, 8, 3), (32, 128, 8, 2), (32, 128, 4, 2), (128, 128, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2),
        (32, 64, 4, 1),
    ),
    "query_gradients": (
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 1), (128, 64, 8, 3), (128, 64, 8, 2), (128, 64, 8, 1),
        (64, 32, 4, 3), (64, 32, 4, 2), (128, 32, 4, 2), (128, 32, 8, 2), (128, 128, 8, 2), (64, 128, 8, 2),
        (128, 64, 4, 2),
    ),
    "distance_gradients": (
        (64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 1), (32, 32, 4, 2), (32, 32, 4, 3), (64, 64, 8, 1),
        (64, 64, 8, 2), (128, 128, 8, 1), (128, 128, 8, 2), (64, 64, 8, 3), (32, 32, 4, 1), (32, 32, 2, 2),
        (32, 32, 2, 1),
    ),
}  # fmt: skip


def kernel_times(action: Callable[[], None]) -> dict[str, float]:
    """Return the milliseconds of every kernel in one call of an action, by the kernel's name."""
    action()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            action()
        torch.cuda.synchronize()
    times: collections.Counter[str] = collections.Counter()
    for event in found.key_averages():
        if event.self_device_time_total:
            times[event.key] += event.self_device_time_total / 1000 / CALLS
    return dict(times)


def times_with(action: Callable[[], None], kernel: str, blocks: Blocks) -> float | str:
    """Return the milliseconds of a kernel with these blocks, or the name of the error."""
    ours = gpu.blocks

    def chosen(*form: Any) -> tuple[Blocks, ...]:
        return tuple(blocks if name == kernel else size for name, size in zip(TRIED, ours(*form), strict=True))

    try:
        with mock.patch.object(gpu, "blocks", side_effect=chosen):
            return kernel_times(action)[kernel]
    except Exception as error:  # mostly too much shared memory; whatever it is, other sizes may work
        return type(error).__name__


def block_sizes(setting: Setting) -> Iterator[Measurement]:
    """The time of each kernel with other block sizes, for choosing those of block_sizes.py."""

    def measure(name: str, dim: int) -> Figures:
        action = Attention(name, 8192, dim).backward
        ours = kernel_times(action)
        figures: Figures = {"all kernels": sum(ours.values())}
        for kernel, sizes in TRIED.items():
            if kernel in ours:
                tried = {f"{s[0]} x {s[1]}, {s[2]} warps, {s[3]} stages": Blocks(*s) for s in sizes}
                figures[kernel] = {"as chosen": ours[kernel]}
                figures[kernel] |= {text: times_with(action, kernel, blocks) for text, blocks in tried.items()}
        return figures

    for dim in (64, 128) if setting.device != "cpu" else ():
        for name in ("NoPE", "KerpleLog", "FIRE", "ALiBi"):
            yield f"{name}, 8192 tokens, {dim} dims", functools.partial(measure, name, dim)
