"""NTK-by-parts: interpolate the slow pairs of RoPE, keep the fast ones, and blend between."""

import math
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import at_least, positive
from lengthwise.encodings.rope import RoPE, require_factor
from lengthwise.values import require_bool


class NTKByParts(RoPE):
    """RoPE whose pair p turns by θ_p (ρ_p / s + 1 - ρ_p) radians per position: θ_p = base^(-2p/r), s = `factor`.

    What turns often within the trained length L tells neighbours apart and stays (ρ = 0); what does not finish one turn is
    interpolated (ρ = 1).

    `ramp="index"`: ρ_p = clip((p - low) / (high - low), 0, 1); low and high are the indices b(n) = r ln(L / 2πn) / (2 ln base)
    of the pairs that turn n = `beta_fast` and `beta_slow` times within L. `truncate` rounds them outwards; low is at least 0,
    high at most r - 1, and at least low + 0.001. `ramp="rotations"`: 1 - ρ_p = clip((n_p - beta_slow) / (beta_fast - beta_slow),
    0, 1) with n_p = L θ_p / 2π turns within L. Where L < 2π·32 = 201 nothing turns 32 times: all pairs but the first are changed
    then, and the betas want other values.

    Past the trained length: up to s·L it reaches no angle that plain RoPE does not reach up to L.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "yarn" (which has the temperature of YaRN too).
    Differs: the paper's ramp is linear in the number of turns ("rotations"), all code's in the index. In the code the borders
    can cross where every pair lies beyond one of them, and the ramp runs backwards there; here high stays above low.

    >>> NTKByParts(head_dim=8, train_length=64).frequencies(torch.tensor(1))  # ρ = 0, 1/2, 1, 1
    tensor([1.0000e+00, 6.2500e-02, 2.5000e-03, 2.5000e-04], dtype=torch.float64)
    """

    # At the sizes of the conformance suite (16 positions, 8 pairs) no pair turns 32 times.
    conformance_settings: ClassVar[dict[str, Any]] = {"beta_slow": 0.1}
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {"beta_fast": (0.5,), "beta_slow": (0.02,)}
    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(
        self,
        *,
        head_dim: int,
        train_length: int,
        base: float = 10_000.0,
        rotary_fraction: float = 1.0,
        layout: Literal["interleaved", "half"] = "interleaved",
        factor: float = 4.0,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        ramp: Literal["index", "rotations"] = "index",
        truncate: bool = True,
    ):
        super().__init__(head_dim=head_dim, base=base, rotary_fraction=rotary_fraction, layout=layout)
        name = type(self).__name__
        at_least(name, train_length=train_length)
        require_factor(name, factor)
        positive(name, beta_fast=beta_fast, beta_slow=beta_slow)
        if base <= 1:
            raise ConfigError(f"{name}: base is {base}; it has to be more than 1, so that later pairs turn slower")
        if beta_fast <= beta_slow:
            raise ConfigError(
                f"{name}: beta_fast is {beta_fast} and beta_slow {beta_slow}; pairs that turn beta_fast times stay and "
                "those that turn beta_slow times are interpolated, so beta_fast has to be more"
            )
        if ramp not in ("index", "rotations"):
            raise ConfigError(f"{name}: ramp is {ramp!r}; it is 'index' or 'rotations'")
        require_bool(name, truncate=truncate)
        if ramp == "rotations" and not truncate:
            raise ConfigError(f"{name}: truncate=False is about the ramp 'index'; leave it out with 'rotations'")
        self.train_length, self.factor, self.ramp, self.truncate = train_length, factor, ramp, truncate
        self.beta_fast, self.beta_slow = beta_fast, beta_slow

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return self.interpolated(length, self.factor)

    def interpolated(
        self, length: Int[Tensor, "*n"], scale: float | Float[Tensor, "*n 1"]
    ) -> Float[Tensor, "*#n pairs"]:
        """θ (ρ / s + 1 - ρ) for one s, or for one at each length."""
        theta = super().frequencies(length)
        if self.ramp == "rotations":
            share = 1 - kept(theta, self.train_length, self.beta_slow, self.beta_fast)
        else:
            low, high = self.borders()
            pair = torch.arange(len(theta), dtype=theta.dtype, device=theta.device)
            share = ((pair - low) / (high - low)).clamp(0, 1)
        return theta * (share / scale + (1 - share))

    def borders(self) -> tuple[float, float]:
        """The index of the last pair that stays and of the first that is interpolated in full."""
        dims = self.rotary_dims
        low, high = (
            dims * math.log(self.train_length / (2 * math.pi * turns)) / (2 * math.log(self.base))
            for turns in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        return float(low), float(high if high > low else low + 0.001)  # rounded, they are whole numbers


def kept(theta: Float[Tensor, " pairs"], train_length: int, slow: float, fast: float) -> Float[Tensor, " pairs"]:
    """How much of each pair stays, by its turns within the trained length: 0 up to `slow` turns, 1 from `fast` on."""
    return ((train_length * theta / (2 * math.pi) - slow) / (fast - slow)).clamp(0, 1)
