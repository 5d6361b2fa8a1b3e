"""Biases of pairs from tables over distances, with backward passes that are fast and deterministic.

Ordinary indexing gives the same values, but its gradient adds into the table pair by pair. That takes longer than the
attention itself, and on a GPU the order of additions varies. If positions are consecutive, the table is reordered to
the distances along the keys (`along_keys`). The row of one query is then a window of it, and that of the previous query
is the window one column further on: `slide` does this for a table, `shear` for the product of every query with the
columns. Their gradients are sums of shifted rows.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.span import Span


def along_keys(
    table: Float[Tensor, "r n ..."], furthest: int, nearest: int, first: int = 0
) -> Float[Tensor, "r m ..."]:
    """Return table[r, distance - first] for the distances furthest, furthest - 1, ..., nearest.

    Distances past either end of the table take the nearest entry.
    """
    last, top, bottom = table.shape[1] - 1, furthest - first, nearest - first
    far = max(0, top - max(last, bottom - 1))
    near = max(0, min(top, -1) - bottom + 1)
    inner = table[:, max(bottom, 0) : max(min(top, last) + 1, 0)].flip(1)
    left, right = (table[:, x : x + 1].expand(-1, n, *table.shape[2:]) for x, n in ((last, far), (0, near)))
    return torch.cat([left, inner, right], 1)


def column(
    distance: Int[Tensor, "*n"], size: int, first: int = 0, distances: Int[Tensor, " n"] | None = None
) -> Int[Tensor, "*n"]:
    """Return the index of each distance's column in a table of `size` columns, clamped at either end."""
    if distances is None:
        return (distance - first).clamp(0, size - 1)
    return (torch.searchsorted(distances, distance.contiguous(), right=True) - 1).clamp(min=0)


class _Slide(torch.autograd.Function):
    """window [r, i + j - 1] -> [r, i, j] with row i = window[:, queries-1-i : queries-1-i + keys]."""

    @staticmethod
    def forward(ctx: Any, window: Tensor, keys: int) -> Tensor:
        size, stride = window.shape, window.stride()
        # `unfold` does the same, but is compiled again for every length.
        shape, strides = (size[0], size[1] - keys + 1, keys), (stride[0], stride[1], stride[1])
        return window.as_strided(shape, strides).flip(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _unshear(grad).sum(-2), None


class _Shear(torch.autograd.Function):
    """rows [..., i, i + j - 1] -> [..., i, j] with row i = rows[i, queries-1-i : queries-1-i + keys]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, keys: int) -> Tensor:
        return _sheared(rows.contiguous(), keys)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return unshear(grad), None


class _Unshear(torch.autograd.Function):
    """pairs [..., i, j] -> [..., i, i + j - 1]: each row at the columns that `shear` reads, with zeros around it."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor) -> Tensor:
        ctx.keys = pairs.shape[-1]
        return _unshear(pairs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return shear(grad, ctx.keys)


def _sheared(rows: Tensor, keys: int) -> Tensor:
    """Return a view of contiguous rows in which each row begins one column further left than the row before."""
    *lead, queries, columns = rows.shape
    shape, strides = (*lead, queries, keys), (*rows.stride()[:-2], columns - 1, 1)
    return rows[..., queries - 1 :].as_strided(shape, strides)


def _unshear(pairs: Tensor) -> Tensor:
    *lead, queries, keys = pairs.shape
    rows = pairs.new_zeros(*lead, queries, queries + keys - 1)
    _sheared(rows, keys).copy_(pairs)
    return rows


def slide(window: Float[Tensor, "r m"], keys: int) -> Float[Tensor, "r i j"]:
    """Return the window of every query: row i begins at the second entry of row i + 1. There are m - keys + 1 rows."""
    return _Slide.apply(window, keys)


def shear(rows: Float[Tensor, "... i m"], keys: int) -> Float[Tensor, "... i j"]:
    """Return the window of every query's own row, with the offsets of `slide`."""
    return _Shear.apply(rows, keys)


def unshear(pairs: Float[Tensor, "... i j"]) -> Float[Tensor, "... i m"]:
    """Return the transpose of `shear`: the values of each row at their columns, zeros elsewhere."""
    return _Unshear.apply(pairs)


class _Lookup(torch.autograd.Function):
    """table [r, n], index [...] -> [r, ...]."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.entries = table.shape[1]
        return table.index_select(1, index.flatten()).view(len(table), *index.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return _sums(index, grad, ctx.entries), None


def lookup(table: Float[Tensor, "r n"], index: Int[Tensor, "b i j"]) -> Float[Tensor, "r b i j"]:
    """Return table[r, index]."""
    return _Lookup.apply(table, index)


def scatter_is_deterministic(x: Tensor) -> bool:
    """Whether scatter_add_ adds in a fixed order on this device. Elsewhere index_put_ is used, which sorts first."""
    return x.device.type == "cpu"


def _sums(index: Tensor, grad: Tensor, entries: int) -> Tensor:
    """Return the sums of grad [r, ...] over each index, [r, entries]."""
    flat = index.flatten()
    if not scatter_is_deterministic(grad):
        sums = torch.zeros(entries, len(grad), dtype=grad.dtype, device=grad.device)
        return sums.index_put_((flat.long(),), grad.flatten(1).T, accumulate=True).T
    # In float64, because up to a million numbers are added to a few sums, one after the other.
    sums = grad.new_zeros(len(grad), entries, dtype=torch.float64)
    return sums.scatter_add_(1, flat.long().expand(len(grad), -1), grad.flatten(1).double()).to(grad.dtype)


class _GatherColumns(torch.autograd.Function):
    """rows [..., n], column [..., j] -> [..., j]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, column: Tensor) -> Tensor:
        ctx.save_for_backward(column)
        ctx.entries = rows.shape[-1]
        return rows.gather(-1, column)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (column,) = ctx.saved_tensors
        return _scatter_columns(grad, column, ctx.entries), None


class _ScatterColumns(torch.autograd.Function):
    """pairs [..., j], column [..., j] -> [..., n]: the sum over the pairs of each column."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, column: Tensor, entries: int) -> Tensor:
        ctx.save_for_backward(column)
        return _scatter_columns(pairs, column, entries)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (column,) = ctx.saved_tensors
        return grad.gather(-1, column), None, None


def _scatter_columns(pairs: Tensor, column: Tensor, entries: int) -> Tensor:
    *lead, _ = pairs.shape
    if scatter_is_deterministic(pairs):
        return pairs.new_zeros(*lead, entries).scatter_add_(-1, column, pairs)
    row = torch.arange(pairs[..., 0].numel(), device=pairs.device).view(*lead, 1) * entries
    sums = pairs.new_zeros(pairs[..., 0].numel() * entries)
    return sums.index_put_(((column + row).flatten(),), pairs.flatten(), accumulate=True).view(*lead, entries)


def gather_columns(rows: Float[Tensor, "... i n"], column: Int[Tensor, "... i j"]) -> Float[Tensor, "... i j"]:
    """Return rows[..., column] for every query."""
    return _GatherColumns.apply(rows, column)


def scatter_columns(
    pairs: Float[Tensor, "... i j"], column: Int[Tensor, "... i j"], entries: int
) -> Float[Tensor, "... i n"]:
    """Return the transpose of `gather_columns`: for each row, the sum of the pairs of each column."""
    return _ScatterColumns.apply(pairs, column, entries)


class _PiecewiseLinear(torch.autograd.Function):
    """x [...], s [...], slope [h, s], intercept [h, s] -> slope[h, s] x + intercept[h, s], [h, ...]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, s: Tensor, slope: Tensor, intercept: Tensor) -> Tensor:
        ctx.save_for_backward(x, s, slope)
        flat, shape = s.flatten(), (len(slope), *x.shape)
        out = slope.index_select(1, flat).view(shape).mul_(x)
        return out.add_(intercept.index_select(1, flat).view(shape))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor]:
        x, s, slope = ctx.saved_tensors
        entries, dx = slope.shape[1], None
        if ctx.needs_input_grad[0]:
            dx = torch.zeros_like(x)
            for row, a in zip(grad, slope, strict=True):
                dx.addcmul_(row, a.index_select(0, s.flatten()).view(x.shape))
        return dx, None, _sums(s, grad * x, entries), _sums(s, grad, entries)


