"""Forms with a vector for each distance: products with a vector of the query, and what is added to values."""

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.base import Form, Term
from lengthwise.forms.pairs import Pair, column_of_pair, reader
from lengthwise.forms.plain import PairIndex, dot, entry
from lengthwise.forms.tables import column, products, weighted_sums
from lengthwise.span import Span


class VectorBias(Term):
    """Base class of terms `+ <vector of query i, table[h, distance - first]>`.

    Distances past either end take the nearest column.
    """

    table: Float[Tensor, "#h n d"]
    first: int
    distances: Int[Tensor, " n"] | None

    kernel = "vectors"

    @property
    def bidirectional(self) -> bool:
        return self.first < 0

    @abstractmethod
    def query_vectors(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "#b #h i r"]:
        """Return the vector of every query."""

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h i j"]:
        at = column(span.distance(), self.table.shape[1], self.first, self.distances)
        return _products(self.query_vectors(q), self.table, at)


@dataclass(frozen=True)
class RelativeKeyBias(VectorBias):
    """`+ scale · <q_i + vector[h], table[h, distance - first]>`, for Shaw and Transformer-XL.

    Only Transformer-XL has a `vector`; None means zeros. Distances past either end take the nearest column.
    """

    table: Float[Tensor, "#h n d"]
    first: int = 0
    vector: Float[Tensor, "h d"] | None = None
    distances: Int[Tensor, " n"] | None = None
    # Tables that a backend derived from `table`, reused as long as this form is.
    derived: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    cost = ("a vector for each distance: O(n d), or O(h n d) if heads differ", "O(h n² d)")
    cacheable = True
    reads_q = True

    @property
    def has_bias(self) -> bool:
        return self.vector is not None

    def query_vectors(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return q if self.vector is None else q + self.vector[:, None].to(q.dtype)

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h i j"]:
        return super().dense(q, k, span, scale) * scale

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        added = [0.0] * len(q) if self.vector is None else self.vector[index[1]].tolist()
        vector = entry(self.table, index[1], distance, self.first, self.distances).tolist()
        return scale * dot([x + y for x, y in zip(q, added, strict=True)], vector)

    def bind_content(self, q: Tensor, k: Tensor, scale: float) -> "ContentBias":
        return ContentBias(self.query_vectors(q) * scale, self.table, self.first, self.distances)


@dataclass(frozen=True)
class ContentBias(VectorBias):
    """`+ <content_i, table[h, distance - first]>`, for the banded bias.

    `content` holds features of each query that the encoding computed from the layer's input. Distances past either end
    take the nearest column.
    """

    content: Float[Tensor, "b h i r"]
    table: Float[Tensor, "#h n r"]
    first: int = 0
    distances: Int[Tensor, " n"] | None = None

    cost = ("r numbers for each distance and query: O(n r), or O(h n r) if heads differ", "O(h n² r)")

    def query_vectors(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i r"]:
        return self.content

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        b, h, i, _ = index
        return dot(self.content[b, h, i].tolist(), entry(self.table, h, distance, self.first, self.distances).tolist())

    def block(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h i j"]:
        return products(self.content, self.table, span, self.first, self.distances)

    def pair(self, q: Tensor, k: Tensor, span: Span, scale: float, dtype: torch.dtype) -> Pair:
        """Return the products as a function of one pair. Mods cannot use vectors, so the products are computed here."""
        columns = self.table.shape[1]
        if self.distances is not None or columns > span.k.shape[1]:  # a value for every key is smaller
            return super().pair(q, k, span, scale, dtype)
        x, table = self.content.to(dtype), self.table.to(dtype).expand(self.content.shape[1], -1, -1)
        rows, column_of = reader(torch.einsum("bhid,hnd->bhin", x, table)), column_of_pair(span, self.first, columns)
        return lambda b, h, i, j: rows(b, h, i, column_of(b, h, i, j))


@dataclass(frozen=True)
class RelativeValues(Form):
    """Add `Σ_j weight[i, j] · table[h, distance - first]` to the output, for Shaw.

    Distances past either end take the nearest column.
    """

    table: Float[Tensor, "#h n d"]
    first: int = 0

    cost = ("a vector for each distance: O(n d)", "O(h n² d)")
    cacheable = True

    @property
    def bidirectional(self) -> bool:
        return self.first < 0

    def dense(self, weights: Float[Tensor, "b h i j"], span: Span) -> Float[Tensor, "b h i d"]:
        """Return what is added to the output."""
        # Sum the weights of each column first; a vector for every pair would take d times the memory of the weights.
        index = column(span.distance(), self.table.shape[1], self.first)[:, None].expand_as(weights)
        share = weights.new_zeros(*weights.shape[:-1], self.table.shape[1]).scatter_add(-1, index, weights)
        return share @ self.table.to(weights.dtype)

    def block(self, weights: Float[Tensor, "b h i j"], span: Span) -> Float[Tensor, "b h i d"]:
        """Return the same in a faster way; see `Term.block`."""
        return weighted_sums(weights, self.table, span, self.first)


def _products(
    x: Float[Tensor, "b h i d"], table: Float[Tensor, "#h n d"], index: Int[Tensor, "#b i j"]
) -> Float[Tensor, "b h i j"]:
    """Return <x_i, table[h, index]>."""
    # With few keys far apart, only the needed columns are read. Compiled graphs serve all lengths, so they do not
    # branch on it.
    if not torch.compiler.is_compiling() and index.shape[-1] * x.shape[-1] <= table.shape[1]:
        vectors = table[:, index].to(x.dtype).transpose(0, 1)  # [b, h, i, j, d]
        return torch.einsum("bhid,bhijd->bhij", x, vectors)
    rows = torch.einsum("bhid,hnd->bhin", x, table.to(x.dtype).expand(x.shape[1], -1, -1))
    return rows.gather(-1, index[:, None].expand(*rows.shape[:3], -1))
