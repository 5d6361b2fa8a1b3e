"""RoPE: rotate queries and keys by their position."""

from typing import Any, ClassVar, Literal, Required, TypedDict

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import RotaryEncoding, require_positive
from lengthwise.forms import table_dtype
from lengthwise.values import shown


class RoPEArguments(TypedDict, total=False):
    """The arguments of `RoPE`, which most rotary encodings take too."""

    head_dim: Required[int]
    base: float
    rotary_fraction: float
    layout: Literal["interleaved", "half"]


class RoPE(RotaryEncoding):
    """Pair p of q and k is rotated by position · base^(-2p/r) radians, p = 0 ... r/2 - 1, r = rotary_fraction · d.

    d is the number of dimensions of a head, of which the first r are rotated. The product of the rotated query at position i and
    the rotated key at position j depends only on i - j. `layout="interleaved"` pairs dimensions (2p, 2p+1) as in the paper.
    `"half"` pairs (p, p + r/2) as Llama, NeoX and Hugging Face weights do. The two differ only in the order of dimensions, but
    weights are not interchangeable.

    Beyond the training length: slow pairs reach angles never seen in training, which PI, NTK and YaRN avoid.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", eq. 14-15.
    Differs: the NoPE paper's code rotates a quarter of each head (`rotary_fraction=0.25`); the paper says only "Rotary".

    >>> RoPE(head_dim=8).frequencies(torch.tensor(1))
    tensor([1.0000, 0.1000, 0.0100, 0.0010], dtype=torch.float64)
    """

    allows_no_rotation: ClassVar[bool] = False  # whether rotary_fraction may be 0: a subclass may do more than rotate

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10_000.0,
        rotary_fraction: float = 1.0,
        layout: Literal["interleaved", "half"] = "interleaved",
    ):
        super().__init__()
        name = type(self).__name__
        require_positive(name, base=base)
        number = isinstance(rotary_fraction, (int, float)) and not isinstance(rotary_fraction, bool)
        if not number or not (0 < rotary_fraction <= 1 or (rotary_fraction == 0 and self.allows_no_rotation)):
            low = "0 or more" if self.allows_no_rotation else "more than 0"
            raise ConfigError(f"{name}: rotary_fraction must be {low} and at most 1, got {shown(rotary_fraction)}")
        self.rotary_dims = int(rotary_fraction * head_dim + 1e-9)  # 0.58 * 50 is 28.999999999999996
        if (self.rotary_dims < 2 and rotary_fraction) or self.rotary_dims % 2:
            raise ConfigError(
                f"{name}: rotary_fraction {rotary_fraction} of head_dim {head_dim} must be an even number of dimensions, at "
                f"least 2, because they are rotated in pairs, got {self.rotary_dims}; change one of the two"
            )
        self.head_dim, self.base, self.layout = head_dim, base, layout

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        # Whether a fraction is valid depends on the model's head_dim: 0.4 of 80 is 32, but 0.4 of 64 is not even.
        if 0 < settings.get("rotary_fraction", 1.0) < 1:
            super().check({**settings, "rotary_fraction": 1.0})
            return settings
        return super().check(settings)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return pair_frequencies(self.rotary_dims, self.base, length.device)


def pair_frequencies(dims: int, base: float, device: torch.device) -> Float[Tensor, " pairs"]:
    """Return base^(-2p/dims) of each pair p, in radians."""
    pair = torch.arange(0, dims, 2, dtype=table_dtype(device), device=device)
    return base ** -(pair / dims)


def require_rotary(what: str, head_dim: int, base: object) -> None:
    """Raise `ConfigError` unless a whole head can be rotated in pairs. `what` starts the message."""
    require_positive(what, base=base)
    if head_dim % 2:
        raise ConfigError(f"{what}: head_dim must be even, because dimensions are rotated in pairs, got {head_dim}")


def require_factor(what: str, factor: object) -> None:
    """Raise `ConfigError` unless `factor` is a finite number, at least 1. `what` starts the message."""
    require_positive(what, factor=factor)
    if factor < 1:  # type: ignore[operator]
        raise ConfigError(f"{what}: factor (target length / training length) must be at least 1, got {factor}")
