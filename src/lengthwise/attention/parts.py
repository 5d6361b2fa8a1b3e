"""The forms as differentiable functions of one block of queries and keys, for blocked.py.

A table over distances is, where positions are consecutive, laid along the keys once; a block has a window of it. Elsewhere
every pair looks up its column.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from lengthwise.attention.reference import dense
from lengthwise.attention.tables import along, look, of_pieces, shear, slide, spread, take, unshear
from lengthwise.forms import (
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    RelativeValues,
    Term,
    ToeplitzBias,
    column,
)
from lengthwise.span import Span


@dataclass(frozen=True)
class Block:
    """Some queries of some rows of the batch, and the keys that they may see."""

    batch: slice
    rows: slice
    keys: slice


def size(of: slice) -> int:
    return int(of.stop - of.start)


@dataclass(frozen=True)
class Part:
    """A form: its tensors, what of each belongs to a block (a view), and what follows for the block.

    A term: of(block, *cuts) -> [b|1, h|1, i|1, j], added to the logits. Values: of(block, *cuts, weights) -> [b, h, i, d],
    added to the output. What is cut is cast to the dtype that is computed in; the tensors, and so what their gradients are
    added up in, keep theirs. `shared`: it says the same to all rows of the batch. `wide`: what follows is cast, and not what
    is cut.
    """

    tensors: tuple[Tensor, ...]
    cuts: tuple[Callable[[Tensor, Block], Tensor], ...]
    of: Callable[..., Tensor]
    shared: bool = False
    wide: bool = False


class Parts:
    """The parts of the forms for one span."""

    def __init__(self, span: Span):
        self.span = span
        self.queries, self.keys = span.q.shape[1], span.k.shape[1]

    def term(self, term: Term, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], scale: float) -> Part:
        """q and k as they are before rotation."""
        match term:
            case ToeplitzBias(table, first, distances):
                return self._toeplitz(table, _Columns(first, table.shape[1], distances))
            case PiecewiseLinearBias():
                return self._progressive(term)
            case RelativeKeyBias(table, first, vector, distances):
                q = q if vector is None else q + vector.to(q.dtype)[:, None]
                return self._relative(q * scale, table, _Columns(first, table.shape[1], distances))
            case ContentBias(content, table, first):
                return self._relative(content, table, _Columns(first, table.shape[1]))
            case CumulativeBias(total):
                return self._cumulative(total)
            case DenseBias(bias):
                return Part((bias,), (_of_pairs,), _alone, shared=len(bias) == 1)
            case KeyBias():
                return Part((dense(term, q, k, self.span, scale),), (_of_pairs,), _alone)
        raise AssertionError(f"a term that is not in the vocabulary: {term}")

    def value(self, value: RelativeValues) -> Part:
        """What of a query's weight falls to each column, times the columns."""
        columns = _Columns(value.first, value.table.shape[1])

        def of(block: Block, table: Tensor, weights: Tensor) -> Tensor:
            if self._lays(columns):
                return unshear(weights) @ table
            at = self._column(block, columns)[:, None].expand_as(weights)
            return spread(weights, at, columns.count) @ table

        return Part((self._laid(value.table, columns),), (self._cut(columns),), of)

    def _toeplitz(self, table: Float[Tensor, "h n"], columns: "_Columns") -> Part:
        def of(block: Block, table: Tensor) -> Tensor:
            return self._of_distance(block, table, columns).transpose(0, 1)

        return Part((self._laid(table, columns),), (self._cut(columns),), of, shared=len(self.span.q) == 1)

    def _progressive(self, bias: PiecewiseLinearBias) -> Part:
        columns = _Columns(0, len(bias.u), bias.distances)

        def of(block: Block, slope: Tensor, intercept: Tensor, u: Tensor, w: Tensor) -> Tensor:
            x = self._of_distance(block, u, columns)[0] * w[..., None]
            return of_pieces(slope, intercept, bias.knots.to(x.dtype), x).transpose(0, 1)

        tensors = bias.slope, bias.intercept, self._laid(bias.u[None], columns), bias.w
        shared = len(self.span.q) == len(bias.w) == 1
        return Part(tensors, (_whole, _whole, self._cut(columns), _of_rows), of, shared)

    def _relative(self, x: Float[Tensor, "#b #h i d"], table: Float[Tensor, "#h n d"], columns: "_Columns") -> Part:
        """<x_i, table[h, column of the distance]>"""

        def of(block: Block, x: Tensor, table: Tensor) -> Tensor:
            if self._lays(columns):
                return shear(x @ table.mT, size(block.keys))
            at = self._column(block, columns)
            if at.shape[-1] * x.shape[-1] <= table.shape[1]:  # few keys far apart: only what they ask for
                asked = look(table.transpose(1, 2).flatten(0, 1), at).unflatten(0, (len(table), -1))
                return torch.einsum("bhid,hdbij->bhij", x, asked)
            rows, at = x @ table.mT, at[:, None]
            pairs = torch.broadcast_shapes(rows.shape[:-1], at.shape[:-1])
            return take(rows.expand(*pairs, -1), at.expand(*pairs, -1))

        shared = len(self.span.q) == len(x) == 1
        return Part((x, self._laid(table, columns)), (_of_queries, self._cut(columns)), of, shared)

    def _cumulative(self, total: Float[Tensor, "#b #h j"]) -> Part:
        # The gradient of a query's own total is 0 in exact arithmetic, because its weights sum to 1. It is computed all the same:
        # rounding leaves a rest in each row, and an encoding that sums over all keys (FoX) would add up these rests.
        def of(block: Block, of_query: Tensor, of_key: Tensor) -> Tensor:
            return of_query[..., None] - of_key[..., None, :]

        return Part(
            (total[..., self.keys - self.queries :], total),
            (_of_query_columns, _of_keys),
            of,
            shared=len(total) == 1,
            wide=True,
        )

    def _lays(self, columns: "_Columns") -> bool:
        """Whether a table is laid along the keys."""
        return self.span.consecutive and columns.distances is None

    def _laid(self, table: Float[Tensor, "r n ..."], columns: "_Columns") -> Tensor:
        return along(table, self.keys - 1, 1 - self.queries, columns.first) if self._lays(columns) else table

    def _cut(self, columns: "_Columns") -> Callable[[Tensor, Block], Tensor]:
        return self._window if self._lays(columns) else _whole

    def _window(self, laid: Tensor, block: Block) -> Tensor:
        start = self.queries - block.rows.stop + block.keys.start
        return laid[:, start : start + size(block.rows) + size(block.keys) - 1]

    def _of_distance(self, block: Block, table: Float[Tensor, "r n"], columns: "_Columns") -> Float[Tensor, "r #b i j"]:
        if self._lays(columns):
            return slide(table, size(block.keys))[:, None]
        return look(table, self._column(block, columns))

    def _column(self, block: Block, columns: "_Columns") -> Int[Tensor, "#b i j"]:
        """Which column of a table each pair takes."""
        q, k = _of_rows(self.span.q, block), self.span.k
        k = k[block.batch, block.keys] if len(k) > 1 else k[:, block.keys]
        return column(q[:, :, None] - k[:, None], columns.count, columns.first, columns.distances)


