"""The base class of encodings that replace large distances by smaller ones and rotate as RoPE does."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from lengthwise.config.class_settings import from_context
from lengthwise.encodings.arguments import MAX_COUNT, NOMINAL_SIZES, require_positive_int
from lengthwise.encodings.rope import RoPE
from lengthwise.forms import AttentionModifiers, PiecewiseRotation, Rotation, table_dtype
from lengthwise.span import Span
from lengthwise.values import ConfigError


class DistanceMap(RoPE):
    """Base class of maps of distances. Each pair of query and key belongs to a region, and each region has positions of its own.

    A subclass defines `mapped(positions)`, the positions of queries and of keys in each region, and `region(q, k)`. In region 0
    both are the position IDs themselves, so pairs of region 0 have the product of RoPE, to the last bit.
    """

    @abstractmethod
    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return the positions of queries and those of keys in each region, for tokens at `positions`."""

    @abstractmethod
    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        """Return the region of each pair."""

    def modifiers(self, span: Span) -> AttentionModifiers:
        frequencies = self.frequencies(torch.tensor(span.length, device=span.q.device))
        q, k = (self.mapped(positions.to(table_dtype(positions.device))) for positions in (span.q, span.k))
        rotations = (
            Rotation(_angle(of_q[0], frequencies), _angle(of_k[1], frequencies), layout=self.layout)
            for of_q, of_k in zip(q, k, strict=True)
        )
        return AttentionModifiers(product=PiecewiseRotation(tuple(rotations), self.region))

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        # Which lengths and fractions are valid depends on the training length and the head dim of the model.
        fraction = settings.get("rotary_fraction", 1.0)
        whole = {**settings, "rotary_fraction": 1.0} if 0 < fraction < 1 else settings
        cls(**from_context(cls, {**NOMINAL_SIZES, "train_length": MAX_COUNT}), **whole)
        return settings


def _angle(positions: Num[Tensor, "b t"], frequencies: Float[Tensor, " pairs"]) -> Float[Tensor, "b 1 t pairs"]:
    return positions[:, None, :, None] * frequencies


def distance(q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Num[Tensor, "b i j"]:
    """Return the position of each query minus that of each key."""
    return q[:, :, None] - k[:, None]


def require_within(what: str, train_length: int, **lengths: object) -> None:
    """Raise `ConfigError` unless lengths are whole numbers from 1 to the training length. `what` starts the message."""
    require_positive_int(what, **lengths)
    for name, length in lengths.items():
        if length > train_length:  # type: ignore[operator]
            raise ConfigError(
                f"{what}: {name} must be at most the training length, {train_length}, because larger distances were never "
                f"trained, got {length}"
            )
