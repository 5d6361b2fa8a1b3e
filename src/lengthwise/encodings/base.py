"""The families of position encodings. A method overrides `embed`, `effect`, or (NoPE) neither."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError, context_of
from lengthwise.forms import Effect, Rotation, ToeplitzBias, wide
from lengthwise.span import Span

# What a choice is checked against before any model is known; every method has to work at these sizes.
_NOMINAL = {"num_heads": 8, "head_dim": 64, "d_model": 512, "train_length": 512}


class PositionEncoding(nn.Module, ABC):
    """Parameters, plus what positions do.

    Arguments are keyword-only: those without a default (among `num_heads`, `head_dim`, `d_model`, `train_length`) are
    what the model tells the encoding, those with one are its settings.
    """

    kind: ClassVar[str] = "encoding"
    shared_across_layers: ClassVar[bool] = (
        True  # one module serves every layer, as in the source (or nothing is learned)
    )
    shift_invariant: ClassVar[bool] = True  # moving every position by the same amount changes no logit
    cache_rotated_keys: ClassVar[bool] = True  # False when a key's rotation depends on the current length
    max_length: int | None = None  # positions it can serve; None: any

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        """What absolute encodings do to the embeddings, once, before the first layer."""
        return x

    def effect(self, span: Span) -> Effect:
        """What relative encodings do to one attention call."""
        return Effect()

    @classmethod
    def acts_on_embedding(cls) -> bool:
        return cls.embed is not PositionEncoding.embed

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Raise `ValueError` for settings that cannot be: the constructor judges, on a device without memory."""
        with torch.device("meta"):
            cls(**{name: _NOMINAL[name] for name in context_of(cls)}, **settings)
        return settings


def at_least(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is an integer >= 1."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{what}: {name} is {value!r}; it has to be a whole number, at least 1")


def positive(what: str, **values: object) -> None:
    """Raise `ConfigError` unless each value is a number more than 0, and finite."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ConfigError(f"{what}: {name} is {value!r}; it has to be a finite number, more than 0")


class RotaryEncoding(PositionEncoding):
    """A method gives `frequencies(length)`; the rotation of q and k (never v, in every layer) is here, once."""

    layout: Any = "interleaved"
    gain: float | None = None

    @abstractmethod
    def frequencies(self, length: int, device: torch.device) -> Float[Tensor, " pairs"]:
        """Radians per position, one for each pair of dims."""

    def effect(self, span: Span) -> Effect:
        # float64 until the cosine is taken: at position 10^6 a float32 angle is off by 0.06 radians.
        f = self.frequencies(span.length, span.q.device)
        return Effect(
            rotation=Rotation(span.q[..., None] * f, span.k[..., None] * f, self.gain, self.gain, self.layout)
        )


class DistanceBias(PositionEncoding):
    """A method gives `bias(distance)`; a table over distances is all that attention needs."""

    reach: int | None = None  # past this distance the bias no longer changes; None: it always does

    @abstractmethod
    def bias(self, distance: Int[Tensor, " n"]) -> Float[Tensor, "h n"]:
        """Nats to add to the logits at each distance (query position - key position >= 0)."""

    def effect(self, span: Span) -> Effect:
        n = span.length if self.reach is None else min(span.length, self.reach + 1)
        return Effect(terms=(ToeplitzBias(self.bias(torch.arange(n, device=span.q.device))),))


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
    result: Tensor = _Project.apply(x.to(wide(x.device)), low, high)
    return result
