"""xPos: RoPE whose products decay with distance, those of fast pairs sooner."""

import math
from dataclasses import replace
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.rope import RoPE, RoPEArguments
from lengthwise.forms import AttentionModifiers, Rotation, table_dtype
from lengthwise.span import Span

# The logarithm of the largest product of gains: float32's range, less 2^12 for the products of q and k themselves.
_MAX_LOG_GAIN = math.log(torch.finfo(torch.float32).max / 2.0**12)


class XPos(RoPE):
    """RoPE, and pair i's part of the product of query m and key n is multiplied by ζ_i^((m - n) / B), B = `scale_base`.

        ζ_i = (2i + γ r) / ((1 + γ) r)        gain of q: ζ_i^((m - c) / B)        gain of k: ζ_i^(-(n - c) / B)

    m and n are positions, γ is `gamma`, and r is the number of rotated dimensions. For keys before the query the factor
    is less than 1, and it is smallest for the fastest pairs. For a key after the query it would be more than 1, so this
    is for causal attention. The centre c = `max_length` // 2 is fixed and cancels. So nothing depends on the current
    length, and a KV cache holds rotated keys.

    The gains limit the length. A key after its query is multiplied before it is masked, so the largest product of two
    gains, ((1 + γ) / γ)^((max_length - 1) / B), must fit into float32, with 2^12 to spare for q and k. At γ = 0.4 and B
    = 512 this allows 32,862 positions, and more with a larger B. A larger `max_length` is an error, and so is a
    position past `max_length`. Gains of q and k reach 10^17 at the first and last position, which float32 and bfloat16
    can hold. In float16, only a few thousand positions are possible.

    Beyond the training length: distant keys have decayed more than any did in training, and attention stays near the
    query.

    Source: Sun et al. 2022, "A Length-Extrapolatable Transformer".
    Code: microsoft/torchscale.
    Differs: the code centres at half the current length, so its gains change with every token, but the products do not.
    The paper's blockwise causal attention for long sequences is a mask, and not part of this class.

    >>> rotation = XPos(head_dim=8, max_length=513).modifiers(Span.of(513)).rotation
    >>> rotation.gain_q[0, 0, 512] * rotation.gain_k[0, 0, 0]  # one scale base apart: ζ
    tensor([0.2857, 0.4643, 0.6429, 0.8214], dtype=torch.float64)
    """

    def __init__(
        self,
        *,
        gamma: float = 0.4,
        scale_base: float = 512.0,
        max_length: int = 32768,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        require_positive_int("XPos", max_length=max_length)
        require_positive("XPos", gamma=gamma, scale_base=scale_base)
        longest = _MAX_LOG_GAIN * scale_base / math.log1p(1 / gamma) + 1
        if max_length > longest:
            raise ConfigError(
                f"XPos: max_length must be at most {int(longest)}, got {max_length}, where the decay of gamma {gamma} "
                f"and scale_base {scale_base} overflows float32; make max_length smaller or scale_base larger"
            )
        self.gamma, self.scale_base, self.max_length = gamma, scale_base, max_length

    def modifiers(self, span: Span) -> AttentionModifiers:
        assert self.max_length is not None
        if torch.compiler.is_compiling():  # in a graph `length` may be only an upper bound
            torch._assert_async(
                (span.k < self.max_length).all(), f"XPos: a position is past its max_length {self.max_length}"
            )
        elif span.length > self.max_length:
            raise ConfigError(
                f"XPos: position {span.length - 1} is past its max_length {self.max_length}; make max_length larger "
                "(and scale_base with it), or choose an encoding without decay"
            )
        rotation = super().modifiers(span).rotation
        assert isinstance(rotation, Rotation)
        zeta, centre = self.zeta(span.q.device), self.max_length // 2
        power_q, power_k = ((p - centre).to(zeta.dtype)[:, None, :, None] / self.scale_base for p in (span.q, span.k))
        rotation = replace(rotation, gain_q=zeta**power_q, gain_k=zeta**-power_k, bidirectional=False)
        return AttentionModifiers(rotation=rotation)

    def zeta(self, device: torch.device) -> Float[Tensor, " pairs"]:
        """Return ζ_i of each pair."""
        pair = torch.arange(0, self.rotary_dims, 2, dtype=table_dtype(device), device=device)
        return (pair + self.gamma * self.rotary_dims) / ((1 + self.gamma) * self.rotary_dims)