@dataclass(frozen=True)
class _Columns:
    """The distances of a table's columns: first, first + 1, ..., or those that are listed."""

    first: int
    count: int
    distances: Tensor | None = None


def _alone(block: Block, x: Tensor) -> Tensor:
    return x.view_as(x)


def _whole(x: Tensor, block: Block) -> Tensor:
    return x


def _of_rows(x: Shaped[Tensor, "#b i"], block: Block) -> Tensor:
    return x[block.batch, block.rows] if len(x) > 1 else x[:, block.rows]


def _of_queries(x: Float[Tensor, "#b #h i d"], block: Block) -> Tensor:
    return x[block.batch if len(x) > 1 else slice(None), :, block.rows]


def _of_keys(x: Float[Tensor, "#b #h j"], block: Block) -> Tensor:
    return _of_columns(x, block, block.keys)


def _of_query_columns(x: Float[Tensor, "#b #h i"], block: Block) -> Tensor:
    return _of_columns(x, block, block.rows)


def _of_columns(x: Float[Tensor, "#b #h n"], block: Block, columns: slice) -> Tensor:
    return x[block.batch if len(x) > 1 else slice(None), :, columns]


def _of_pairs(x: Float[Tensor, "#b #h #i #j"], block: Block) -> Tensor:
    wanted = block.batch, slice(None), block.rows, block.keys
    return x[tuple(s if n > 1 else slice(None) for s, n in zip(wanted, x.shape, strict=True))]
