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

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms.matrix_rotation import MatrixRotation as MatrixRotation
from lengthwise.forms.products import DecayProduct as DecayProduct
from lengthwise.forms.products import HouseholderProduct as HouseholderProduct
from lengthwise.forms.products import PiecewiseRotation as PiecewiseRotation
from lengthwise.forms.products import Product as Product
from lengthwise.forms.rotation import Rotation as Rotation
from lengthwise.forms.rotation import TokenRotation as TokenRotation
from lengthwise.forms.terms import ContentBias as ContentBias
from lengthwise.forms.terms import CumulativeBias as CumulativeBias
from lengthwise.forms.terms import DenseBias as DenseBias
from lengthwise.forms.terms import GatedDistanceBias as GatedDistanceBias
from lengthwise.forms.terms import KeyBias as KeyBias
from lengthwise.forms.terms import PiecewiseLinearBias as PiecewiseLinearBias
from lengthwise.forms.terms import RelativeKeyBias as RelativeKeyBias
from lengthwise.forms.terms import Term as Term
from lengthwise.forms.terms import ToeplitzBias as ToeplitzBias
from lengthwise.forms.terms import column as column
from lengthwise.forms.terms import num_heads as num_heads
from lengthwise.span import Span


def table_dtype(device: torch.device | str | None) -> torch.dtype:
    """Return the dtype of tables and angles on a device: float64, or float32 if the device has no float64."""
    return torch.float32 if torch.device(device or "cpu").type == "mps" else torch.float64


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
    # False: the result is the logarithms of the weights, which need not sum to 1; there is no softmax.
    softmax: bool = True


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
class AttentionModifiers:
    """Everything that one encoding does to one attention call."""

    rotation: TokenRotation | None = None
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
        """Whether a cache should store rotated keys.

        It should not if that makes them wider or more (heads that share a key may rotate it differently), or if a term
        reads unrotated keys.
        """
        if self.rotation is None or self.rotation.polar or self.rotation.key_groups > 1:
            return False
        return not any(isinstance(term, KeyBias | GatedDistanceBias) for term in self.terms)

    @property
    def bidirectional(self) -> bool:
        """Whether every form is also defined for keys after the query."""
        return not self.causal_forms


def _is_bidirectional(form: TokenRotation | Term | RelativeValues | LogitTransform | QueryGain | Product) -> bool:
    match form:
        case ToeplitzBias() | RelativeKeyBias() | ContentBias() | RelativeValues():
            return form.first < 0
        case TokenRotation() | DenseBias() | LogitTransform() | QueryGain() | PiecewiseRotation():
            return form.bidirectional
    return isinstance(form, KeyBias)
