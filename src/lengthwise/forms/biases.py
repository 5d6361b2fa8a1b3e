"""The terms that add a number to the logit of each pair."""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from lengthwise.forms.base import Term
from lengthwise.forms.pairs import Pair, column_of_pair, key_index, reader
from lengthwise.forms.plain import PairIndex, dot, entry, number
from lengthwise.forms.tables import by_distance, column
from lengthwise.span import Span


@dataclass(frozen=True)
class ToeplitzBias(Term):
    """`+ table[h, distance - first]`, for ALiBi, T5, KERPLE and Sandwich.

    A distance past either end of the table takes the nearest column.
    """

    table: Float[Tensor, "#h n"]
    first: int = 0
    distances: Int[Tensor, " n"] | None = None
    # Tables that a backend derived from `table`, reused as long as this form is.
    derived: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    cost = ("a table over distances: O(h n)", "O(h n²) additions")
    cacheable = True
    kernel = "table"

    @property
    def bidirectional(self) -> bool:
        return self.first < 0

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b #h i j"]:
        return self.table[:, column(span.distance(), self.table.shape[1], self.first, self.distances)].transpose(0, 1)

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        return float(entry(self.table, index[1], distance, self.first, self.distances))

    def block(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b #h i j"]:
        return by_distance(self.table, span, self.first, self.distances).transpose(0, 1)

    def pair(self, q: Tensor, k: Tensor, span: Span, scale: float, dtype: torch.dtype) -> Pair:
        if self.distances is not None:
            # A mod cannot search the listed distances, and a value for every pair is smaller than a table of all
            # distances.
            return super().pair(q, k, span, scale, dtype)
        read, column_of = reader(self.table.to(dtype)), column_of_pair(span, self.first, self.table.shape[1])
        return lambda b, h, i, j: read(h, column_of(b, h, i, j))


@dataclass(frozen=True)
class KeyBias(Term):
    """`+ scale · <vector[h], k_j>`, for Transformer-XL."""

    vector: Float[Tensor, "h d"]

    cost = ("a vector for each head: O(h d)", "O(n h d)")
    cacheable = bidirectional = True
    reads_k = True
    kernel = "query vector"

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h 1 j"]:
        return self.bind_content(q, k, scale).bias

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        return scale * dot(k, self.vector[index[1]].tolist())

    def bind_content(self, q: Tensor, k: Tensor, scale: float) -> "DenseBias":
        return DenseBias(torch.einsum("hd,bhjd->bhj", self.vector.to(k.dtype), k)[:, :, None] * scale)


@dataclass(frozen=True)
class GatedDistanceBias(Term):
    """`- slope[h] · max(0, i - j) · (softplus(<query_vector[h], q_i>) + softplus(<key_vector[h], k_j>))`, for GRAPE-A.

    i and j are position IDs. None omits the summand of the queries or of the keys.
    """

    slope: Float[Tensor, " h"]
    query_vector: Float[Tensor, "h d"] | None = None
    key_vector: Float[Tensor, "h d"] | None = None

    cost = ("two vectors for each head: O(h d)", "O(n h d) and O(h n²) additions")
    reads_q = reads_k = True

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h i j"]:
        return self.bind_content(q, k, scale).dense(q, k, span, scale)

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        pairs, h = ((q, self.query_vector), (k, self.key_vector)), index[1]
        gates = [math.log1p(math.exp(dot(x, vector[h].tolist()))) for x, vector in pairs if vector is not None]
        return -float(self.slope[h]) * max(0, distance) * sum(gates)

    def bind_content(self, q: Tensor, k: Tensor, scale: float) -> "DistanceRates":
        return DistanceRates(self._rates(q, self.query_vector), self._rates(k, self.key_vector))

    def _rates(self, x: Tensor, vector: Tensor | None) -> Float[Tensor, "#b #h t"]:
        """Return what each query or key contributes to the slope of a pair."""
        if vector is None:
            return x.new_zeros(1, 1, x.shape[2])
        # A sum of products, because in compiled graphs einsum makes views that the strides of q do not allow.
        return softplus((x * vector.to(x.dtype)[:, None]).sum(-1)) * self.slope.to(x.dtype)[:, None]


@dataclass(frozen=True)
class DistanceRates(Term):
    """`- max(0, i - j) · (query_rate[i] + key_rate[j])`: a `GatedDistanceBias` for one q and k."""

    query_rate: Float[Tensor, "#b #h i"]
    key_rate: Float[Tensor, "#b #h j"]

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "b h i j"]:
        distance = span.distance().clamp(min=0)[:, None]
        return -distance * (self.query_rate[..., None] + self.key_rate[..., None, :])


@dataclass(frozen=True)
class CumulativeBias(Term):
    """`+ prefix_sum[b|1, h|1, index of i] - prefix_sum[b|1, h|1, j]`, for FoX.

    The bias is what a running sum over the keys gained between a key and its query. The queries are the last tokens;
    `index of i` is the index of query i among the keys. Backends subtract before they round, because the sums can be
    large while their differences are small.
    """

    prefix_sum: Float[Tensor, "#b #h j"]

    cost = ("a number for every key: O(h n)", "O(h n)")
    keeps_dtype = True
    kernel = "arguments"

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "#b #h i j"]:
        return self.prefix_sum[..., -span.q.shape[1] :, None] - self.prefix_sum[..., None, :]

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        b, h, i, j = index
        return number(self.prefix_sum, b, h, i) - number(self.prefix_sum, b, h, j)

    def pair(self, q: Tensor, k: Tensor, span: Span, scale: float, dtype: torch.dtype) -> Pair:
        """Return the bias of one pair. Each sum is split into a high and a low part, for accurate differences."""
        high = self.prefix_sum.detach().to(dtype)
        read_high, read_low = reader(high), reader((self.prefix_sum - high).to(dtype))
        index_of = key_index(span.q.shape[1], span.k.shape[1], high.device)

        @no_type_check
        def pair(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            i = index_of(i)
            return (read_high(b, h, i) - read_high(b, h, j)) + (read_low(b, h, i) - read_low(b, h, j))

        return pair


@dataclass(frozen=True)
class DenseBias(Term):
    """`+ bias[b|1, h|1, i, j]`, for biases that no table over distances can express."""

    bias: Float[Tensor, "#b #h i j"]
    bidirectional: bool = False

    cost = ("a number for every pair: O(h n²)", "O(h n²)")

    def dense(self, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "#b #h i j"]:
        return self.bias

    def plain_value(self, index: PairIndex, q: list[float], k: list[float], distance: int, scale: float) -> float:
        return number(self.bias, *index)
