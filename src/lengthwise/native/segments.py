"""FIRE's segments and tables, computed by the compiled library (csrc/segments.cpp).

The library does the work of piecewise.py and fire.py in one call each instead of dozens of small operations.
"""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.native import loaded, unsupported_reason

INITIAL_SEGMENTS = 64  # segments that the first call has memory for
MAX_WIDTH = 64  # wider layers are left to torch, which multiplies them faster


def is_available() -> bool:
    """Whether there is a compiled library."""
    return unsupported_reason() is None


def supports(parameters: Sequence[Tensor]) -> bool:
    """Whether the library supports the parameters of an MLP: narrow, and all float32 or all float64."""
    dtype = parameters[0].dtype
    if dtype not in (torch.float32, torch.float64) or max(x.shape[0] for x in parameters) > MAX_WIDTH:
        return False
    return all(x.dtype == dtype and x.is_contiguous() for x in parameters)


@functools.cache
def _library() -> ctypes.CDLL:
    library = loaded()
    integer: Any = ctypes.c_int64
    pointer, number = ctypes.c_void_p, ctypes.c_double
    network = [integer, pointer, pointer, integer, integer, integer]
    library.lengthwise_pieces.argtypes = [*network, *[pointer] * 4]
    library.lengthwise_pieces.restype = integer
    library.lengthwise_pieces_backward.argtypes = [*network, *[pointer] * 4]
    library.lengthwise_pieces_backward.restype = integer
    tables = [*[number] * 4, *[pointer, integer] * 2]
    library.lengthwise_fire_tables.argtypes = [*tables, *[pointer] * 2]
    library.lengthwise_fire_tables.restype = None
    library.lengthwise_fire_tables_backward.argtypes = [*tables, *[pointer] * 3]
    library.lengthwise_fire_tables_backward.restype = None
    return library


def _network(parameters: Sequence[Tensor]) -> tuple[object, ...]:
    """Return the first arguments of a call: number of layers, widths, parameters, and whether they are float32."""
    biases = parameters[1::2]
    pointers = (ctypes.c_void_p * len(parameters))(*[x.data_ptr() for x in parameters])
    widths = (ctypes.c_int64 * (1 + len(biases)))(1, *[x.shape[0] for x in biases])
    return len(biases), widths, pointers, parameters[0].dtype == torch.float32


def relu_segments(parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return slope, intercept, knots, and for each segment which neurons are active, as bytes [segments, neurons]."""
    network = _network(parameters)
    sizes = [bias.shape[0] for bias in parameters[1::2]]
    heads, gated = sizes[-1], sum(sizes if final else sizes[:-1])
    room = INITIAL_SEGMENTS
    while True:
        slope, intercept, knots = (torch.empty(n * room, dtype=torch.float64) for n in (heads, heads, 1))
        gates = torch.empty(room * gated, dtype=torch.uint8)
        count = _library().lengthwise_pieces(
            *network, final, room, *[x.data_ptr() for x in (slope, intercept, knots, gates)]
        )
        if count < 0:
            raise MemoryError(f"segments of an MLP with layers of {', '.join(map(str, sizes))}")
        if count <= room:
            break
        room = count
    slope.resize_(heads, count)
    intercept.resize_(heads, count)
    return slope, intercept, knots.resize_(count - 1), gates.resize_(count, gated)


def relu_segments_backward(
    parameters: Sequence[Tensor], gates: Tensor, final: bool, grad_slope: Tensor, grad_intercept: Tensor
) -> list[Tensor]:
    """Return the gradient of every parameter."""
    grad_slope, grad_intercept = grad_slope.contiguous(), grad_intercept.contiguous()
    gradients = [torch.empty_like(x) for x in parameters]
    results = (ctypes.c_void_p * len(gradients))(*[x.data_ptr() for x in gradients])
    inputs = [x.data_ptr() for x in (grad_slope, grad_intercept, gates)]
    if _library().lengthwise_pieces_backward(*_network(parameters), final, len(gates), *inputs, results):
        raise MemoryError(f"gradients through {len(gates)} segments")
    return gradients


def fire_tables(
    size: float, threshold: float, L: float, eps: float, distance: Tensor, query: Tensor
) -> tuple[Tensor, Tensor]:
    """Return FIRE's distance feature and query scale in float64, for |c| = `size` and the threshold in tokens."""
    query = query.contiguous()
    feature, scale = (torch.empty(x.shape, dtype=torch.float64) for x in (distance, query))
    _library().lengthwise_fire_tables(
        size, threshold, L, eps, distance.data_ptr(), distance.numel(), query.data_ptr(), query.numel(),
        feature.data_ptr(), scale.data_ptr(),
    )  # fmt: skip
    return feature, scale


def fire_tables_backward(
    size: float,
    threshold: float,
    L: float,
    eps: float,
    distance: Tensor,
    query: Tensor,
    grad_feature: Tensor,
    grad_scale: Tensor,
) -> tuple[float, float]:
    """Return the gradients of |c| and of the threshold, from those of `distance_feature` and `query_scale`."""
    grad_feature, grad_scale, query = grad_feature.contiguous(), grad_scale.contiguous(), query.contiguous()
    results = (ctypes.c_double * 2)()
    _library().lengthwise_fire_tables_backward(
        size, threshold, L, eps, distance.data_ptr(), distance.numel(), query.data_ptr(), query.numel(),
        grad_feature.data_ptr(), grad_scale.data_ptr(), results,
    )  # fmt: skip
    return results[0], results[1]
