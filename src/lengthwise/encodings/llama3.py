"""Llama 3.1's scaling of RoPE: interpolate pairs that make few turns within the training length."""

from typing import ClassVar, Unpack

from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import require_positive
from lengthwise.encodings.ntk_by_parts import unscaled_share
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor


class Llama3(RoPE):
    """RoPE whose pair p is rotated by θ_p (γ_p + (1 - γ_p) / s) radians per position, θ_p = base^(-2p/r), s = `factor`.

    γ_p = clip((L θ_p / 2π - low) / (high - low), 0, 1), where L θ_p / 2π is the number of turns within the training length L.
    Pairs with at most low = `low_freq_factor` turns have their frequency divided by s. Pairs with high =
    `high_freq_factor` turns or more keep it. This is NTK-by-parts with `ramp="rotations"` and other bounds.

    Beyond the training length: up to s·L slow pairs reach no angle that RoPE does not reach up to L.

    Source: Llama Team 2024, "The Llama 3 Herd of Models" (the scaling is only in the code).
    Code: meta-llama/llama-models, models/llama3/model.py; Hugging Face transformers, `rope_type` "llama3".
    Differs: Llama 3.1 has base 500000 and L = 8192 (3.2: factor 32); base is 10000 here as in every other encoding.

    >>> Llama3(head_dim=8, train_length=64).frequencies(torch.tensor(1))  # turns: 10.2, 1.02, 0.10, 0.01
    tensor([1.0000e+00, 1.3042e-02, 1.2500e-03, 1.2500e-04], dtype=torch.float64)
    """

    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(
        self,
        *,
        train_length: int,
        factor: float = 8.0,
        low_freq_factor: float = 1.0,
        high_freq_factor: float = 4.0,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        name = type(self).__name__
        require_factor(name, factor)
        require_positive(name, low_freq_factor=low_freq_factor, high_freq_factor=high_freq_factor)
        if low_freq_factor > high_freq_factor:  # Llama 4 has the same number twice
            raise ConfigError(
                f"{name}: high_freq_factor must be at least low_freq_factor, got {high_freq_factor} and {low_freq_factor}; "
                "pairs with up to low_freq_factor turns within the training length are interpolated, and pairs with "
                "high_freq_factor turns or more keep their frequency"
            )
        self.train_length, self.factor = train_length, factor
        self.low_freq_factor, self.high_freq_factor = low_freq_factor, high_freq_factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        theta = super().frequencies(length)
        gamma = unscaled_share(theta, self.train_length, self.low_freq_factor, self.high_freq_factor)
        return theta * (gamma + (1 - gamma) / self.factor)