def by_distance(
    table: Float[Tensor, "r n"], span: Span, first: int = 0, distances: Int[Tensor, " n"] | None = None
) -> Float[Tensor, "r b i j"]:
    """Return the table's entry for the distance of every pair; a distance past either end takes the nearest entry."""
    if distances is None and span.lag is not None:
        return slide(columns_of(table, span, first), span.k.shape[1])[:, None]
    return lookup(table, column(span.distance(), table.shape[1], first, distances))


def columns_of(table: Float[Tensor, "r n ..."], span: Span, first: int) -> Float[Tensor, "r m ..."]:
    """Return the columns of a table for the distances of a span with a `lag`, the largest distance first."""
    assert span.lag is not None
    return along_keys(table, span.lag + span.q.shape[1] - 1, span.lag - span.k.shape[1] + 1, first)


def products(
    x: Float[Tensor, "#b #h i d"],
    table: Float[Tensor, "#h n d"],
    span: Span,
    first: int = 0,
    distances: Int[Tensor, " n"] | None = None,
) -> Float[Tensor, "#b #h i j"]:
    """Return <x_i, the table's entry for the distance of the pair>."""
    if distances is None and span.lag is not None:
        return shear(x @ columns_of(table, span, first).mT, span.k.shape[1])
    at = column(span.distance(), table.shape[1], first, distances)
    if at.shape[-1] * x.shape[-1] <= table.shape[1]:  # with few keys far apart, only the needed columns
        vectors = lookup(table.transpose(1, 2).flatten(0, 1), at).unflatten(0, (len(table), -1))
        return torch.einsum("bhid,hdbij->bhij", x, vectors)
    rows, at = x @ table.mT, at[:, None]
    pairs = torch.broadcast_shapes(rows.shape[:-1], at.shape[:-1])
    return gather_columns(rows.expand(*pairs, -1), at.expand(*pairs, -1))


def weighted_sums(
    weights: Float[Tensor, "b h i j"], table: Float[Tensor, "#h n d"], span: Span, first: int = 0
) -> Float[Tensor, "b h i d"]:
    """Return the sum over the keys of each weight times the table's entry for the distance of the pair."""
    if span.lag is not None:
        return unshear(weights) @ columns_of(table, span, first)
    at = column(span.distance(), table.shape[1], first)[:, None].expand_as(weights)
    return scatter_columns(weights, at, table.shape[1]) @ table


def piecewise_linear(
    slope: Float[Tensor, "h s"],
    intercept: Float[Tensor, "h s"],
    knots: Float[Tensor, " s-1"],
    x: Float[Tensor, "b i j"],
) -> Float[Tensor, "h b i j"]:
    """Return slope[h, s] x + intercept[h, s], where s is the number of knots <= x."""
    s: Int[Tensor, "b i j"] = torch.bucketize(x.detach().contiguous(), knots.detach(), right=True, out_int32=True)
    return _PiecewiseLinear.apply(x, s, slope, intercept)
