"""The base class of temperatures."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_tensor
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, QueryGain, table_dtype
from lengthwise.span import Span


class Temperature(PositionEncoding):
    """Base class of temperatures. A subclass defines `factor(position)`.

    The factor is a function of the query's position ID, so padding, packed documents and a cache do not change it. Alone, a
    temperature is an encoding that rotates nothing and adds nothing; `Combined` adds it to another encoding.
    """

    is_temperature: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    scales_terms: ClassVar[bool] = False  # whether biases are multiplied too, and not only the product of query and key

    @abstractmethod
    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "#b #h i"]:
        """Return the factor of the logits of each query, given its position as a floating-point number."""

    def modifiers(self, span: Span) -> AttentionModifiers:
        factor: Any = self.factor(span.q.to(table_dtype(span.q.device)))
        require_tensor(self, "factor", factor, batch=None, heads=None, queries=span.q.shape[1])
        return AttentionModifiers(gain=QueryGain(factor, scales_terms=self.scales_terms))


class LearnedTemperature(Temperature):
    """Base class of temperatures `scale_h · ln(n) + bias_h`, where n is the position of the query + 1. Both are learned."""

    shared_across_layers: ClassVar[bool] = False

    def __init__(self, scale: Tensor, bias: Tensor | None):
        super().__init__()
        self.scale = nn.Parameter(scale)
        self.bias = None if bias is None else nn.Parameter(bias)

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b h i"]:
        factor = self.scale.to(position.dtype)[:, None] * torch.log1p(position)[:, None]
        return factor if self.bias is None else factor + self.bias.to(position.dtype)[:, None]

    def tracked(self) -> Mapping[str, Tensor]:
        return {"scale": self.scale} | ({} if self.bias is None else {"bias": self.bias})


def require_logarithm(encoding: str, train_length: int) -> None:
    """Raise `ConfigError` if the logarithm of the training length is 0, because temperatures divide by it."""
    if train_length == 1:
        raise ConfigError(f"{encoding}: train_length must be at least 2, because ln 1 = 0 is a divisor, got 1")
