"""`AttentionModifiers`: all forms of one attention call, and the forms that change the logits of whole rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms.base import AxisFunctions, CallSizes, Form, Term, selection
from lengthwise.forms.distance_vectors import RelativeValues
from lengthwise.forms.products import Product
from lengthwise.forms.rotation import TokenRotation
from lengthwise.span import PairBlock, Span
from lengthwise.values import ConfigError


@dataclass(frozen=True)
class LogitTransform(Form):
    """Replace the logits by `function(logits, q, visible, scale, span)`, for CoPE, DAPE and stick-breaking attention.

    Shapes: logits [b, h, i, j], q [b, h, i, d], visible [b|1, 1, i, j]. The logits include scale and terms and are not
    masked yet. A call may hold only some of the queries, with their span and every key that is visible to one of them.
    So the result for a pair may depend only on the keys that its query sees.
    """

    function: Callable[[Tensor, Tensor, Tensor, float, Span], Tensor]
    bidirectional: bool = False
    # False: the result is the logarithms of the weights, which need not sum to 1; there is no softmax.
    softmax: bool = True

    cost = ("whole rows of logits at once: O(h n) for each query", "O(h n²) or more")


@dataclass(frozen=True)
class QueryGain(Form):
    """Multiply the scaled product of query i and every key by `gain[b|1, h|1, i]`, for temperatures.

    `scales_terms`: every term is multiplied by the gain too.
    """

    gain: Float[Tensor, "#b #h i"]
    scales_terms: bool = False
    bidirectional: bool = False  # True: the gain does not depend on the number of keys that a causal query sees

    cost = ("a number for each query: O(n), or O(h n) if heads differ", "O(n h d)")
    cacheable = True


@dataclass(frozen=True)
class SinkLogit(Form):
    """Add exp(logit[h]) to the denominator of every softmax: a key without a value that every query sees."""

    logit: Float[Tensor, "#h"]

    cost = ("a number for each head: O(h)", "O(h n)")
    cacheable = bidirectional = True


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
    def forms(self) -> list[Form]:
        """All forms."""
        others = self.logit_transform, self.gain, self.product, self.sink
        return [form for form in (self.rotation, *self.terms, *self.values, *others) if form is not None]

    @property
    def causal_forms(self) -> list[str]:
        """The names of the forms that are not defined for keys after the query."""
        return [type(form).__name__ for form in self.forms if not form.bidirectional]

    @property
    def bidirectional(self) -> bool:
        """Whether every form is also defined for keys after the query."""
        return not self.causal_forms

    @property
    def caches_rotated_keys(self) -> bool:
        """Whether a cache should store rotated keys.

        It should not if that makes them wider or more (heads that share a key may rotate it differently), or if a term
        reads unrotated keys.
        """
        if self.rotation is None or self.rotation.polar or self.rotation.key_groups > 1:
            return False
        return not any(term.reads_k for term in self.terms)

    def check(self, q: Float[Tensor, "b h t d"], queries: int, keys: int) -> None:
        """Raise `ConfigError` unless every form fits queries like `q` and these numbers of queries and keys.

        A compiled graph does not know all sizes, so there the compiled kernel itself checks what it reads.
        """
        if torch.compiler.is_compiling():
            return
        if self.sink and self.logit_transform and not self.logit_transform.softmax:
            raise ConfigError(
                f"{self.encoding or 'LogitTransform'} has no softmax, to which a sink could be added; omit the sinks"
            )
        batch, heads, _, dim = q.shape
        sizes = CallSizes(batch, heads, queries, keys, dim, q.device, f" of {self.encoding}" if self.encoding else "")
        for form in self.forms:
            form.check(sizes)

    def map_axes(self, functions: AxisFunctions) -> "AttentionModifiers":
        """Return the modifiers with functions applied along axes of the tensors of all forms; see `Form.map_axes`."""
        return replace(
            self,
            rotation=self.rotation and self.rotation.map_axes(functions),
            terms=tuple(term.map_axes(functions) for term in self.terms),
            values=tuple(value.map_axes(functions) for value in self.values),
            gain=self.gain and self.gain.map_axes(functions),
            sink=self.sink and self.sink.map_axes(functions),
            product=self.product and self.product.map_axes(functions),
        )

    def select(self, block: PairBlock) -> "AttentionModifiers":
        """Return the modifiers of some rows of the batch, queries and keys."""
        return self.map_axes(selection(block))

    def split(self, blocks: Sequence[PairBlock]) -> "list[AttentionModifiers]":
        """Return the modifiers of blocks that contain all queries in their order.

        `torch.split` concatenates the gradients of its parts, while each gradient of a slice would be as large as the
        tensor.
        """
        sizes = [block.queries.stop - block.queries.start for block in blocks]
        chunks: dict[int, tuple[Tensor, tuple[Tensor, ...]]] = {}

        def nth_chunk(n: int) -> Callable[[Tensor, int], Tensor]:
            def chunk(x: Tensor, axis: int) -> Tensor:
                if id(x) not in chunks:
                    chunks[id(x)] = x, x.split(sizes, axis)
                return chunks[id(x)][1][n]

            return chunk

        return [self.map_axes({"i": nth_chunk(n), "j": selection(block)["j"]}) for n, block in enumerate(blocks)]
