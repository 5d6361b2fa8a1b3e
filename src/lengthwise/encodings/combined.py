"""`Combined`: an encoding together with a temperature and learned sinks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import Choice, ConfigError
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.sinks import Sinks
from lengthwise.encodings.temperatures import Temperature
from lengthwise.forms import AttentionModifiers, Product, Rotation, Term
from lengthwise.span import Span


class Combined(PositionEncoding):
    """An encoding with a temperature, learned sinks, or both: everything that its parts do to the attention weights.

    `encoding`, `temperature` and `sinks` are instances of encodings, of which the last two may be None. Patterns over
    layers write them as settings: `rope(temperature=ssmax,sinks=true)`.

    >>> encoding = Combined(encoding=RoPE(head_dim=64), temperature=LogN(train_length=512))
    >>> modifiers = encoding.modifiers(Span.of(8))
    >>> modifiers.rotation is None, modifiers.gain is None
    (False, False)
    """

    def __init__(self, *, encoding: Any, temperature: Any = None, sinks: Any = None):
        super().__init__()
        for name, part, kind in (
            ("encoding", encoding, PositionEncoding),
            ("temperature", temperature, Temperature),
            ("sinks", sinks, Sinks),
        ):
            if part is not None and not isinstance(part, kind):
                what = "an encoding" if kind is PositionEncoding else f"an instance of {kind.__name__}, or None"
                raise ConfigError(f"Combined: {name} must be {what}, got {type(part).__name__}")
        parts = [part for part in (encoding, temperature, sinks) if part is not None]
        for kind in (Temperature, Sinks):
            if sum(isinstance(part, kind) for part in parts) > 1:
                raise ConfigError(
                    f"Combined: {type(encoding).__name__} cannot be given another {kind.__name__.lower()}"
                )
        if sinks is not None and not encoding.has_softmax:
            raise ConfigError(
                f"Combined: {type(encoding).__name__} has no softmax, to which a sink could be added; omit the sinks"
            )
        self.parts = nn.ModuleList(parts)
        self.shift_invariant = all(part.shift_invariant for part in parts)  # type: ignore[misc]
        self.content_is_local = encoding.content_is_local  # type: ignore[misc]
        self.has_softmax = encoding.has_softmax  # type: ignore[misc]
        self.max_length, self.num_axes = encoding.max_length, encoding.num_axes

    @property
    def all_parts(self) -> tuple[PositionEncoding, ...]:
        """The encoding, then its temperature and its sinks, if it has them."""
        return tuple(part for part in self.parts if isinstance(part, PositionEncoding))

    @property
    def base(self) -> PositionEncoding:
        """The encoding without temperature and sinks."""
        return self.all_parts[0]

    @property
    def title(self) -> str:
        base, *others = (part.title for part in self.all_parts)
        return f"{base} with {' and '.join(others)}" if others else base

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        return self.base.embed(x, positions)

    def modifiers(self, span: Span) -> AttentionModifiers:
        return reduce(_joined, (part.modifiers(span) for part in self.all_parts))

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        return self.base.effective_length(length)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        return self.base.features(x)

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[Term | Rotation | Product, ...]:
        return self.base.content(features, span, documents)

    def require_axes(self, axes: int) -> None:
        for part in self.all_parts:
            part.require_axes(axes)

    def tracked(self) -> Mapping[str, Tensor]:
        """Return the numbers of all parts."""
        return {name: value for part in self.all_parts for name, value in part.tracked().items()}

    # What the classes of other encodings declare depends on the parts here.
    def acts_on_embedding(self) -> bool:  # type: ignore[override]
        return self.base.acts_on_embedding()

    def depends_on_length(self) -> bool:  # type: ignore[override]
        return self.base.depends_on_length()

    def reads_content(self) -> bool:  # type: ignore[override]
        return self.base.reads_content()


def layer_modules(
    encoding: Choice, num_layers: int, share: bool | None, context: Mapping[str, Any]
) -> tuple[list[PositionEncoding], list[tuple[int, ...]]]:
    """Return the modules of a model's layers, and for each layer the indices of those that it combines.

    `share`: whether layers with equal settings share a module; None: as in the source of each.
    """
    modules: list[PositionEncoding] = []
    layers: list[tuple[int, ...]] = []
    shared: dict[Choice, int] = {}
    for layer in range(num_layers):
        indices = []
        for part in encoding.layers[layer % len(encoding.layers)].parts:
            cls = cast(type[PositionEncoding], part.cls)
            index = shared.get(part, len(modules))
            if index == len(modules):
                modules.append(part.build(**context))
            if cls.acts_on_embedding() or (cls.shared_across_layers if share is None else share):
                shared[part] = index
            indices.append(index)
        layers.append(tuple(indices))
    return modules, layers


class Combinations:
    """The combined encodings of a model's layers, which are no modules of the model: their parts are."""

    def __init__(self) -> None:
        self._combined: dict[tuple[int, ...], Combined] = {}

    def of(self, indices: tuple[int, ...], modules: Sequence[PositionEncoding]) -> PositionEncoding:
        """Return the encoding of a layer, given the indices of its parts in the model's modules."""
        parts = tuple(modules[index] for index in indices)
        if len(parts) == 1:
            return parts[0]
        combined = self._combined.get(indices)
        if combined is None or any(a is not b for a, b in zip(combined.all_parts, parts, strict=True)):
            combined = self._combined[indices] = combine(parts)
        return combined


def combine(parts: Sequence[PositionEncoding]) -> Combined:
    """Return one encoding of the parts of a choice: the encoding first, then its temperature, its sinks, or both."""
    temperature = next((part for part in parts[1:] if isinstance(part, Temperature)), None)
    sinks = next((part for part in parts[1:] if isinstance(part, Sinks)), None)
    return Combined(encoding=parts[0], temperature=temperature, sinks=sinks)


def _joined(first: AttentionModifiers, second: AttentionModifiers) -> AttentionModifiers:
    """Return everything that both do. The second is a temperature or a sink."""
    if (first.gain and second.gain) or (first.sink and second.sink):
        raise ConfigError(
            "Combined: the encoding has a QueryGain or a SinkLogit of its own; omit the temperature or the sinks"
        )
    return replace(first, gain=second.gain or first.gain, sink=second.sink or first.sink)
