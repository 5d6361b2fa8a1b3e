"""Base classes of position encodings.

An encoding overrides `embed`, `modifiers`, or `features` together with `content`; NoPE overrides none of them.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import CheckedArguments, ConfigError, context_of, settings_of, shown_settings
from lengthwise.config.class_settings import from_context
from lengthwise.encodings.arguments import NOMINAL_SIZES, require_positive_int, require_tensor
from lengthwise.forms import AttentionModifiers, Product, Rotation, Term, ToeplitzBias, table_dtype
from lengthwise.span import Span
from lengthwise.user_classes import wrong_return


class PositionEncoding(CheckedArguments, nn.Module):
    """Base class of position encodings: modules with parameters that describe what positions do to attention.

    Constructor arguments are keyword-only. Those without a default (some of `num_heads`, `head_dim`, `d_model` and
    `train_length`) are provided by the model. Those with a default are the settings of the encoding. Float settings
    are from 1e-12 to 1e12, or 0 (`require_positive`), so that attention in float32 is finite; a class may have narrower
    limits.
    """

    kind: ClassVar[str] = "encoding"
    version: ClassVar[int] = 1  # part of a run's key; raise it in the class whenever its effect on attention changes
    # By default one module serves every layer, as in the source (or nothing is learned).
    shared_across_layers: ClassVar[bool] = True
    # Adding the same number to every position ID changes no logit. An instance may override it (DAPE takes its base's).
    shift_invariant: ClassVar[bool] = True
    always_shown: ClassVar[tuple[str, ...]] = ()  # settings that labels show even if they have their default
    inherited: tuple[str, ...] = ()  # settings that `lengthwise.huggingface.use` has taken from the model
    # Whether `content` for the last keys needs the features of these keys only. The cache of a layer with a window then
    # stores no others.
    content_is_local: ClassVar[bool] = False
    is_temperature: ClassVar[bool] = False  # whether it may be the temperature of another encoding
    # How many axes its positions have; None: it does not read positions. An instance may override it.
    num_axes: int | None = 1
    has_softmax: ClassVar[bool] = True  # False: its logit transform returns the weights, so there can be no sink
    max_length: int | None = None  # position IDs have to be below it; None: no limit

    def extra_repr(self) -> str:
        """Return the settings as in a choice's label (`base=500000.0`), and which of them a model has given."""
        shown = shown_settings(type(self), self.init_arguments)
        return f"{shown}; from the model: {', '.join(self.inherited)}" if self.inherited else shown

    @property
    def title(self) -> str:
        """The name of the encoding in messages."""
        return type(self).__name__

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        """Return the token embeddings with the positions added. Called once, before the first layer."""
        return x

    def modifiers(self, span: Span) -> AttentionModifiers:
        """Return what the positions of `span` do to one attention call, as forms."""
        return AttentionModifiers()

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """Return the length that the encoding is scaled for, at each current length.

        An encoding may depend on the current length only through this value. While it stays the same, a KV cache
        remains valid; when it changes, the cache is computed again.
        """
        return torch.zeros_like(length)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """Return r numbers for each token, which are cached beside its key. `x` is the attention layer's input.

        Only content-dependent encodings have features, and a token's features depend on nothing but its own `x`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not read content")

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[Term | Rotation | Product, ...]:
        """Return the terms that follow from the features of all j keys, in addition to those of `modifiers`.

        One of them may be a rotation or a product, which takes the place of that of `modifiers`. The queries are the
        last i of the j tokens. `documents` has the document of each key, or is None if all keys belong to one document.
        What a token gets must not depend on tokens of other documents, nor on later tokens.
        """
        return ()

    def tracked(self) -> Mapping[str, Tensor]:
        """Return the numbers whose development during training is recorded, by name; by default none.

        Each is a scalar, [heads], or [heads, entries] such as the entries of a table. They are called at most some 200
        times in a training and must not wait for the device.
        """
        return {}

    def require_axes(self, axes: int) -> None:
        """Raise `ConfigError` unless the encoding reads positions with this number of axes, more than one."""
        if self.num_axes == 1:
            fix = "take an encoding with several axes, such as AxialRoPE or MRoPE"
            if "axes" in settings_of(type(self)):
                fix = f"use {self.title}(axes={axes})"
            raise ConfigError(
                f"{self.title} has one axis of positions, got positions with {axes} axes; pass positions [batch, "
                f"tokens], or {fix}"
            )
        if self.num_axes not in (None, axes):
            raise ConfigError(
                f"{self.title} has {self.num_axes} axes of positions, got positions with {axes} axes; pass positions "
                f"[batch, tokens, {self.num_axes}], or change the axes or sections of the encoding"
            )

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for a setting of the wrong type, or a model size that is no positive whole number."""
        super().check_arguments(arguments)
        sizes = [name for name in context_of(cls) if name in NOMINAL_SIZES and name in arguments]
        require_positive_int(cls.__name__, **{name: arguments[name] for name in sizes})

    @classmethod
    def acts_on_embedding(cls) -> bool:
        return cls.embed is not PositionEncoding.embed

    @classmethod
    def depends_on_length(cls) -> bool:
        """Return whether the effect on a pair of positions changes with the current length."""
        return cls.effective_length is not PositionEncoding.effective_length

    @classmethod
    def reads_content(cls) -> bool:
        return cls.features is not PositionEncoding.features

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        """Return sizes of a model, and settings, with which `check` constructs the encoding before the model is known.

        A class overrides it if some settings are valid only with some sizes.
        """
        return NOMINAL_SIZES, settings

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return `settings`, or raise `ConfigError` if the constructor rejects them.

        The encoding is constructed at nominal sizes on the meta device, which allocates no memory.
        """
        try:
            sizes, nominal = cls.nominal(settings)
            with torch.device("meta"):
                cls(**from_context(cls, sizes), **nominal)
        except (RuntimeError, OverflowError) as error:  # sizes that no tensor can have
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"{cls.__name__}: an encoding with these settings cannot be created ({reason}); make a setting smaller"
            ) from error
        return settings


MAX_DISTANCES = 2**28  # of one table
MAX_TABLE_NUMBERS = 2**29  # of a table over distances: 4 GiB in float64
MAX_SORTED_PAIRS = 2**25  # the most pairs whose distances are sorted to find the distinct ones
SMALL_SPAN = 2**16  # a table with up to this many distances always has all of them
SMALL_TABLE = 2**22  # a table with up to this many numbers has all distances too: 32 MiB in float64


@dataclass(frozen=True)
class TableColumns:
    """The distances of a table's columns, in ascending order.

    They are first, first + 1, ...; or, if `sparse`, only the distances that occur in the span.
    """

    distance: Int[Tensor, " n"]
    first: int = 0
    sparse: bool = False

    @property
    def distances(self) -> Int[Tensor, " n"] | None:
        """The `distances` argument of a form: None if the columns follow from `first`."""
        return self.distance if self.sparse else None


def table_columns(span: Span, first: int, end: int, numbers_per_column: Callable[[], int]) -> TableColumns:
    """Return the columns of a table for the distances first ... end - 1 of a span.

    The table has a column for every distance, unless position IDs are so far apart that it would be large and there are
    fewer pairs of query and key than distances. Then only distances that occur get a column. Raise `ConfigError` for a
    table of more than `MAX_TABLE_NUMBERS` numbers.
    """
    size, device = end - first, span.q.device
    if torch.compiler.is_compiling():  # if position IDs are passed, `end` is known only when the graph runs
        torch._check(size <= MAX_DISTANCES, lambda: f"positions reach over more than {MAX_DISTANCES:,} distances")
        return TableColumns(torch.arange(first, end, device=device), first)
    if size <= SMALL_SPAN:
        return TableColumns(torch.arange(first, end, device=device), first)
    width, pairs = numbers_per_column(), max(len(span.q), len(span.k)) * span.q.shape[1] * span.k.shape[1]
    if size * width <= SMALL_TABLE or span.consecutive or pairs >= size or pairs > MAX_SORTED_PAIRS:
        _require_table_fits(size, size * width)
        return TableColumns(torch.arange(first, end, device=device), first)
    distance = span.distance().clamp(first, end - 1).unique()
    _require_table_fits(size, len(distance) * width)
    return TableColumns(distance, first, sparse=True)


def _require_table_fits(size: int, numbers: int) -> None:
    if numbers > MAX_TABLE_NUMBERS:
        raise ConfigError(
            f"positions reach over {size:,} distances, and a table for these tokens would have {numbers:,} numbers, "
            f"more than the {MAX_TABLE_NUMBERS:,} allowed (4 GiB); bring the positions closer together, use fewer "
            "tokens at a time, or choose an encoding without a table (RoPE, NoPE)"
        )


def distance_chunks(distance: Int[Tensor, " n"], chunk_size: int) -> tuple[Int[Tensor, " m"], ...]:
    """Split distances into chunks of at most `chunk_size`, to bound the memory of what is computed from each.

    In a compiled graph, where their number may be unknown, they are one chunk.
    """
    return (distance,) if torch.compiler.is_compiling() else distance.split(chunk_size)


def stepped_length(length: Int[Tensor, "*n"], train_length: int, scale_step: int) -> Int[Tensor, "*n"]:
    """Return the training length plus the excess over it, rounded up to a multiple of `scale_step`.

    Lengths up to the training length have no excess.

    >>> stepped_length(torch.tensor([10, 64, 65, 96, 97]), 64, 32)
    tensor([ 64,  64,  96,  96, 128])
    """
    steps = -(-(length - train_length).clamp(min=0) // scale_step)
    return train_length + steps * scale_step


class RotaryEncoding(PositionEncoding):
    """Base class of encodings that rotate q and k in every layer. A subclass defines `frequencies(length)`."""

    layout: Any = "interleaved"

    @abstractmethod
    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        """Return radians per position for each pair of dimensions, at each current length.

        The shape is [pairs] if the current length makes no difference.
        """

    def gain(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n 1"] | float | None:
        """Return the factor that multiplies q and k each, so that logits get its square. None: no factor."""
        return None

    def pair_positions(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None
    ) -> Int[Tensor, "b t _"]:
        """Return the position that rotates each pair of dimensions, [b, t, pairs], or [b, t, 1] for all pairs together.

        `axes`: positions with several axes, or None if all axes of a token are its position ID.
        """
        return positions[..., None]

    def modifiers(self, span: Span) -> AttentionModifiers:
        # Angles are float64 until the cosine is taken: at position 10^6 a float32 angle is off by 0.06 radians.
        angle_k, gain_k = self._angles_and_gain(self.pair_positions(span.k, span.axes_k), span.length_k, span.length)
        angle_q, gain_q = angle_k, gain_k
        if not span.consecutive or span.q.shape != span.k.shape:  # otherwise q and k share one set of cosines
            angle_q, gain_q = self._angles_and_gain(
                self.pair_positions(span.q, span.axes_q), span.length_q, span.length
            )
        return AttentionModifiers(rotation=Rotation(angle_q, angle_k, gain_q, gain_k, self.layout))

    def _angles_and_gain(
        self, positions: Int[Tensor, "b t _"], document_lengths: Tensor | None, length: int
    ) -> tuple[Tensor, Tensor | float | None]:
        if document_lengths is None or not self.depends_on_length():
            document_lengths = torch.tensor(length, device=positions.device)
        frequencies, gain = self.checked_frequencies(document_lengths)
        angle = positions * frequencies
        gain = gain.expand(*angle.shape[:-1], -1)[:, None] if isinstance(gain, Tensor) else gain
        return angle[:, None], gain

    def checked_frequencies(self, length: Int[Tensor, "*n"]) -> tuple[Tensor, Tensor | float | None]:
        """Return `frequencies(length)` in floating point, and `gain(length)`. Raise `ConfigError` for other values."""
        frequencies: Any = self.frequencies(length)
        gain: Any = self.gain(length)
        if not _is_per_length(frequencies, length):
            raise wrong_return(self, "frequencies", "a tensor of real numbers [pairs] or [lengths, pairs]", frequencies)
        if gain is not None and not isinstance(gain, (int, float)) and not _is_per_length(gain, length):
            raise wrong_return(self, "gain", "None, a number or a tensor of real numbers [lengths, 1]", gain)
        return frequencies if frequencies.is_floating_point() else frequencies.to(table_dtype(length.device)), gain


def _is_per_length(value: object, length: Tensor) -> bool:
    """Return whether a value is a tensor of real numbers [n], or [lengths, n]."""
    return isinstance(value, Tensor) and not value.is_complex() and 1 <= value.ndim <= length.ndim + 1


class DistanceBias(PositionEncoding):
    """Base class of biases that depend only on the distance. A subclass defines `bias(distance)`.

    Unless it is `bidirectional`, a key whose position ID is higher than its query's counts as distance 0. The causal
    mask hides keys by index, so this happens only where position IDs decrease, as in the position scheme `Digits`.
    """

    constant_beyond: int | None = None  # the bias is constant from this distance on; None: it never is
    bidirectional: bool = False  # whether the bias is defined for keys after the query (distances below 0)

    @abstractmethod
    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        """Return the bias for each head and distance, in nats.

        Distance is query position minus key position; it is below 0 only if the encoding is `bidirectional`.
        """

    def modifiers(self, span: Span) -> AttentionModifiers:
        n = span.distance_bound
        if self.constant_beyond is not None:
            n = torch.sym_min(n, self.constant_beyond + 1)
        cols = table_columns(span, -n if self.bidirectional else 0, n, lambda: self._num_heads(span.q.device))
        return AttentionModifiers(terms=(ToeplitzBias(self.checked_bias(cols.distance), cols.first, cols.distances),))

    def checked_bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        """Return `bias(distance)` in floating point. Raise `ConfigError` unless it is real [heads, distances]."""
        table: Any = self.bias(distance)
        size = None if torch.compiler.is_compiling() else len(distance)
        require_tensor(self, "bias", table, heads=None, distances=size)
        return table if table.is_floating_point() else table.to(table_dtype(table.device))

    def _num_heads(self, device: torch.device) -> int:
        return len(self.checked_bias(torch.zeros(1, dtype=torch.long, device=device)))


class _Project(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.low, ctx.high = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        outward = ((x <= ctx.low) & (grad > 0)) | ((x >= ctx.high) & (grad < 0))
        return grad.masked_fill(outward, 0.0), None, None


def project(x: Float[Tensor, "..."], low: float, high: float = float("inf")) -> Float[Tensor, "..."]:
    """Return `x` clamped to [low, high], in float64, with the gradient of projected gradient descent.

    A parameter at or past a bound keeps the gradient that leads back inside, so it is never stuck there. A gradient
    that leads further out is 0, so it does not drift away. The parameter itself is not modified.
    """
    result: Tensor = _Project.apply(x.to(table_dtype(x.device)), low, high)
    return result
