"""NTK-aware scaling: RoPE with a larger base, so that the fast pairs stay and the slow ones are interpolated."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.rope import RoPE, require_factor
from lengthwise.forms import table_dtype


class NTKAware(RoPE):
    """RoPE with base' = base · s^(r/(r-2)), r rotary dims, s = `factor` >= 1: pair p turns by θ_p · s^(-2p/(r-2)) radians.

    The first pair keeps its frequency and the last has exactly θ / s, as all have in `PI`. One pair (r = 2) would be first
    and last at once: there is no such base. Meant for use without fine-tuning.

    Past the trained length: the pairs between first and last reach angles never seen before s times that length is
    reached, so that it serves less than s times, and s is chosen larger.

    Source: bloc97 2023, "NTK-Aware Scaled RoPE allows LLaMA models to have extended (8k+) context size"; Peng et al. 2023,
    "YaRN: Efficient Context Window Extension of Large Language Models", section 3.1.
    Code: jquesnelle/yarn.

    >>> NTKAware(head_dim=8, factor=4.0).frequencies(torch.tensor(1))  # the last is 0.001 / 4
    tensor([1.0000e+00, 6.2996e-02, 3.9685e-03, 2.5000e-04], dtype=torch.float64)
    """

    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10_000.0,
        rotary_fraction: float = 1.0,
        layout: Literal["interleaved", "half"] = "interleaved",
        factor: float = 4.0,
    ):
        super().__init__(head_dim=head_dim, base=base, rotary_fraction=rotary_fraction, layout=layout)
        name = type(self).__name__
        require_factor(name, factor)
        if self.rotary_dims == 2:
            raise ConfigError(
                f"{name}: 2 dims turn, one pair, and the exponent r/(r-2) of the base has no value there; rotate at least 4"
            )
        self.factor = factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return self.slowed(length, torch.tensor(self.factor, dtype=table_dtype(length.device), device=length.device))

    def slowed(self, length: Int[Tensor, "*n"], by: Float[Tensor, "*n"]) -> Float[Tensor, "*n pairs"]:
        """RoPE's frequencies, the last of them divided by a number, those before it by as much of it as the base does."""
        theta = super().frequencies(length)
        share = torch.linspace(0, 1, len(theta), dtype=theta.dtype, device=theta.device)  # 2p/(r-2)
        return theta * by.to(theta.dtype)[..., None] ** -share
