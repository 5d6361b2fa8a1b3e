"""The arguments of one call of the operator, prepared for the Triton kernels."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import Arguments, Segments
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


class Call:
    """The arguments of one call that all kernels share."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, arguments: Arguments):
        from lengthwise.attention.fused.gpu import parts

        biases, rows, geometry, scale, _, self.sink, self.prefix_sum, (self.values, values_first) = arguments
        if biases.segments is not None:
            biases = biases._replace(segments=Segments(*(x.float() for x in biases.segments)))
        assert q.dtype in DTYPES and q.shape[-1] <= MAX_HEAD_DIM, f"{q.dtype}, {q.shape[-1]} dims"
        if self.values is not None:
            assert rows.table is not None and rows.table.shape[1] == q.shape[1], "value_rows have the strides of rows"
            assert (self.values.shape[1], values_first) == (rows.table.shape[3], rows.first), (
                "other distances than rows"
            )
        self.parts = parts
        # The kernels divide biases by the scale and take the largest logit before scaling.
        self.kernel_scale = scale
        if not 2.0**-60 <= scale <= 2.0**60:
            q, k, v, self.kernel_scale = q.float() * scale, k.float(), v.float(), 1.0
        self.scale = scale
        self.q, self.k, self.v = (contiguous_rows(x) for x in (q, k, v))
        self.dim, self.padded_dim = q.shape[3], padded(q.shape[3])
        self.batch, self.heads, self.queries, self.keys = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
        if biases.table is None and biases.segments is None and rows.table is None:
            geometry = geometry._replace(position_q=None, position_k=None)  # no bias needs distances
        self.case = Case(biases, rows, geometry, self.queries, self.keys, q.device)
        self.bias = self._bias()
        position_q, position_k, documents, causal, window = geometry
        self.tokens = parts.Tokens(
            position_q, _step(position_q), position_k, _step(position_k), documents, _step(documents), window or None
        )
        self.sizes = parts.Sizes(self.heads, self.heads // max(1, k.shape[1]), self.queries, self.keys)
        self.factors = {"factor": self.kernel_scale * math.log2(math.e), "inverse": 1 / self.kernel_scale}
        self.constants = {"CAUSAL": causal, "DIM": self.dim, "PADDED_DIM": self.padded_dim}

    def _bias(self) -> Any:
        (table, first, _), (rows, rows_first) = self.case.biases, self.case.rows
        slope, intercept, knots, distance_feature, query_scale = self.case.biases.segments or (None,) * 5
        cell = cell_origin = max_per_cell = None
        if self.case.many_segments:
            assert knots is not None and slope is not None
            cell, cell_origin, max_per_cell = tiles.cells(knots, slope.shape[1])
        prefix_sum_steps = (None, None) if self.prefix_sum is None else (_step(self.prefix_sum, n) for n in (0, 1))
        return self.parts.Bias(
            table, _size(table, 1), _step(table), first, slope, intercept, _step(slope), _size(slope, 1), knots,
            distance_feature, _size(distance_feature, 0), query_scale, _step(query_scale), cell, _size(cell, 0), cell_origin,
            max_per_cell, rows, _size(rows, 3), rows.stride(0) if rows is not None else 0, _step(rows, 1), rows_first,
            self.prefix_sum, *prefix_sum_steps,
        )  # fmt: skip

    @property
    def needs_lists(self) -> bool:
        return self.case.has_bias or self.case.geometry.documents is not None

    def view(self, x: Tensor) -> Any:
        return self.parts.View(x, x.stride(0), x.stride(1), x.stride(2))

    def tiles(self, lists: tuple[Tensor, Tensor] | None) -> Any:
        if lists is None:
            return self.parts.Tiles(None, None, 0, 0)
        order, ends = lists
        return self.parts.Tiles(order, ends, order.shape[1] if len(order) > 1 else 0, order.shape[2])


def _size(x: Tensor | None, axis: int) -> int:
    return 0 if x is None else x.shape[axis]


def _step(x: Tensor | None, axis: int = 0) -> int:
    """Return the stride of an axis; 0 if its single entry is shared."""
    return 0 if x is None or x.shape[axis] == 1 else x.stride(axis)


def contiguous_rows(x: Tensor) -> Tensor:
    """Return `x`, or a contiguous copy if the dims of a token are not contiguous or a block exceeds 32-bit offsets."""
    x = x.resolve_neg()  # kernels read the memory, where such a tensor has the other sign
    fits = (x.stride(-1) == 1 or x.shape[-1] == 1) and x.stride(2) < 2**23
    return x if fits else x.contiguous()
