"""NTK-by-parts: interpolate the slow pairs of RoPE, keep the fast ones, and blend between."""

import math
from typing import Any, ClassVar, Literal, Required, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import require_positive
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor


class RampArguments(RoPEArguments, total=False):
    """The arguments of `NTKByParts` except the factor, for `YaRN` and `DynamicYaRN`."""

    train_length: Required[int]
    beta_fast: float
    beta_slow: float
    ramp: Literal["index", "rotations"]
    truncate: bool


class NTKByParts(RoPE):
    """RoPE whose pair p is rotated by θ_p (ρ_p / s + 1 - ρ_p) radians per position: θ_p = base^(-2p/r), s = `factor`.

    Pairs that make many turns within the training length L distinguish neighbouring tokens and keep their frequency (ρ = 0).
    Pairs that do not complete one turn are interpolated (ρ = 1).

    `ramp="index"`: ρ_p = clip((p - low) / (high - low), 0, 1). Here low and high are b(`beta_fast`) and b(`beta_slow`), and
    b(n) = r ln(L / 2πn) / (2 ln base) is the index of the pair that makes n turns within L. `truncate` rounds low down and
    high up. low is at least 0; high is at most r - 1, and at least low + 0.001.

    `ramp="rotations"`: 1 - ρ_p = clip((n_p - beta_slow) / (beta_fast - beta_slow), 0, 1), where n_p = L θ_p / 2π is the number
    of turns within L.

    If L < 2π·32 = 201, no pair makes 32 turns. The defaults then change all pairs but the first, so choose other betas.

    Beyond the training length: up to s·L it reaches no angle that plain RoPE does not reach up to L.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "yarn" (which also has YaRN's temperature).
    Differs: the paper's ramp is linear in the number of turns ("rotations"); in all implementations it is linear in the index.
    There, low can exceed high if all pairs lie beyond one of them, which reverses the ramp; here high stays above low.

    >>> NTKByParts(head_dim=8, train_length=64).frequencies(torch.tensor(1))  # ρ = 0, 1/2, 1, 1
    tensor([1.0000e+00, 6.2500e-02, 2.5000e-03, 2.5000e-04], dtype=torch.float64)
    """

    # At the sizes of the conformance suite (16 positions, 8 pairs) no pair makes 32 turns.
    conformance_settings: ClassVar[dict[str, Any]] = {"beta_slow": 0.1}
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {"beta_fast": (0.5,), "beta_slow": (0.02,)}
    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(
        self,
        *,
        train_length: int,
        factor: float = 4.0,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        ramp: Literal["index", "rotations"] = "index",
        truncate: bool = True,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        name = type(self).__name__
        require_factor(name, factor)
        require_positive(name, beta_fast=beta_fast, beta_slow=beta_slow)
        if self.base <= 1:
            raise ConfigError(
                f"{name}: base must be more than 1, so that later pairs rotate more slowly, got {self.base}"
            )
        if beta_fast <= beta_slow:
            raise ConfigError(
                f"{name}: beta_fast must be more than beta_slow, got {beta_fast} and {beta_slow}; pairs with beta_fast turns "
                "keep their frequency and pairs with beta_slow turns are interpolated"
            )
        if ramp == "rotations" and not truncate:
            raise ConfigError(f"{name}: truncate=False applies only to ramp='index'; leave it out with 'rotations'")
        self.train_length, self.factor, self.ramp, self.truncate = train_length, factor, ramp, truncate
        self.beta_fast, self.beta_slow = beta_fast, beta_slow

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return self.interpolated_frequencies(length, self.factor)

    def interpolated_frequencies(
        self, length: Int[Tensor, "*n"], scale: float | Float[Tensor, "*n 1"]
    ) -> Float[Tensor, "*#n pairs"]:
        """Return θ (ρ / s + 1 - ρ) for one factor s, or for one at each length."""
        theta = super().frequencies(length)
        if self.ramp == "rotations":
            rho = 1 - unscaled_share(theta, self.train_length, self.beta_slow, self.beta_fast)
        else:
            low, high = self.ramp_bounds()
            pair = torch.arange(len(theta), dtype=theta.dtype, device=theta.device)
            rho = ((pair - low) / (high - low)).clamp(0, 1)
        return theta * (rho / scale + (1 - rho))

    def ramp_bounds(self) -> tuple[float, float]:
        """Return the index of the last pair that keeps its frequency and of the first that is fully interpolated."""
        dims = self.rotary_dims
        low, high = (
            dims * math.log(self.train_length / (2 * math.pi * turns)) / (2 * math.log(self.base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        return float(low), float(high if high > low else low + 0.001)  # with `truncate` they are ints until here


def unscaled_share(
    theta: Float[Tensor, " pairs"], train_length: int, slow: float, fast: float
) -> Float[Tensor, " pairs"]:
    """Return 0 for pairs with at most `slow` turns within the training length, 1 from `fast` turns on, linear between."""
    return ((train_length * theta / (2 * math.pi) - slow) / (fast - slow)).clamp(0, 1)
