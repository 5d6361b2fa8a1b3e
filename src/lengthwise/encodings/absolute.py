"""Encodings of absolute positions, which are added to the token embeddings, and none at all.

NoPE: no position encoding.
Sinusoidal: fixed sines and cosines added to the embeddings.
Learned: one trained vector per position, added to the embeddings.
"""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_input, require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import table_dtype
from lengthwise.span import token_integers


class NoPE(PositionEncoding):
    """b(i, j) = 0, and q and k are unchanged. Only the causal mask gives information about positions.

    Beyond the training length: it is defined at every length, but a trained model has never seen so many keys.

    Source: Kazemnejad et al. 2023, "The Impact of Positional Encoding on Length Generalization in Transformers", eq.
    16.

    >>> list(NoPE().parameters())
    []
    """

    num_axes = None

    def __init__(self) -> None:
        super().__init__()


class Sinusoidal(PositionEncoding):
    """x + PE(position), with PE(p, 2i) = sin(p / base^(2i/c)) and PE(p, 2i+1) = cos(p / base^(2i/c)), i = 0 ... c/2 -
    1.

    `layout="concat"` puts all sines before all cosines: the same numbers in another order.

    Beyond the training length: it is defined at every position, but a trained model has never seen those vectors.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    Differs: the NoPE paper's eq. 11 counts i from 1, and its code concatenates. This class counts from 0 as Vaswani
    does.

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
        sin_cos = angle.sin(), angle.cos()
        return torch.cat(sin_cos, -1) if self.layout == "concat" else torch.stack(sin_cos, -1).flatten(-2)

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        require_input("Sinusoidal", x, self.d_model)
        token_integers("Sinusoidal: positions", positions, *x.shape[:2])
        return x + self.table(positions).to(x.dtype)


class Learned(PositionEncoding):
    """x + P[position], P in R^{max_length x c}, initialized from N(0, std^2).

    Beyond the training length: the rows of P were never trained. Positions from `max_length` on
    have no row and raise a `ValueError`.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"; used by GPT-2 and BERT.

    >>> Learned(d_model=4, max_length=2).embed(torch.zeros(1, 3, 4), torch.tensor([[0, 1, 2]]))
    Traceback (most recent call last):
    ConfigError: Learned: position 2 is past the 2 rows of its table; ...
    """

    shift_invariant: ClassVar[bool] = False

    def __init__(self, *, d_model: int, max_length: int = 2048, std: float = 1.0):
        super().__init__()
        require_positive_int("Learned", max_length=max_length)
        require_positive("Learned", std=std)
        self.max_length = max_length
        self.table = nn.Parameter(torch.randn(max_length, d_model) * std)

    def embed(self, x: Float[Tensor, "b t c"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t c"]:
        require_input("Learned", x, self.table.shape[1])
        token_integers("Learned: positions", positions, *x.shape[:2])
        self._require_rows(positions)
        return x + self.table[positions].to(x.dtype)

    def _require_rows(self, positions: Tensor) -> None:
        rows = len(self.table)
        if torch.compiler.is_compiling():  # a graph cannot read the values: here the error is a RuntimeError
            within = ((positions >= 0) & (positions < rows)).all()
            torch._assert_async(within, f"Learned: a position is below 0, or past the {rows} rows of its table")
            return
        first, last = (int(p) for p in torch.aminmax(positions)) if positions.numel() else (0, 0)
        if first < 0:
            raise ConfigError(f"Learned: positions must be at least 0, got {first}")
        if last >= rows:
            raise ConfigError(
                f"Learned: position {last} is past the {rows} rows of its table; "
                "make Learned(max_length=...) larger, or choose an encoding without a table"
            )
