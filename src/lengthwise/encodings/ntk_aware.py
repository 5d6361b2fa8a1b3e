"""NTK-aware scaling: RoPE with a larger base, which keeps fast pairs and interpolates slow ones."""

from typing import ClassVar, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor
from lengthwise.forms import table_dtype


class NTKAware(RoPE):
    """RoPE with base' = base · s^(r/(r-2)), r rotary dimensions, s = `factor` >= 1.

    Pair p is rotated by position · θ_p · s^(-2p/(r-2)) radians, θ_p = base^(-2p/r). The first pair keeps its frequency and
    the last has exactly θ_p / s, which `PI` applies to all pairs. A single pair (r = 2) would be both first and last, so
    no such base exists. The method is meant for use without fine-tuning.

    Beyond the training length: the pairs between first and last reach angles never seen in training before s times that
    length. So the model works for less than s times the training length, and s has to be chosen larger.

    Source: bloc97 2023, "NTK-Aware Scaled RoPE allows LLaMA models to have extended (8k+) context size"; Peng et al. 2023,
    "YaRN: Efficient Context Window Extension of Large Language Models", section 3.1.
    Code: jquesnelle/yarn.

    >>> NTKAware(head_dim=8, factor=4.0).frequencies(torch.tensor(1))  # the last is 0.001 / 4
    tensor([1.0000e+00, 6.2996e-02, 3.9685e-03, 2.5000e-04], dtype=torch.float64)
    """

    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(self, *, factor: float = 4.0, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        name = type(self).__name__
        require_factor(name, factor)
        if self.rotary_dims == 2:
            raise ConfigError(
                f"{name}: at least 4 dimensions must be rotated, got 2 (one pair), where the base's exponent r/(r-2) is "
                "undefined; make head_dim or rotary_fraction larger"
            )
        self.factor = factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        factor = torch.tensor(self.factor, dtype=table_dtype(length.device), device=length.device)
        return self.scaled_frequencies(length, factor)

    def scaled_frequencies(self, length: Int[Tensor, "*n"], factor: Float[Tensor, "*n"]) -> Float[Tensor, "*n pairs"]:
        """Return θ_p · s^(-2p/(r-2)) for each factor s."""
        theta = super().frequencies(length)
        exponent = torch.linspace(0, 1, len(theta), dtype=theta.dtype, device=theta.device)  # 2p/(r-2)
        return theta * factor.to(theta.dtype)[..., None] ** -exponent
