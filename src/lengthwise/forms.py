"""The closed vocabulary between encodings and attention: everything that position can do to one attention call.

An encoding describes itself in these forms, an attention backend understands forms and never methods. Tables and
angles are float64 where the device has it (`table_dtype`), and a backend casts them to its own precision (at least float32).

The logit of query i and key j in head h is

    gain_i · scale · <rotated q_i, rotated k_j>  +  every term(h, i, j)

where the terms see q and k before rotation. Terms are in nats: they are added after scaling.

A table over distances begins at the distance `first`. Below 0 it has something to say about keys after the query and
serves both directions; `first = 0` serves causal masks alone. Its columns are the distances first, first + 1, ..., or
those that `distances` lists in ascending order. Encodings list distances where positions lie so far apart that few of
those between them occur; then every distance that occurs is listed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.span import Span
from lengthwise.values import ConfigError


def table_dtype(device: torch.device | str | None) -> torch.dtype:
    """The dtype of tables and angles on a device: float64, or float32 where there is no float64."""
    return torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64


@dataclass(frozen=True)
class Rotation:
    """Rotate pairs of the first `2 · angle.shape[-1]` dims of q and k, then stretch them by a gain.

    Angles in radians, [b|1, i|j, pairs]; None leaves that side unrotated. A gain is a number or broadcasts to the
    angle. `layout`: "interleaved" pairs dims (2p, 2p+1), "half" pairs (p, p + pairs).
    """

    angle_q: Float[Tensor, "..."] | None = None
    angle_k: Float[Tensor, "..."] | None = None
    gain_q: Float[Tensor, "..."] | float | None = None
    gain_k: Float[Tensor, "..."] | float | None = None
    layout: Literal["interleaved", "half"] = "interleaved"
    bidirectional: bool = True  # False: gains that grow without bound for keys after the query
    # Of either side its cosines and sines, once per modifiers, however many layers share it. (A `cached_property` has a lock
    # in Python 3.11, and torch.compile does not go through locks.)
    _turns: dict[str, tuple[Tensor, Tensor] | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def query(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        _require_room(q, self.gain_q)
        turn = self._turn_of("q", self.angle_q, self.gain_q)
        return q if turn is None else _turn(q, *turn, self.layout)

    def key(self, k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h j d"]:
        _require_room(k, self.gain_k)
        turn = self._turn_of("k", self.angle_k, self.gain_k)
        return k if turn is None else _turn(k, *turn, self.layout)

    @property
    def alike(self) -> bool:
        """Queries and keys are known to turn alike: they are the same tokens."""
        return self.angle_q is self.angle_k and self.gain_q is self.gain_k

    def turns(self) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor] | None]:
        """Of queries and of keys the cosines and sines with their gains, [b|1, 1, i|j, pairs]; None for a side that is left."""
        return self._turn_of("q", self.angle_q, self.gain_q), self._turn_of("k", self.angle_k, self.gain_k)

    def _turn_of(self, side: str, angle: Tensor | None, gain: Tensor | float | None) -> tuple[Tensor, Tensor] | None:
        if any(isinstance(x, Tensor) and x.requires_grad for x in (angle, gain)):
            return _cos_sin(angle, gain)  # a gradient is that of one call
        side = "both" if self.alike else side
        if side not in self._turns:
            self._turns[side] = _cos_sin(angle, gain)
        return self._turns[side]

    def keys_from(self, start: int) -> "Rotation":
        """The rotation of keys `start` ... alone: what a cache applies to the keys that it is given."""
        cut = lambda x: x[:, start:] if isinstance(x, Tensor) else x  # noqa: E731
        return replace(self, angle_q=None, gain_q=None, angle_k=cut(self.angle_k), gain_k=cut(self.gain_k))

    def queries_only(self) -> "Rotation":
        """The rotation for keys that are rotated already."""
        return replace(self, angle_k=None, gain_k=None)


def _cos_sin(angle: Tensor | None, gain: Tensor | float | None) -> tuple[Tensor, Tensor] | None:
    if angle is None:
        return None
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    if gain is not None:
        gain = gain[:, None] if isinstance(gain, Tensor) else gain
        cos, sin = cos * gain, sin * gain
    return cos, sin


def _require_room(x: Tensor, gain: Tensor | float | None) -> None:
    """Raise `ConfigError` where float16 would turn rotated numbers into infinity or 0. Waits for the device then."""
    if x.dtype != torch.float16 or not isinstance(gain, Tensor) or not gain.numel():
        return
    low, high = (float(g) for g in torch.aminmax(gain))
    if high > 2.0**8 or low < 2.0**-8:  # what is left of float16's range for the numbers themselves
        raise ConfigError(
            f"float16 cannot hold what is stretched by {low:.1e} to {high:.1e}; use bfloat16 or float32, or an encoding with "
            "smaller gains (XPos: a smaller max_length, or a larger scale_base)"
        )


def _turn(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    compute = torch.promote_types(x.dtype, torch.float32)
    cos, sin = cos.to(compute), sin.to(compute)
    pairs = cos.shape[-1]
    turned, rest = x[..., : 2 * pairs].to(compute), x[..., 2 * pairs :]
    if layout == "interleaved":
        # One complex product in place of five passes over the tensor. (torch.compile leaves it as it is, which on a CPU is
        # faster than what it makes of the five.)
        z = torch.view_as_complex(_at_even_places(turned.contiguous().unflatten(-1, (pairs, 2))))
        out = torch.view_as_real(z * torch.complex(cos, sin)).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        out = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    out = out.to(x.dtype)
    return torch.cat([out, rest], -1) if rest.shape[-1] else out


def _at_even_places(x: Float[Tensor, "b h t pairs 2"]) -> Float[Tensor, "b h t pairs 2"]:
    """`x`, or a copy where a pair of numbers begins at an odd place in memory, which complex numbers never do. (A tensor
    may be contiguous with odd strides: of axes with one entry.)"""
    odd = any(stride % 2 for stride in x.stride()[:-1])
    if not odd and not torch.compiler.is_compiling():  # which does not know where memory begins
        odd = x.storage_offset() % 2 == 1
    return x.clone(memory_format=torch.contiguous_format) if odd else x


@dataclass(frozen=True)
class ToeplitzBias:
    """`+ table[h, distance - first]`. A distance past either end takes the nearest column. ALiBi, T5, KERPLE, Sandwich."""

    table: Float[Tensor, "#h n"]
    first: int = 0
    distances: Int[Tensor, " n"] | None = None
    # What a backend made of the table, once for all calls that this form is kept for.
    made: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class PiecewiseLinearBias:
    """`+ slope[h, s] · x + intercept[h, s]` with x = u[i−j] · w[i] and s = the number of knots that are <= x. FIRE.

    Piecewise linear in one coordinate x, with knots shared by all heads. `u` has one entry per distance, `w` one per
    query. A distance past either end of `u` takes the nearest entry.

    `exact`: the function of x that the pieces approximate, x [..., 1] -> [..., h]; None where the pieces are exact. It
    defines the meaning, so the reference evaluates it for every pair. Other backends use the pieces, and whoever makes
    them states how far they are off.
    """

    slope: Float[Tensor, "h s"]
    intercept: Float[Tensor, "h s"]
    knots: Float[Tensor, " s-1"]
    u: Float[Tensor, " n"]
    w: Float[Tensor, "#b i"]
    exact: Callable[[Tensor], Tensor] | None = None
    distances: Int[Tensor, " n"] | None = None


@dataclass(frozen=True)
class RelativeKeyBias:
    """`+ scale · <q_i + vector[h], table[h, distance - first]>`. Shaw, Transformer-XL (which has a vector; None is zeros).
    Distances past either end take the nearest column."""

    table: Float[Tensor, "#h n d"]
    first: int = 0
    vector: Float[Tensor, "h d"] | None = None
    distances: Int[Tensor, " n"] | None = None
    # What a backend made of the table, once for all calls that this form is kept for.
    made: dict[Hashable, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class ContentBias:
    """`+ <content_i, table[h, distance - first]>`, with what an encoding read of each query's own content. The banded bias.
    Distances past either end take the nearest column."""

    content: Float[Tensor, "#b #h i r"]
    table: Float[Tensor, "#h n r"]
    first: int = 0


@dataclass(frozen=True)
class KeyBias:
    """`+ scale · <vector[h], k_j>`. Transformer-XL."""

    vector: Float[Tensor, "h d"]


@dataclass(frozen=True)
class CumulativeBias:
    """`+ total[b|1, h|1, at i] - total[b|1, h|1, j]`, where query i, one of the last, is key number `at i`: what a sum that
    runs over the keys gained between a key and its query. FoX. Backends subtract before they round: a total is large where
    its differences are small."""

    total: Float[Tensor, "#b #h j"]


@dataclass(frozen=True)
class DenseBias:
    """`+ bias[b|1, h|1, i, j]`: what no table can say."""

    bias: Float[Tensor, "#b #h i j"]
    bidirectional: bool = False


@dataclass(frozen=True)
class RelativeValues:
    """`Σ_j weight[i, j] · table[h, distance - first]` added to the output. Shaw. Distances past either end take the nearest
    column."""

    table: Float[Tensor, "#h n d"]
    first: int = 0


@dataclass(frozen=True)
class LogitTransform:
    """Any function of rows of logits: (logits [b,h,i,j], q [b,h,i,d], visible [b|1,1,i,j], scale, span) -> logits. CoPE, DAPE.

    The logits that it is given have scale and terms in them, and nothing masked yet. They are those of some queries, whose
    span it is given, and of every key that one of them sees; what it makes of a pair goes by the keys that the query sees.
    """

    function: Callable[[Tensor, Tensor, Tensor, float, Span], Tensor]
    bidirectional: bool = False


@dataclass(frozen=True)
class QueryGain:
    """`gain[b|1, h|1, i]` times the scaled product of query i and every key; terms are added after it. Log-n scaling."""

    gain: Float[Tensor, "#b #h i"]
    bidirectional: bool = False  # True: it does not go by the keys that a causal query sees


def column(
    distance: Int[Tensor, "*n"], size: int, first: int = 0, distances: Int[Tensor, " n"] | None = None
) -> Int[Tensor, "*n"]:
    """Return which of a table's `size` columns each distance takes: the nearest, past either end."""
    if distances is None:
        return (distance - first).clamp(0, size - 1)
    return (torch.searchsorted(distances, distance.contiguous(), right=True) - 1).clamp(min=0)


