"""The families of position encodings. A method overrides `embed`, `modifiers`, `features` with `content`, or (NoPE) none."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.choices import from_context
from lengthwise.class_versions import is_own, place, require_complete
from lengthwise.config import ConfigError, context_of, settings_of, shown_settings
from lengthwise.forms import AttentionModifiers, Rotation, Term, ToeplitzBias, table_dtype
from lengthwise.span import Span
from lengthwise.values import require_known, require_whole

# What a choice is checked against before any model is known; every method has to work at these sizes.
_NOMINAL = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}


class PositionEncoding(nn.Module, ABC):
    """Parameters, plus what positions do.

    Arguments are keyword-only: those without a default (among `num_heads`, `head_dim`, `d_model`, `train_length`) are
    what the model tells the encoding, those with one are its settings.
    """

    kind: ClassVar[str] = "encoding"
    version: ClassVar[int] = (
        1  # counts for a run's key; raise it in the class whenever what it does to attention changes
    )
    shared_across_layers: ClassVar[bool] = (
        True  # one module serves every layer, as in the source (or nothing is learned)
    )
    # Moving every position by the same amount changes no logit; an instance may say otherwise (DAPE: as its base).
    shift_invariant: ClassVar[bool] = True
    always_shown: ClassVar[tuple[str, ...]] = ()  # settings that labels show even where they are the default
    max_length: int | None = None  # positions it can serve; None: any
    given: dict[str, Any]  # the arguments that it was made with

    def __new__(cls, *args: Any, **given: Any) -> Any:
        """Check the names of arguments here, so that an unknown one is said with what is meant."""
        if not is_own(cls):
            require_complete(cls)
        if not _takes_anything(cls):
            require_known(cls.__name__, given, [*context_of(cls), *settings_of(cls)])
        made = super().__new__(cls)
        made.__dict__["given"] = given
        return made

    def extra_repr(self) -> str:
        """The settings as in the label of a choice: `RoPE(base=500000.0)`."""
        return shown_settings(type(self), self.given)

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        """What absolute encodings do to the embeddings, once, before the first layer."""
        return x

    def modifiers(self, span: Span) -> AttentionModifiers:
        """What relative encodings do to one attention call."""
        return AttentionModifiers()

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """The length that the encoding is made for at a current length: where it depends on the current length at all, it
        depends on this alone. Two lengths of one stretch share a cache; a cache is made anew in the next."""
        return torch.zeros_like(length)

    def features(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t r"]:
        """What a content-dependent encoding keeps of each token: a function of the attention layer's input alone."""
        raise NotImplementedError(f"{type(self).__name__} does not read content")

    def content(
        self, features: Float[Tensor, "b j r"], span: Span, documents: Int[Tensor, "#b j"] | None
    ) -> tuple[Term, ...]:
        """The terms that follow from the features of all keys (queries are the last i of the j), beside `modifiers`. `documents`
        of the keys, None where all are of one: what a token's document does not have changes nothing for it."""
        return ()

    @classmethod
    def acts_on_embedding(cls) -> bool:
        return cls.embed is not PositionEncoding.embed

    @classmethod
    def depends_on_length(cls) -> bool:
        """What a pair of positions gets changes with the current length."""
        return cls.effective_length is not PositionEncoding.effective_length

    @classmethod
    def reads_content(cls) -> bool:
        return cls.features is not PositionEncoding.features

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Raise `ValueError` for settings that cannot be: the constructor judges, on a device without memory."""
        try:
            with torch.device("meta"):
                cls(**from_context(cls, _NOMINAL), **settings)
        except (RuntimeError, OverflowError) as error:  # sizes that no tensor can have
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"{cls.__name__}: such an encoding cannot be made ({reason}); make a setting smaller"
            ) from error
        return settings


def _takes_anything(make: type) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(make).parameters.values())


LARGEST = 2**31  # of a setting that counts something
MOST_DISTANCES = 2**28
MOST_NUMBERS = 2**29  # of a table over distances: 4 GiB in float64
MOST_PAIRS = 2**25  # whose distances are sorted to find those that occur
_SHORT = 2**16  # distances that any table may have
_SMALL = 2**22  # numbers of a table that is made without a look at which distances occur: 32 MiB in float64


@dataclass(frozen=True)
class Columns:
    """The distances of a table's columns, ascending: first, first + 1, ..., or (`listed`) those that occur."""

    distance: Int[Tensor, " n"]
    first: int = 0
    listed: bool = False

    @property
    def distances(self) -> Int[Tensor, " n"] | None:
        """What a form is told: None where columns follow from `first`."""
        return self.distance if self.listed else None


