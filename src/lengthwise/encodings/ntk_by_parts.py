"""Scalings of RoPE that interpolate slow pairs, keep fast ones, and blend between: NTK-by-parts, YaRN and Llama 3.

NTKByParts: interpolate the slow pairs of RoPE, keep the fast ones, and blend between.
YaRN: NTK-by-parts with a temperature that makes attention sharper.
DynamicYaRN: YaRN whose factor follows the current length, and plain RoPE up to the training length.
Llama3: interpolate pairs that make few turns within the training length.
"""

import math
from typing import Any, ClassVar, Literal, Required, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import stepped_length
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor
from lengthwise.forms import table_dtype


class RampArguments(RoPEArguments, total=False):
    """The arguments of `NTKByParts` except the factor, for `YaRN` and `DynamicYaRN`."""

    train_length: Required[int]
    beta_fast: float
    beta_slow: float
    ramp: Literal["index", "rotations"]
    truncate: bool


class NTKByParts(RoPE):
    """RoPE whose pair p is rotated by θ_p (ρ_p / s + 1 - ρ_p) radians per position: θ_p = base^(-2p/r), s = `factor`.

    Pairs that make many turns within the training length L distinguish neighbouring tokens and keep their frequency (ρ
    = 0). Pairs that do not complete one turn are interpolated (ρ = 1).

    `ramp="index"`: ρ_p = clip((p - low) / (high - low), 0, 1). Here low and high are b(`beta_fast`) and b(`beta_slow`),
    and b(n) = r ln(L / 2πn) / (2 ln base) is the index of the pair that makes n turns within L. `truncate` rounds low
    down and high up. low is at least 0; high is at most r - 1, and at least low + 0.001.

    `ramp="rotations"`: 1 - ρ_p = clip((n_p - beta_slow) / (beta_fast - beta_slow), 0, 1), where n_p = L θ_p / 2π is the
    number of turns within L.

    If L < 2π·32 = 201, no pair makes 32 turns. The defaults then change all pairs but the first, so choose other betas.

    Beyond the training length: up to s·L it reaches no angle that plain RoPE does not reach up to L.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.2.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "yarn" (which also has YaRN's temperature).
    Differs: the paper's ramp is linear in the number of turns ("rotations"); in all implementations it is linear in the
    index. There, low can exceed high if all pairs lie beyond one of them, which reverses the ramp; here high stays
    above low.

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
                f"{name}: beta_fast must be more than beta_slow, got {beta_fast} and {beta_slow}; pairs with beta_fast "
                "turns keep their frequency and pairs with beta_slow turns are interpolated"
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
    """Return 0 for pairs with up to `slow` turns in the training length, 1 from `fast` turns on, linear between."""
    return ((train_length * theta / (2 * math.pi) - slow) / (fast - slow)).clamp(0, 1)


class YaRN(NTKByParts):
    """`NTKByParts`, and rotated q and k are multiplied by m = g(s, mscale) / g(s, mscale_all_dim), s = `factor`.

    g(s, x) = 0.1 x ln s + 1, so by default m = 0.1 ln s + 1. The product <q, k> is multiplied by m², which is
    1 / temperature: more keys make softmax flatter, and m makes it sharper again. `attention_factor` sets m directly.
    s and m apply at every length, also up to L, so a model is trained or fine-tuned with them (`DynamicYaRN` needs
    neither).

    Beyond the training length: as with `NTKByParts`, up to s·L it reaches no angle that plain RoPE does not reach up to
    L.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.4.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "yarn"; deepseek-ai/DeepSeek-V3 (`mscale`,
    `mscale_all_dim`).
    Differs: DeepSeek's attention also multiplies its softmax scale by g(s, mscale_all_dim)², which affects the
    dimensions that are not rotated as well; here only m is applied. `mscale` takes effect on its own, as in DeepSeek's
    code; transformers uses it only if `mscale_all_dim` is given too and neither is 0. Without fine-tuning the model,
    the betas have to be tuned (issue 19 of jquesnelle/yarn).

    >>> yarn = YaRN(head_dim=8, train_length=64, factor=8.0)
    >>> yarn.gain(torch.tensor(1)), yarn.frequencies(torch.tensor(1))[-1] * 8  # 1 + 0.1 ln 8
    (1.2079441541679836, tensor(0.0010, dtype=torch.float64))
    """

    def __init__(
        self,
        *,
        factor: float = 4.0,
        attention_factor: float | None = None,
        mscale: float = 1.0,
        mscale_all_dim: float = 0.0,
        **ramp: Unpack[RampArguments],
    ):
        super().__init__(factor=factor, **ramp)
        name = type(self).__name__
        require_positive(name, or_zero=True, mscale=mscale, mscale_all_dim=mscale_all_dim)
        g, g_all_dim = (0.1 * x * math.log(factor) + 1 for x in (mscale, mscale_all_dim))
        self.attention_factor = g / g_all_dim
        if attention_factor is not None:
            require_positive(name, attention_factor=attention_factor)
            if (mscale, mscale_all_dim) != (1, 0):
                raise ConfigError(f"{name}: attention_factor replaces mscale and mscale_all_dim; pass one or the other")
            self.attention_factor = attention_factor

    def gain(self, length: Int[Tensor, "*n"]) -> float:
        return self.attention_factor


class DynamicYaRN(NTKByParts):
    """YaRN with s = max(1, n / L), n the current length: frequencies θ_p (ρ_p / s + 1 - ρ_p), q and k times 0.1 ln s +
    1.

    ρ is that of `NTKByParts` and L is the training length. Up to L this is RoPE. There is no state between calls, so
    earlier sequences do not affect the result. `scale_step` rounds n - L up to a multiple of itself (1: as published),
    and a KV cache stays valid within a step.

    Beyond the training length: the angles of all tokens change with each n. So an early token's logits differ between a
    short sequence and a long one that begins in the same way.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.3 (dynamic
    scaling) and 3.4.
    Code: jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding.
    Differs: after a long sequence, the published code keeps the largest s that it saw, also for shorter sequences.

    >>> DynamicYaRN(head_dim=8, train_length=64).frequencies(torch.tensor([64, 256]))
    tensor([[1.0000e+00, 1.0000e-01, 1.0000e-02, 1.0000e-03],
            [1.0000e+00, 6.2500e-02, 2.5000e-03, 2.5000e-04]], dtype=torch.float64)
    """

    shift_invariant: ClassVar[bool] = False  # shifted position IDs end higher, which makes the document longer

    def __init__(self, *, scale_step: int = 1, **ramp: Unpack[RampArguments]):
        super().__init__(factor=1.0, **ramp)
        require_positive_int(type(self).__name__, scale_step=scale_step)
        self.scale_step = scale_step

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        return stepped_length(length, self.train_length, self.scale_step)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return self.interpolated_frequencies(length, self._scale(length))

    def gain(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*n 1"]:
        return 0.1 * self._scale(length).log() + 1

    def _scale(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*n 1"]:
        return (self.effective_length(length).to(table_dtype(length.device)) / self.train_length)[..., None]


class Llama3(RoPE):
    """RoPE whose pair p is rotated by θ_p (γ_p + (1 - γ_p) / s) radians per position, θ_p = base^(-2p/r), s = `factor`.

    γ_p = clip((L θ_p / 2π - low) / (high - low), 0, 1), where L θ_p / 2π is the number of turns within the training
    length L. Pairs with at most low = `low_freq_factor` turns have their frequency divided by s. Pairs with high =
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
                f"{name}: high_freq_factor must be at least low_freq_factor, got {high_freq_factor} and "
                f"{low_freq_factor}; pairs with up to low_freq_factor turns within the training length are "
                "interpolated, and pairs with high_freq_factor turns or more keep their frequency"
            )
        self.train_length, self.factor = train_length, factor
        self.low_freq_factor, self.high_freq_factor = low_freq_factor, high_freq_factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        theta = super().frequencies(length)
        gamma = unscaled_share(theta, self.train_length, self.low_freq_factor, self.high_freq_factor)
        return theta * (gamma + (1 - gamma) / self.factor)