Term = ToeplitzBias | PiecewiseLinearBias | RelativeKeyBias | ContentBias | KeyBias | CumulativeBias | DenseBias


@dataclass(frozen=True)
class AttentionModifiers:
    """Everything that one encoding does to one attention call."""

    rotation: Rotation | None = None
    terms: tuple[Term, ...] = ()
    values: tuple[RelativeValues, ...] = ()
    rewrite: LogitTransform | None = None
    gain: QueryGain | None = None
    encoding: str | None = None  # whose modifiers they are, for messages

    @property
    def causal_forms(self) -> list[str]:
        """The names of the forms that say nothing about keys after the query."""
        forms = [self.rotation, *self.terms, *self.values, self.rewrite, self.gain]
        return [type(form).__name__ for form in forms if form and not _serves_both_ways(form)]

    @property
    def bidirectional(self) -> bool:
        """Whether every form says what it does to keys after the query too."""
        return not self.causal_forms


def _serves_both_ways(form: Rotation | Term | RelativeValues | LogitTransform | QueryGain) -> bool:
    match form:
        case ToeplitzBias() | RelativeKeyBias() | ContentBias() | RelativeValues():
            return form.first < 0
        case Rotation() | DenseBias() | LogitTransform() | QueryGain():
            return form.bidirectional
    return isinstance(form, KeyBias)
