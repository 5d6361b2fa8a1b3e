"""Sinusoidal: fixed sines and cosines added to the embeddings."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_input, require_positions, require_positive
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import table_dtype


class Sinusoidal(PositionEncoding):
    """x + PE(position), with PE(p, 2i) = sin(p / base^(2i/c)) and PE(p, 2i+1) = cos(p / base^(2i/c)), i = 0 ... c/2 - 1.

    `layout="concat"` puts all sines before all cosines: the same numbers in another order.

    Beyond the training length: it is defined at every position, but a trained model has never seen those vectors.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    Differs: the NoPE paper's eq. 11 counts i from 1, and its code concatenates. This class counts from 0 as Vaswani does.

    >>> Sinusoidal(d_model=4).table(torch.tensor([1]))   # sin 1, cos 1, sin 0.01, cos 0.01 = 0.99995
    tensor([[0.8415, 0.5403, 0.0100, 1.0000]], dtype=torch.float64)
    """

    shift_invariant: ClassVar[bool] = False

    def __init__(
        self, *, d_model: int, base: float = 10_000.0, layout: Literal["interleaved", "concat"] = "interleaved"
    ):
        super().__init__()
        require_positive("Sinusoidal", base=base)
        if d_model % 2:
            raise ConfigError(
                f"Sinusoidal: d_model must be even, because sines and cosines come in pairs, got {d_model}"
            )
        self.d_model, self.base, self.layout = d_model, base, layout

    def table(self, positions: Int[Tensor, "*t"]) -> Float[Tensor, "*t c"]:
        """Return the vector of each position."""
        pair = torch.arange(0, self.d_model, 2, dtype=table_dtype(positions.device), device=positions.device)
        angle = positions[..., None] * self.base ** -(pair / self.d_model)
        parts = angle.sin(), angle.cos()
        return torch.cat(parts, -1) if self.layout == "concat" else torch.stack(parts, -1).flatten(-2)

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        require_input("Sinusoidal", x, self.d_model)
        require_positions("Sinusoidal", positions, x)
        return x + self.table(positions).to(x.dtype)
