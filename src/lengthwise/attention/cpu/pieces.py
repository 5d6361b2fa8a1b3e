"""FIRE's tables from the compiled library (csrc/segments.cpp): what piecewise.py and fire.py say, in a call each in place of
dozens of small operations. `piecewise.compiled` is this module, once attention is loaded."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import cpu

ROOM = 64  # pieces for which there is room at the first call
WIDEST = 64  # what torch multiplies faster is left to it


def there() -> bool:
    """Whether there is a library."""
    return cpu.missing() is None


def serves(numbers: Sequence[Tensor]) -> bool:
    """Whether it takes the weights and biases of an MLP: all float32 or all float64, and of small layers."""
    dtype = numbers[0].dtype
    if dtype not in (torch.float32, torch.float64) or max(len(x) for x in numbers) > WIDEST:
        return False
    return all(x.dtype == dtype and x.is_contiguous() for x in numbers)


@functools.cache
def _calls() -> tuple["ctypes._NamedFuncPointer", ...]:
    library = cpu._library()
    whole: Any = ctypes.c_int64
    pointer, number = ctypes.c_void_p, ctypes.c_double
    network = [whole, pointer, pointer, whole, whole, whole]
    library.lengthwise_pieces.argtypes = [*network, *[pointer] * 4]
    library.lengthwise_pieces.restype = whole
    library.lengthwise_pieces_backward.argtypes = [*network, *[pointer] * 4]
    library.lengthwise_pieces_backward.restype = whole
    library.lengthwise_fire_tables_backward.argtypes = [number] * 4 + [pointer, whole] * 2 + [pointer] * 3
    library.lengthwise_fire_tables_backward.restype = None
    return library.lengthwise_pieces, library.lengthwise_pieces_backward, library.lengthwise_fire_tables_backward


@functools.lru_cache(64)
def _widths(*widths: int) -> "ctypes.Array[ctypes.c_int64]":
    return (ctypes.c_int64 * len(widths))(*widths)


def _network(numbers: Sequence[Tensor]) -> tuple[object, ...]:
    """The first arguments of a call, but for `final`."""
    biases = numbers[1::2]
    at = (ctypes.c_void_p * len(numbers))(*[x.data_ptr() for x in numbers])
    return len(biases), _widths(1, *map(len, biases)), at, numbers[0].dtype == torch.float32


def find(numbers: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slope, intercept, knots, and of every piece which neurons each ReLU lets through, side by side, as bytes."""
    network = _network(numbers)
    sizes = [len(bias) for bias in numbers[1::2]]
    heads, gated = sizes[-1], sum(sizes if final else sizes[:-1])
    room = ROOM
    while True:
        slope, intercept, knots = (torch.empty(n * room, dtype=torch.float64) for n in (heads, heads, 1))
        gates = torch.empty(room * gated, dtype=torch.uint8)
        many = _calls()[0](*network, final, room, *[x.data_ptr() for x in (slope, intercept, knots, gates)])
        if many < 0:
            raise MemoryError(f"straight pieces of an MLP with layers of {', '.join(map(str, sizes))}")
        if many <= room:
            break
        room = many
    slope.resize_(heads, many)
    intercept.resize_(heads, many)
    return slope, intercept, knots.resize_(many - 1), gates.resize_(many, gated)


def pass_back(
    numbers: Sequence[Tensor], gates: Tensor, final: bool, of_slope: Tensor, of_intercept: Tensor
) -> list[Tensor]:
    """The gradient of every number."""
    of_slope, of_intercept = of_slope.contiguous(), of_intercept.contiguous()
    found = [torch.empty_like(x) for x in numbers]
    to = (ctypes.c_void_p * len(found))(*[x.data_ptr() for x in found])
    given = [x.data_ptr() for x in (of_slope, of_intercept, gates)]
    if _calls()[1](*_network(numbers), final, len(gates), *given, to):
        raise MemoryError(f"gradients through {len(gates)} straight pieces")
    return found


def tables_back(
    size: float, threshold: float, L: float, eps: float, distance: Tensor, query: Tensor, of_u: Tensor, of_w: Tensor
) -> tuple[float, float]:
    """The gradients of |c| and of the threshold."""
    of_u, of_w, query = of_u.contiguous(), of_w.contiguous(), query.contiguous()
    to = (ctypes.c_double * 2)()
    _calls()[2](
        size, threshold, L, eps, distance.data_ptr(), distance.numel(), query.data_ptr(), query.numel(), of_u.data_ptr(),
        of_w.data_ptr(), to,
    )  # fmt: skip
    return to[0], to[1]
