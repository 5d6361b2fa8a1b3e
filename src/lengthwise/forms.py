"""The forms: everything that a position encoding can do to one attention call.

An encoding describes itself in these forms. An attention backend implements the forms and knows nothing of encodings.
Tables and angles are float64 where the device supports it (`table_dtype`). A backend casts them to its own precision, at
least float32.

The logit of query i and key j in head h is

    gain_i · scale · <rotated q_i, rotated k_j>  +  every term(h, i, j)

where the terms read q and k before rotation. A form of `Product` takes the place of the product of rotated vectors. Terms are
in nats: they are added after scaling. The weights are the softmax of the logits over the visible keys and, if there is one, the
logit of a sink.

A table over distances begins at the distance `first`. If `first` is below 0, the table also has values for keys after the
query and serves both directions; with `first = 0` it serves causal masks only. Its columns are the distances first,
first + 1, ..., or those that `distances` lists in ascending order. Encodings list distances if positions lie so far apart
that few of the distances between them occur; every distance that occurs is then listed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from lengthwise.products import DecayProduct as DecayProduct
from lengthwise.products import HouseholderProduct as HouseholderProduct
from lengthwise.span import Span
from lengthwise.values import ConfigError


def table_dtype(device: torch.device | str | None) -> torch.dtype:
    """Return the dtype of tables and angles on a device: float64, or float32 if the device has no float64."""
    return torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64


@dataclass(frozen=True)
class Rotation:
    """Rotate pairs of the first `2 · angle.shape[-1]` dims of q and k, then multiply them by a gain.

    Angles are in radians, [b|1, groups, i|j, pairs]; None leaves q or k unrotated. The number of groups divides the number of
    heads, and consecutive heads form a group with the same angles. A gain is a number or broadcasts to the angle. `layout`:
    "interleaved" pairs dims (2p, 2p+1), "half" pairs (p, p + pairs).

    `polar`: every dim x of q and k is first replaced by the pair (softplus(x), 0), so there are as many pairs as dims, and the
    rotated vectors have twice as many dims. They begin with the first number of each pair.
    """

    angle_q: Float[Tensor, "..."] | None = None
    angle_k: Float[Tensor, "..."] | None = None
    gain_q: Float[Tensor, "..."] | float | None = None
    gain_k: Float[Tensor, "..."] | float | None = None
    layout: Literal["interleaved", "half"] = "interleaved"
    bidirectional: bool = True  # False: gains that grow without bound for keys after the query
    polar: bool = False
    # What `cos_sin` and `_factors` return for each side and dtype, computed once for all layers that share this rotation. (A
    # `cached_property` has a lock in Python 3.11, and torch.compile does not go through locks.)
    _cos_sin_cache: dict[tuple[str, torch.dtype], Tensor] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _factor_cache: dict[tuple[str, torch.dtype], tuple[Tensor, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def rotate_query(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i width"]:
        """Return the rotated queries."""
        _require_float16_range(q, self.gain_q)
        return self._rotate("q", q)

    def rotate_key(self, k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h j width"]:
        """Return the rotated keys."""
        _require_float16_range(k, self.gain_k)
        return self._rotate("k", k)

    def key_heads(self, *tensors: Float[Tensor, "b g j d"]) -> tuple[Float[Tensor, "b h j d"], ...]:
        """Return keys or values, repeated if there are more groups of heads with angles of their own than heads of keys.

        With grouped-query attention, query heads with different angles share a key, which each of them sees rotated by its own.
        """
        groups = 1 if self.angle_k is None else self.angle_k.shape[1]
        heads = tensors[0].shape[1]
        return tensors if groups <= heads else tuple(x.repeat_interleave(groups // heads, 1) for x in tensors)

    def dims(self, angle: Tensor) -> int:
        """Return the number of dims of q or k that its angle rotates."""
        return angle.shape[-1] * (1 if self.polar else 2)

    @property
    def same_for_keys(self) -> bool:
        """Whether queries and keys are known to have the same angles and gains, because they are the same tokens."""
        return self.angle_q is self.angle_k and self.gain_q is self.gain_k

    def cos_sin(self, side: Literal["q", "k"], dtype: torch.dtype) -> Float[Tensor, "b h t 2 pairs"] | None:
        """Return cosines and sines of the queries or keys, times their gains. None if that side is not rotated."""
        angle, gain = (self.angle_q, self.gain_q) if side == "q" else (self.angle_k, self.gain_k)
        if angle is None:
            return None
        if angle.requires_grad or (isinstance(gain, Tensor) and gain.requires_grad):
            return _cos_sin(angle, gain, dtype)  # not cached, because the graph belongs to a single call
        key = "both" if self.same_for_keys else side, dtype
        if key not in self._cos_sin_cache:
            self._cos_sin_cache[key] = _cos_sin(angle, gain, dtype)
        return self._cos_sin_cache[key]

    def _rotate(self, side: Literal["q", "k"], x: Tensor) -> Tensor:
        """Return the queries or keys, rotated in float32 or higher, in their own dtype."""
        compute = torch.promote_types(x.dtype, torch.float32)
        cos_sin = self.cos_sin(side, compute)
        if cos_sin is None:
            return x
        if self.polar:
            cos, sin = (_for_each_head(part, x.shape[1]) for part in cos_sin.unbind(3))
            magnitude = softplus(x.to(compute))
            return torch.cat([magnitude * cos, magnitude * sin], -1).to(x.dtype)
        dims = 2 * cos_sin.shape[4]
        rotary = (x if dims == x.shape[-1] else x[..., :dims]).to(compute)
        factors = self._factors(side, cos_sin)
        if cos_sin.shape[1] > 1:
            factors = tuple(_for_each_head(factor, x.shape[1]) for factor in factors)
        out = _product(rotary, factors, self.layout).to(x.dtype)
        return out if dims == x.shape[-1] else torch.cat([out, x[..., dims:]], -1)

    def _factors(self, side: str, cos_sin: Tensor) -> tuple[Tensor, ...]:
        """Return the factors of `_product`."""
        if cos_sin.requires_grad:
            return _factors(cos_sin, self.layout)
        key = "both" if self.same_for_keys else side, cos_sin.dtype
        if key not in self._factor_cache:
            self._factor_cache[key] = _factors(cos_sin, self.layout)
        return self._factor_cache[key]

    def select(
        self, select_q: Callable[[Tensor], Tensor] | None, select_k: Callable[[Tensor], Tensor] | None
    ) -> "Rotation":
        """Return the rotation of some of the queries and keys, given functions that select them along axis 2.

        None leaves that side unrotated. Cosines and sines that this rotation has computed are selected, too.
        """
        angle_q, gain_q = _selected(select_q, self.angle_q), _selected(select_q, self.gain_q)
        angle_k, gain_k = _selected(select_k, self.angle_k), _selected(select_k, self.gain_k)
        selected = replace(self, angle_q=angle_q, angle_k=angle_k, gain_q=gain_q, gain_k=gain_k)
        for (sides, dtype), x in self._cos_sin_cache.items():
            if select_q and sides != "k":
                selected._cos_sin_cache["q", dtype] = select_q(x)
            if select_k and sides != "q":
                selected._cos_sin_cache["k", dtype] = select_k(x)
        return selected

    def keys_from(self, start: int) -> "Rotation":
        """Return the rotation of the keys from index `start` on, without queries. A cache applies it to new keys."""
        return self.select(None, lambda x: x[:, :, start:])

    def queries_only(self) -> "Rotation":
        """Return the rotation of the queries only, for keys that are already rotated."""
        return self.select(lambda x: x, None)


def _selected(select: Callable[[Tensor], Tensor] | None, x: Tensor | float | None) -> Any:
    return None if select is None else select(x) if isinstance(x, Tensor) else x


def _cos_sin(angle: Tensor, gain: Tensor | float | None, dtype: torch.dtype) -> Float[Tensor, "b h t 2 pairs"]:
    cos, sin = angle.cos(), angle.sin()
    if gain is not None:
        cos, sin = cos * gain, sin * gain
    return torch.stack([cos.to(dtype), sin.to(dtype)], 3)


def _require_float16_range(x: Tensor, gain: Tensor | float | None) -> None:
    """Raise `ConfigError` if rotated numbers would overflow or underflow in float16.

    For float16 inputs with a gain this waits for the device.
    """
    if x.dtype != torch.float16 or not isinstance(gain, Tensor) or not gain.numel():
        return
    low, high = (float(g) for g in torch.aminmax(gain))
    if high > 2.0**8 or low < 2.0**-8:  # the rest of float16's range is left for the numbers themselves
        raise ConfigError(
            f"gains must be 2^-8 to 2^8 in float16, got {low:.1e} to {high:.1e}; use bfloat16 or float32, or an encoding with "
            "smaller gains (XPos: a smaller max_length, or a larger scale_base)"
        )


def _factors(cos_sin: Float[Tensor, "b h t 2 pairs"], layout: str) -> tuple[Tensor, ...]:
    cos, sin = cos_sin.unbind(3)
    if layout == "interleaved":
        return (torch.complex(cos, sin),)
    if cos.shape[2] == 1:
        return torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)
    return cos, sin


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    groups = x.shape[1]
    if heads % groups:
        raise ConfigError(f"the angles of {groups} groups of heads need a multiple of {groups} heads, got {heads}")
    return x if heads == groups else x.repeat_interleave(heads // groups, 1)


def _product(x: Float[Tensor, "b h t dims"], factors: tuple[Tensor, ...], layout: str) -> Float[Tensor, "b h t dims"]:
    """Return `x` with all of its dims rotated."""
    if layout == "interleaved":
        # One complex product replaces five passes over the tensor. (torch.compile does not change it; on a CPU that is
        # faster than the code that it generates for the five passes.)
        z = torch.view_as_complex(_align_pairs(x.contiguous().unflatten(-1, (-1, 2))))
        return torch.view_as_real(z * factors[0]).flatten(-2)
    cos, sin = factors
    if cos.shape[-1] == x.shape[-1]:  # a single token: fewer operations, of more memory, with the same result
        return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _align_pairs(x: Float[Tensor, "b h t pairs 2"]) -> Float[Tensor, "b h t pairs 2"]:
    """Return `x`, or a copy if its strides or storage offset are odd, which `view_as_complex` does not accept.

    A contiguous tensor may have odd strides, in axes with a single entry.
    """
    odd = any(stride % 2 for stride in x.stride()[:-1])
    if not odd and not torch.compiler.is_compiling():  # a graph does not know the storage offset
        odd = x.storage_offset() % 2 == 1
    return x.clone(memory_format=torch.contiguous_format) if odd else x


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


@dataclass(frozen=True)
class RelativeValues:
    """Add `Σ_j weight[i, j] · table[h, distance - first]` to the output, for Shaw.

    Distances past either end take the nearest column.
    """

    table: Float[Tensor, "#h n d"]
    first: int = 0


@dataclass(frozen=True)
class LogitTransform:
    """Replace the logits by `function(logits, q, visible, scale, span)`, for CoPE, DAPE and stick-breaking attention.

    Shapes: logits [b, h, i, j], q [b, h, i, d], visible [b|1, 1, i, j]. The logits include scale and terms and are not masked
    yet. A call may hold only some of the queries, with their span and every key that is visible to one of them. So the
    result for a pair may depend only on the keys that its query sees.
    """

    function: Callable[[Tensor, Tensor, Tensor, float, Span], Tensor]
    bidirectional: bool = False
    softmax: bool = (
        True  # False: the result is the logarithms of the weights, which need not sum to 1; there is no softmax
    )


@dataclass(frozen=True)
class QueryGain:
    """Multiply the scaled product of query i and every key by `gain[b|1, h|1, i]`, for temperatures such as log-n scaling.

    `scales_terms`: every term is multiplied by the gain too.
    """

    gain: Float[Tensor, "#b #h i"]
    scales_terms: bool = False
    bidirectional: bool = False  # True: the gain does not depend on the number of keys that a causal query sees


@dataclass(frozen=True)
class SinkLogit:
    """Add exp(logit[h]) to the denominator of every row's softmax, in nats: a key without a value that every query sees."""

    logit: Float[Tensor, "#h"]


