"""Beam: a factor of the logits that grows with a power of the position."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive
from lengthwise.encodings.temperatures.base import Temperature


class Beam(Temperature):
    """The scaled product of query i with every key is multiplied by (1 + (i + 1) / length)^exponent.

    i is the query's position ID. Nothing is learned.

    Beyond the training length: the factor continues on the same curve.

    Source: Reflection 2026, the Beam model, which has this factor in the layers without rotation; no paper is known.
    Code: huggingface/transformers, models/beam (0.1 and 2048 are constants there).

    >>> Beam(exponent=0.5, length=1.0).factor(torch.tensor([[0.0, 2.0, 7.0]]))      # the square roots of 2, 4 and 9
    tensor([[[1.4142, 2.0000, 3.0000]]])
    """

    conformance_settings: ClassVar[dict[str, Any]] = {"length": 4.0}

    def __init__(self, *, exponent: float = 0.1, length: float = 2048.0):
        super().__init__()
        require_positive("Beam", exponent=exponent, or_zero=True)
        require_positive("Beam", length=length)
        if exponent > 1:
            raise ConfigError(f"Beam: exponent must be at most 1, got {exponent:g}")
        self.exponent, self.length = exponent, length

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return ((1 + (position + 1) / self.length) ** self.exponent)[:, None]
