"""The forms as differentiable functions of one block of queries and keys, for blocked.py.

If positions are consecutive, a table over distances is reordered along the keys once, and a block reads a window of it. Otherwise
every pair looks up its column.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lengthwise import forms
from lengthwise.attention.backends.reference import dense, distance_rates
from lengthwise.attention.tables import (
    along_keys,
    gather_columns,
    lookup,
    piecewise_linear,
    scatter_columns,
    shear,
    slide,
    unshear,
)
from lengthwise.span import Span


@dataclass(frozen=True)
class Block:
    """Some queries of some rows of the batch, and the keys that may be visible to them."""

    batch: slice
    rows: slice
    keys: slice


def size(indices: slice) -> int:
    """Return the number of indices in a slice with both ends."""
    return int(indices.stop - indices.start)


@dataclass(frozen=True)
class Part:
    """A form as its tensors, functions that select a block's view of each tensor, and the function of these views.

    For a term, `evaluate(block, *views)` returns [b|1, h|1, i|1, j], which is added to the logits. For values,
    `evaluate(block, *views, weights)` returns [b, h, i, d], which is added to the output. Views are cast to the compute dtype.
    The tensors keep their own dtype, in which their gradients are accumulated. `shared`: all rows of the batch have the same
    result. `cast_result`: the result is cast instead of the views.
    """

    tensors: tuple[Tensor, ...]
    selectors: tuple[Callable[[Tensor, Block], Tensor], ...]
    evaluate: Callable[..., Tensor]
    shared: bool = False
    cast_result: bool = False


def scaled(part: Part, gain: Float[Tensor, "#b #h i"]) -> Part:
    """Return the part of a term that is multiplied by the gain of each query."""

    def evaluate(block: Block, *views: Tensor) -> Tensor:
        return part.evaluate(block, *views[:-1]) * views[-1][..., None]

    selectors, shared = (*part.selectors, _select_queries), part.shared and len(gain) == 1
    return replace(part, tensors=(*part.tensors, gain), selectors=selectors, evaluate=evaluate, shared=shared)


class Parts:
    """The parts of the forms for one span."""

    def __init__(self, span: Span):
        self.span = span
        self.queries, self.keys = span.q.shape[1], span.k.shape[1]

    def term(self, term: forms.Term, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], scale: float) -> Part:
        """Return the part of a term. q and k are those before rotation."""
        match term:
            case forms.ToeplitzBias(table, first, distances):
                return self._toeplitz(table, _Columns(first, table.shape[1], distances))
            case forms.PiecewiseLinearBias():
                return self._piecewise_linear(term)
            case forms.RelativeKeyBias(table, first, vector, distances):
                q = q if vector is None else q + vector.to(q.dtype)[:, None]
                return self._relative(q * scale, table, _Columns(first, table.shape[1], distances))
            case forms.ContentBias(content, table, first):
                return self._relative(content, table, _Columns(first, table.shape[1]))
            case forms.GatedDistanceBias():
                return Part(distance_rates(term, q, k), (_select_queries, _select_keys), self._evaluate_gated)
            case forms.CumulativeBias(prefix_sum):
                return self._cumulative(prefix_sum)
            case forms.DenseBias(bias):
                return Part((bias,), (_select_pairs,), _identity, shared=len(bias) == 1)
            case forms.KeyBias():
                return Part((dense(term, q, k, self.span, scale),), (_select_pairs,), _identity)
        raise AssertionError(f"not a form: {term}")

    def value(self, value: forms.RelativeValues) -> Part:
        """Return the part of a value form: the sum of the weights of each column, times the columns."""
        columns = _Columns(value.first, value.table.shape[1])
        evaluate = partial(self._evaluate_values, columns)
        return Part((self._reordered(value.table, columns),), (self._selector(columns),), evaluate)

    def _evaluate_values(self, columns: "_Columns", block: Block, table: Tensor, weights: Tensor) -> Tensor:
        if self._is_reordered(columns):
            return unshear(weights) @ table
        at = self._column(block, columns)[:, None].expand_as(weights)
        return scatter_columns(weights, at, columns.count) @ table

    def _toeplitz(self, table: Float[Tensor, "h n"], columns: "_Columns") -> Part:
        tensors, selectors = (self._reordered(table, columns),), (self._selector(columns),)
        return Part(tensors, selectors, partial(self._evaluate_toeplitz, columns), shared=len(self.span.q) == 1)

    def _evaluate_toeplitz(self, columns: "_Columns", block: Block, table: Tensor) -> Tensor:
        return self._by_distance(block, table, columns).transpose(0, 1)

    def _piecewise_linear(self, bias: forms.PiecewiseLinearBias) -> Part:
        columns = _Columns(0, len(bias.distance_feature), bias.distances)
        tensors = bias.slope, bias.intercept, self._reordered(bias.distance_feature[None], columns), bias.query_scale
        selectors = _whole, _whole, self._selector(columns), _select_rows
        shared = len(self.span.q) == len(bias.query_scale) == 1
        return Part(tensors, selectors, partial(self._evaluate_piecewise_linear, columns, bias.knots), shared)

    def _evaluate_piecewise_linear(
        self,
        columns: "_Columns",
        knots: Tensor,
        block: Block,
        slope: Tensor,
        intercept: Tensor,
        distance_feature: Tensor,
        query_scale: Tensor,
    ) -> Tensor:
        x = self._by_distance(block, distance_feature, columns)[0] * query_scale[..., None]
        return piecewise_linear(slope, intercept, knots.to(x.dtype), x).transpose(0, 1)

    def _relative(self, x: Float[Tensor, "#b #h i d"], table: Float[Tensor, "#h n d"], columns: "_Columns") -> Part:
        """Return the part of <x_i, table[h, column of the distance]>."""
        tensors, selectors = (x, self._reordered(table, columns)), (_select_queries, self._selector(columns))
        shared = len(self.span.q) == len(x) == 1
        return Part(tensors, selectors, partial(self._evaluate_relative, columns), shared)

    def _evaluate_relative(self, columns: "_Columns", block: Block, x: Tensor, table: Tensor) -> Tensor:
        if self._is_reordered(columns):
            return shear(x @ table.mT, size(block.keys))
        at = self._column(block, columns)
        if at.shape[-1] * x.shape[-1] <= table.shape[1]:  # with few keys far apart, only the needed columns
            vectors = lookup(table.transpose(1, 2).flatten(0, 1), at).unflatten(0, (len(table), -1))
            return torch.einsum("bhid,hdbij->bhij", x, vectors)
        rows, at = x @ table.mT, at[:, None]
        pairs = torch.broadcast_shapes(rows.shape[:-1], at.shape[:-1])
        return gather_columns(rows.expand(*pairs, -1), at.expand(*pairs, -1))

    def _cumulative(self, prefix_sum: Float[Tensor, "#b #h j"]) -> Part:
        # The gradient of a query's own prefix sum is 0 in exact arithmetic, because its weights sum to 1. It is computed all the
        # same: rounding leaves a remainder in each row, and an encoding that sums over all keys (FoX) would add up these
        # remainders.
        return Part(
            (prefix_sum[..., self.keys - self.queries :], prefix_sum),
            (_select_queries, _select_keys),
            _difference,
            shared=len(prefix_sum) == 1,
            cast_result=True,
        )

    def _evaluate_gated(self, block: Block, query_rate: Tensor, key_rate: Tensor) -> Tensor:
        return -self._distance(block).clamp(min=0)[:, None] * (query_rate[..., None] + key_rate[..., None, :])

    def _is_reordered(self, columns: "_Columns") -> bool:
        return self.span.consecutive and columns.distances is None

    def _reordered(self, table: Float[Tensor, "r n ..."], columns: "_Columns") -> Tensor:
        return (
            along_keys(table, self.keys - 1, 1 - self.queries, columns.first) if self._is_reordered(columns) else table
        )

    def _selector(self, columns: "_Columns") -> Callable[[Tensor, Block], Tensor]:
        return self._window if self._is_reordered(columns) else _whole

    def _window(self, reordered: Tensor, block: Block) -> Tensor:
        start = self.queries - block.rows.stop + block.keys.start
        return reordered[:, start : start + size(block.rows) + size(block.keys) - 1]

    def _by_distance(self, block: Block, table: Float[Tensor, "r n"], columns: "_Columns") -> Float[Tensor, "r #b i j"]:
        if self._is_reordered(columns):
            return slide(table, size(block.keys))[:, None]
        return lookup(table, self._column(block, columns))

    def _column(self, block: Block, columns: "_Columns") -> Int[Tensor, "#b i j"]:
        return forms.column(self._distance(block), columns.count, columns.first, columns.distances)

    def _distance(self, block: Block) -> Int[Tensor, "#b i j"]:
        q, k = _select_rows(self.span.q, block), self.span.k
        k = k[block.batch, block.keys] if len(k) > 1 else k[:, block.keys]
        return q[:, :, None] - k[:, None]


@dataclass(frozen=True)
class _Columns:
    """The distances of a table's columns: first, first + 1, ..., or those that are listed."""

    first: int
    count: int
    distances: Tensor | None = None


def _identity(block: Block, x: Tensor) -> Tensor:
    return x.view_as(x)


def _difference(block: Block, query_sum: Tensor, key_sum: Tensor) -> Tensor:
    return query_sum[..., None] - key_sum[..., None, :]


def _whole(x: Tensor, block: Block) -> Tensor:
    return x


def _select_rows(x: Shaped[Tensor, "#b i"], block: Block) -> Tensor:
    return x[block.batch, block.rows] if len(x) > 1 else x[:, block.rows]


def _select_queries(x: Float[Tensor, "#b #h i *d"], block: Block) -> Tensor:
    return x[block.batch if len(x) > 1 else slice(None), :, block.rows]


def _select_keys(x: Float[Tensor, "#b #h j"], block: Block) -> Tensor:
    return x[block.batch if len(x) > 1 else slice(None), :, block.keys]


def _select_pairs(x: Float[Tensor, "#b #h #i #j"], block: Block) -> Tensor:
    indices = block.batch, slice(None), block.rows, block.keys
    return x[tuple(s if n > 1 else slice(None) for s, n in zip(indices, x.shape, strict=True))]
