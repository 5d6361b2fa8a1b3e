"""The terms: what encodings add to logits. All of them are in nats."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.products import DecayProduct, HouseholderProduct


@dataclass(frozen=True)
class ToeplitzBias:
    """`+ table[h, distance - first]`, for ALiBi, T5, KERPLE and Sandwich.

    A distance past either end of the table takes the nearest column.
    """

    table: Float[Tensor, "#h n"]
    first: int = 0
    distances: Int[Tensor, " n"] | None = None
    # Tables that a backend derived from `table`, reused as long as this form is.
    derived: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class PiecewiseLinearBias:
    """`+ slope[h, s] · x + intercept[h, s]`, with the coordinate x = distance_feature[i−j] · query_scale[i], for FIRE.

    The bias is piecewise linear in x. The knots separate its segments, ascend, and are shared by all heads; s is the number of
    knots that are <= x. `distance_feature` has one entry per distance, `query_scale` one per query. A distance past either end of
    `distance_feature` takes the nearest entry.

    `exact`: the function of x that the segments approximate, x [..., 1] -> [..., h]; None if the segments are exact. It
    defines the result, so the reference evaluates it for every pair. Other backends use the segments. The encoding that
    builds them documents their error.
    """

    slope: Float[Tensor, "#h s"]
    intercept: Float[Tensor, "#h s"]
    knots: Float[Tensor, " s-1"]
    distance_feature: Float[Tensor, " n"]
    query_scale: Float[Tensor, "#b i"]
    exact: Callable[[Tensor], Tensor] | None = None
    distances: Int[Tensor, " n"] | None = None


@dataclass(frozen=True)
class RelativeKeyBias:
    """`+ scale · <q_i + vector[h], table[h, distance - first]>`, for Shaw and Transformer-XL.

    Only Transformer-XL has a `vector`; None means zeros. Distances past either end take the nearest column.
    """

    table: Float[Tensor, "#h n d"]
    first: int = 0
    vector: Float[Tensor, "h d"] | None = None
    distances: Int[Tensor, " n"] | None = None
    # Tables that a backend derived from `table`, reused as long as this form is.
    derived: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class ContentBias:
    """`+ <content_i, table[h, distance - first]>`, for the banded bias.

    `content` holds features of each query that the encoding computed from the layer's input. Distances past either end take
    the nearest column.
    """

    content: Float[Tensor, "b h i r"]
    table: Float[Tensor, "#h n r"]
    first: int = 0


@dataclass(frozen=True)
class KeyBias:
    """`+ scale · <vector[h], k_j>`, for Transformer-XL."""

    vector: Float[Tensor, "h d"]


@dataclass(frozen=True)
class GatedDistanceBias:
    """`- slope[h] · max(0, i - j) · (softplus(<query_vector[h], q_i>) + softplus(<key_vector[h], k_j>))`, for GRAPE-A.

    i and j are position IDs. None omits the summand of the queries or of the keys.
    """

    slope: Float[Tensor, " h"]
    query_vector: Float[Tensor, "h d"] | None = None
    key_vector: Float[Tensor, "h d"] | None = None


@dataclass(frozen=True)
class CumulativeBias:
    """`+ prefix_sum[b|1, h|1, index of i] - prefix_sum[b|1, h|1, j]`, for FoX.

    The bias is what a running sum over the keys gained between a key and its query. The queries are the last tokens; `index
    of i` is the index of query i among the keys. Backends subtract before they round, because the sums can be large while
    their differences are small.
    """

    prefix_sum: Float[Tensor, "#b #h j"]


@dataclass(frozen=True)
class DenseBias:
    """`+ bias[b|1, h|1, i, j]`, for biases that no table over distances can express."""

    bias: Float[Tensor, "#b #h i j"]
    bidirectional: bool = False


def column(
    distance: Int[Tensor, "*n"], size: int, first: int = 0, distances: Int[Tensor, " n"] | None = None
) -> Int[Tensor, "*n"]:
    """Return the index of each distance's column in a table of `size` columns, clamped at either end."""
    if distances is None:
        return (distance - first).clamp(0, size - 1)
    return (torch.searchsorted(distances, distance.contiguous(), right=True) - 1).clamp(min=0)


def num_heads(form: "Term | HouseholderProduct | DecayProduct") -> int:
    """Return how many heads a form has; 1 if all heads share it."""
    match form:
        case ContentBias(content=x) | DenseBias(bias=x) | CumulativeBias(prefix_sum=x):
            return x.shape[1]
        case HouseholderProduct(w=x) | DecayProduct(prefix_sum=x):
            return x.shape[1]
        case ToeplitzBias(table=x) | RelativeKeyBias(table=x) | PiecewiseLinearBias(slope=x) | KeyBias(vector=x):
            return len(x)
        case GatedDistanceBias(slope=x):
            return len(x)


Term = (
    ToeplitzBias
    | PiecewiseLinearBias
    | RelativeKeyBias
    | ContentBias
    | KeyBias
    | GatedDistanceBias
    | CumulativeBias
    | DenseBias
)
