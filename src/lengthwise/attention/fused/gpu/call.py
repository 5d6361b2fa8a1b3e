"""The arguments of one call of the operator, prepared for the Triton kernels."""

import collections
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import (
    BY_DISTANCE,
    NUMBERS,
    SEGMENT_GROUP,
    TENSORS,
    TRITON,
    Arguments,
    names_for,
)
from lengthwise.attention.fused.gpu import tiles
from lengthwise.attention.fused.gpu.tiles import Case

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 256


class Blocks(NamedTuple):
    """Queries and keys of a block, warps of a program, and stages of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int


def padded(n: int) -> int:
    """Return the next power of two, at least 16."""
    return max(16, 1 << (n - 1).bit_length())


def _tuple_names() -> list[str]:
    """Return the names of what the kernels read: tensors with their strides and sizes, and whole numbers."""
    names: dict[str, None] = {}
    for name in names_for(TRITON):
        if name in TENSORS:
            axes = TENSORS[name].axes
            names |= dict.fromkeys((name, *(_step_name(name, axis.name) for axis in axes[:-1])))
            names |= dict.fromkeys(axis.name for axis in axes if axis.is_sized_by_tensor)
            if TENSORS[name].sums:
                names[f"grad_{name}"] = None  # what the kernels of the backward pass write to, or None
        elif NUMBERS[name] is int:
            names[name] = None
    return [*names, *_DERIVED]


def _step_name(name: str, axis: str) -> str:
    """Return the name of the stride of an axis, which is 0 if all heads or sequences share the entries."""
    return f"{name}_{axis}_step"


# What else they read. cell, cell_origin and max_per_cell are the start of the search for a segment, or None with few
# segments; see `tiles.cells`. value_rows [b, h, i, r]: in a backward pass, the products of each query's gradient and
# the vectors that are added to values, or None; it has the strides of rows. steps: see `tiles.steps`, or None.
_DERIVED = ("cell", "cells", "cell_origin", "max_per_cell", "value_rows", "steps")
_namedtuple: Any = collections.namedtuple
KernelArguments = _namedtuple("KernelArguments", _tuple_names())


def kernel_arguments(arguments: Arguments, **derived: Any) -> Any:
    """Return the arguments as kernels read them. A tensor of None has sizes and strides of None, and no parameters."""
    values: dict[str, Any] = dict.fromkeys(KernelArguments._fields)
    for name in names_for(TRITON):
        x = getattr(arguments, name)
        if name not in TENSORS:
            values[name] = x
        elif x is not None:
            axes = TENSORS[name].axes
            values[name] = x
            values |= {_step_name(name, axis.name): _step(x, n) for n, axis in enumerate(axes[:-1])}
            values |= {axis.name: x.shape[n] for n, axis in enumerate(axes) if axis.is_sized_by_tensor}
    return KernelArguments(*(({**values, **derived})[name] for name in KernelArguments._fields))


class Call:
    """The arguments of one call that all kernels share."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, arguments: Arguments):
        from lengthwise.attention.fused.gpu import parts

        arguments = _with_segments_in_float32(arguments)
        self.sink, self.prefix_sum, self.values = arguments.sink, arguments.prefix_sum, arguments.value_vectors
        assert q.dtype in DTYPES and q.shape[-1] <= MAX_HEAD_DIM, f"{q.dtype}, {q.shape[-1]} dims"
        for name in ("content", "key_vectors", "cos_sin_q", "cos_sin_k"):
            if getattr(arguments, name) is not None:
                raise NotImplementedError(f"{name} must be None on a GPU")
        if self.values is not None:
            rows = arguments.rows
            assert rows is not None and rows.shape[1] == q.shape[1], "value_rows have the strides of rows"
            assert (self.values.shape[1], arguments.value_vectors_first) == (rows.shape[3], arguments.rows_first), (
                "other distances than rows"
            )
        self.parts = parts
        # The kernels divide biases by the scale and take the largest logit before scaling.
        self.scale = self.kernel_scale = arguments.scale
        if not 2.0**-60 <= self.scale <= 2.0**60:
            q, k, v, self.kernel_scale = q.float() * self.scale, k.float(), v.float(), 1.0
        self.q, self.k, self.v = (contiguous_rows(x) for x in (q, k, v))
        self.dim, self.padded_dim = q.shape[3], padded(q.shape[3])
        self.batch, self.heads, self.queries, self.keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
        if all(getattr(arguments, name) is None for name in BY_DISTANCE):
            arguments = arguments._replace(position_q=None, position_k=None)  # no bias needs distances
        self.arguments = arguments
        self.case = Case(arguments, self.queries, self.keys, q.device)
        self.args = self._kernel_arguments()
        self.sizes = parts.Sizes(self.heads, self.heads // max(1, k.shape[1]), self.queries, self.keys)
        self.factors = {"factor": self.kernel_scale * math.log2(math.e), "inverse": 1 / self.kernel_scale}
        self.constants = {"CAUSAL": arguments.causal, "DIM": self.dim, "PADDED_DIM": self.padded_dim}

    def _kernel_arguments(self) -> Any:
        derived: dict[str, Any] = {"window": self.arguments.window or None}
        slope, knots = self.arguments.slope, self.arguments.knots
        if self.case.many_segments:
            assert knots is not None and slope is not None
            cell, cell_origin, max_per_cell = tiles.cells(knots, slope.shape[1])
            derived |= {"cell": cell, "cells": len(cell), "cell_origin": cell_origin, "max_per_cell": max_per_cell}
        if self.case.steps_matter and (table := self.arguments.table) is not None:
            derived["steps"] = tiles.steps(table, self.arguments.table_first, self.heads)
        return kernel_arguments(self.arguments, **derived)

    @property
    def needs_lists(self) -> bool:
        return self.case.needs_lists

    def view(self, x: Tensor) -> Any:
        return self.parts.View(x, x.stride(0), x.stride(1), x.stride(2))

    def tiles(self, lists: tuple[Tensor, Tensor] | None) -> Any:
        if lists is None:
            return self.parts.Tiles(None, None, 0, 0)
        order, ends = lists
        return self.parts.Tiles(order, ends, order.shape[1] if len(order) > 1 else 0, order.shape[2])


def _with_segments_in_float32(arguments: Arguments) -> Arguments:
    segments = {name: x for name in SEGMENT_GROUP if (x := getattr(arguments, name)) is not None}
    if not segments:
        return arguments
    rounded: dict[str, Any] = {name: torch.empty_like(x, dtype=torch.float32) for name, x in segments.items()}
    torch._foreach_copy_(list(rounded.values()), list(segments.values()))  # one launch
    return arguments._replace(**rounded)


def _step(x: Tensor, axis: int) -> int:
    """Return the stride of an axis; 0 if its single entry is shared."""
    return 0 if x.shape[axis] == 1 else x.stride(axis)


def contiguous_rows(x: Tensor) -> Tensor:
    """Return `x`, or a contiguous copy if the dims of a token are not contiguous or a block exceeds 32-bit offsets."""
    x = x.resolve_neg()  # kernels read the memory, where such a tensor has the other sign
    fits = (x.stride(-1) == 1 or x.shape[-1] == 1) and x.stride(2) < 2**23
    return x if fits else x.contiguous()
