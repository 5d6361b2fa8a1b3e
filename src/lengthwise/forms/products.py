"""The products: forms that take the place of the product of a rotated query and a rotated key."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.forms.rotation import Rotation


@dataclass(frozen=True)
class HouseholderProduct:
    """The product of query i and key j is `<q_i, H_i H_i-1 ... H_j+1 k_j>` with H_t = I - beta_t w_t w_tᵀ, for PaTH.

    The matrices are those of the tokens after the key, up to the query, in the query's document; `documents` is None if all
    keys belong to one document. The queries are the last tokens. With |w_t| at most 1 and beta_t in [0, 2], no H_t makes a vector
    longer.
    """

    w: Float[Tensor, "#b #h j d"]
    beta: Float[Tensor, "#b #h j"]
    documents: Int[Tensor, "#b j"] | None = None


@dataclass(frozen=True)
class DecayProduct:
    """The product of query i and key j is `Σ_n q_in k_jn exp(prefix_sum_in - prefix_sum_jn)`, for Wall attention.

    The difference is what a running sum over the tokens of a document gained between a key and its query: the logarithm of a decay
    for each channel n. The sum never increases within a document. The queries are the last tokens, and `documents` is None if all
    keys belong to one document. Backends subtract before they round, because the sums can be large while their differences are
    small, and never take the exponential of a number above 0.
    """

    prefix_sum: Float[Tensor, "#b #h j d"]
    documents: Int[Tensor, "#b j"] | None = None


@dataclass(frozen=True)
class PiecewiseRotation:
    """Rotate q and k of each pair of a query and a key by one of several rotations, for maps of distances such as Self-Extend.

    `region(q, k)` returns the index of the rotation of every pair, [b|1, i, j], from the position IDs of queries [b|1, i] and keys
    [b|1, j], which may be those of a part of the call. So the product of a pair is the one that its own rotation gives alone.
    """

    rotations: tuple[Rotation, ...]
    region: Callable[[Tensor, Tensor], Tensor]
    bidirectional: bool = False


Product = PiecewiseRotation | HouseholderProduct | DecayProduct