@dataclass(frozen=True)
class PiecewiseRotation:
    """Rotate q and k of each pair of a query and a key by one of several rotations, for maps of distances such as Self-Extend.

    `region(q, k)` returns the index of the rotation of every pair, [b|1, i, j], from the position IDs of queries [b|1, i] and keys
    [b|1, j], which may be those of a part of the call. So the product of a pair is the one that its own rotation gives alone.
    """

    rotations: tuple[Rotation, ...]
    region: Callable[[Tensor, Tensor], Tensor]
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
Product = PiecewiseRotation | HouseholderProduct | DecayProduct


@dataclass(frozen=True)
class AttentionModifiers:
    """Everything that one encoding does to one attention call."""

    rotation: Rotation | None = None
    terms: tuple[Term, ...] = ()
    values: tuple[RelativeValues, ...] = ()
    logit_transform: LogitTransform | None = None
    gain: QueryGain | None = None
    sink: SinkLogit | None = None
    product: Product | None = None  # takes the place of `rotation`
    encoding: str | None = None  # the class name of the encoding, for messages

    @property
    def causal_forms(self) -> list[str]:
        """The names of the forms that are not defined for keys after the query."""
        forms = [self.rotation, *self.terms, *self.values, self.logit_transform, self.gain, self.product]
        return [type(form).__name__ for form in forms if form and not _is_bidirectional(form)]

    @property
    def caches_rotated_keys(self) -> bool:
        """Whether a cache should store rotated keys: a rotation does not make them wider, and no term reads unrotated keys."""
        if self.rotation is None or self.rotation.polar:
            return False
        return not any(isinstance(term, KeyBias | GatedDistanceBias) for term in self.terms)

    @property
    def bidirectional(self) -> bool:
        """Whether every form is also defined for keys after the query."""
        return not self.causal_forms


def _is_bidirectional(form: Rotation | Term | RelativeValues | LogitTransform | QueryGain | Product) -> bool:
    match form:
        case ToeplitzBias() | RelativeKeyBias() | ContentBias() | RelativeValues():
            return form.first < 0
        case Rotation() | DenseBias() | LogitTransform() | QueryGain() | PiecewiseRotation():
            return form.bidirectional
    return isinstance(form, KeyBias)