def columns(span: Span, first: int, end: int, each: Callable[[], int]) -> Columns:
    """Return the columns of a table for the distances first ... end - 1 of a span, with `each()` numbers in a column.

    All of them, unless positions lie so far apart that such a table is large and the pairs of query and key are fewer:
    then those that occur. Raise `ConfigError` for a table of more than `MOST_NUMBERS`.
    """
    size, device = end - first, span.q.device
    if torch.compiler.is_compiling() or size <= _SHORT:
        return Columns(distances(first, end, device), first)
    width, pairs = each(), max(len(span.q), len(span.k)) * span.q.shape[1] * span.k.shape[1]
    if size * width <= _SMALL or span.consecutive or pairs >= size or pairs > MOST_PAIRS:
        _require_table(size, size * width)
        return Columns(distances(first, end, device), first)
    distance = span.distance().clamp(first, end - 1).unique()
    _require_table(size, len(distance) * width)
    return Columns(distance, first, listed=True)


def _require_table(size: int, numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise ConfigError(
            f"positions reach over {size:,} distances, and a table for these tokens would have {numbers:,} numbers, more than "
            f"the {MOST_NUMBERS:,} allowed (4 GiB); bring the positions closer together, use fewer tokens at a time, or choose "
            "an encoding without a table (RoPE, NoPE)"
        )


def distances(first: int, end: int, device: torch.device) -> Int[Tensor, " n"]:
    """first, first + 1, ..., end - 1, for a table over them; `ConfigError` where no memory holds one."""
    if torch.compiler.is_compiling():  # where positions are given, `end` is known when the graph runs
        torch._check(
            end - first <= MOST_DISTANCES, lambda: f"positions reach over more than {MOST_DISTANCES:,} distances"
        )
    else:
        _require_table(end - first, end - first)
    return torch.arange(first, end, device=device)


def some_at_a_time(distance: Int[Tensor, " n"], most: int) -> tuple[Int[Tensor, " m"], ...]:
    """Distances in parts of at most `most`, so that what is made of them need not be in memory together. In a compiled graph,
    where it may not be known how many there are, they are one part."""
    return (distance,) if torch.compiler.is_compiling() else distance.split(most)


def at_least(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is a whole number, 1 to LARGEST."""
    require_whole(what, 1, **values)
    for name, value in values.items():
        if isinstance(value, int) and value > LARGEST:
            raise ConfigError(f"{what}: {name} is {value}; it has to be at most {LARGEST:,}")


def positive(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is a number more than 0, and finite."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ConfigError(f"{what}: {name} is {value!r}; it has to be a finite number, more than 0")


def stretched(length: Int[Tensor, "*n"], train_length: int, scale_step: int) -> Int[Tensor, "*n"]:
    """L up to the trained length L; beyond it L and the excess, rounded up to a multiple of `scale_step`.

    >>> stretched(torch.tensor([10, 64, 65, 96, 97]), 64, 32)
    tensor([ 64,  64,  96,  96, 128])
    """
    steps = -(-(length - train_length).clamp(min=0) // scale_step)
    return train_length + steps * scale_step


class RotaryEncoding(PositionEncoding):
    """A method gives `frequencies(length)`; the rotation of q and k (never v, in every layer) is here, once."""

    layout: Any = "interleaved"

    @abstractmethod
    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        """Radians per position, one for each pair of dims, at each current length; [pairs] where that changes nothing."""

    def gain(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n 1"] | float | None:
        """What q and k are both stretched by (logits get its square); None: nothing."""
        return None

    def modifiers(self, span: Span) -> AttentionModifiers:
        # float64 until the cosine is taken: at position 10^6 a float32 angle is off by 0.06 radians.
        angle_k, gain_k = self._turn(span.k, span.length_k, span.length)
        angle_q, gain_q = angle_k, gain_k
        if not span.consecutive or span.q.shape != span.k.shape:  # or both turn alike, and cosines are taken once
            angle_q, gain_q = self._turn(span.q, span.length_q, span.length)
        return AttentionModifiers(rotation=Rotation(angle_q, angle_k, gain_q, gain_k, self.layout))

    def _turn(self, positions: Tensor, own: Tensor | None, length: int) -> tuple[Tensor, Tensor | float | None]:
        if own is None or not self.depends_on_length():
            own = torch.tensor(length, device=positions.device)
        gain = self.gain(own)
        angle = positions[..., None] * self.frequencies(own)
        return angle, gain.expand(*angle.shape[:-1], -1) if isinstance(gain, Tensor) else gain


class DistanceBias(PositionEncoding):
    """A method gives `bias(distance)`; a table over distances is all that attention needs.

    One way, a key at a higher position than its query is at distance 0: the mask hides keys that come later, and positions
    may go back (the position scheme `Digits`).
    """

    constant_beyond: int | None = (
        None  # the bias is the same at all distances from this one on; None: it always changes
    )
    bidirectional: bool = False  # whether it has something to say about keys after the query (distances below 0)

    @abstractmethod
    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        """Nats to add to the logits at each distance (query position - key position; below 0 only with `bidirectional`)."""

    def modifiers(self, span: Span) -> AttentionModifiers:
        n = span.reach if self.constant_beyond is None else torch.sym_min(span.reach, self.constant_beyond + 1)
        if self.constant_beyond is not None and not is_own(type(self)) and not torch.compiler.is_compiling():
            self._require_constant(self.constant_beyond, span.q.device)
        at = columns(span, -n if self.bidirectional else 0, n, lambda: self._heads(span.q.device))
        return AttentionModifiers(terms=(ToeplitzBias(self.checked_bias(at.distance), at.first, at.distances),))

    def _require_constant(self, last: int, device: torch.device) -> None:
        """Raise `ConfigError` if the bias still changes beyond `constant_beyond`: attention would never see that."""
        sides = (1, -1) if self.bidirectional else (1,)
        for side in sides:
            two = self.checked_bias(torch.tensor(sorted([side * last, side * (last + 1)]), device=device)).detach()
            if not torch.equal(two[:, 0], two[:, 1]):
                raise ConfigError(
                    f"{place(type(self).bias)}: {type(self).__name__}.constant_beyond is {last}, but its bias at distance "
                    f"{side * (last + 1)} differs from that at {side * last}; correct constant_beyond, or leave it None"
                )

    def checked_bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        """`bias(distance)`; `ConfigError` where that is no table of heads by distances."""
        found: object = self.bias(distance)
        if torch.compiler.is_compiling():  # sizes may not be known yet
            return found  # type: ignore[return-value]
        if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] != len(distance):
            is_tensor = isinstance(found, Tensor)
            what = f"a tensor of shape {list(found.shape)}" if is_tensor else f"{type(found).__name__}, no tensor"  # type: ignore[attr-defined]
            heads = self.given.get("num_heads", "heads")
            raise ConfigError(
                f"{place(type(self).bias)}: {type(self).__name__}.bias returned {what}; it has to be [heads, distances], here "
                f"[{heads}, {len(distance)}]"
            )
        return found

    def _heads(self, device: torch.device) -> int:
        return len(self.checked_bias(torch.zeros(1, dtype=torch.long, device=device)))


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        outward = ((x <= ctx.low) & (grad > 0)) | ((x >= ctx.high) & (grad < 0))
        return grad.masked_fill(outward, 0.0), None, None


def project(x: Float[Tensor, "..."], low: float, high: float = float("inf")) -> Float[Tensor, "..."]:
    """`x` clamped to [low, high], in float64, with the gradient of projected descent.

    A parameter at or past a bound still gets the gradient that leads back inside, so it never dies there, and none that
    leads further out, so it does not drift away. The parameter itself is not written to.
    """
    result: Tensor = _Project.apply(x.to(table_dtype(x.device)), low, high)
    return result
