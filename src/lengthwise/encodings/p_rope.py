"""p-RoPE: RoPE that rotates only the fastest pairs."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.rope import RoPE
from lengthwise.values import shown


class PRoPE(RoPE):
    """Pair i of all d/2 pairs is rotated by position · base^(-2i/d) radians if i < floor(p d / 2); slower pairs are not rotated.

    According to the paper, the slowest pairs of RoPE carry meaning rather than position, and their slow rotation distorts
    it in long sequences. Here they are the same at every distance. p = 1 is RoPE, and p = 0 would be NoPE.

    This is not RoPE's `rotary_fraction`. There, the rotated dimensions have all frequencies from 1 down to nearly 1 / base, and
    pairs consist of rotated dimensions only. Here frequencies and pairs are those of the whole head, and the slow ones are left
    out.

    Beyond the training length: rotated pairs behave as in RoPE. The slowest pairs, which do not complete a turn in training,
    are not rotated.

    Source: Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional Encodings useful?".
    Code: google-deepmind/gemma (`rope_proportion`); Hugging Face transformers, `rope_type` "proportional". Both round down.
    Differs: a p that rotates no pair is an error. If p d is a whole number except for a rounding error, it counts as whole.

    >>> PRoPE(head_dim=8, p=0.75).frequencies(torch.tensor(1))
    tensor([1.0000, 0.1000, 0.0100, 0.0000], dtype=torch.float64)
    """

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10_000.0,
        layout: Literal["interleaved", "half"] = "interleaved",
        p: float = 0.75,
    ):
        super().__init__(head_dim=head_dim, base=base, layout=layout)
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 < p <= 1:
            raise ConfigError(
                f"PRoPE: p (the fraction of pairs that are rotated) must be more than 0 and at most 1, got {shown(p)}"
            )
        self.rotated_pairs = int(p * head_dim / 2 + 1e-9)  # 0.58 * 100 / 2 is 28.999999999999996
        if not self.rotated_pairs:
            raise ConfigError(
                f"PRoPE: p of the {head_dim // 2} pairs of head_dim {head_dim} must be at least one pair, got p {p}; "
                "make p larger, or choose NoPE"
            )
        self.p = p

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        theta = super().frequencies(length)
        return theta * (torch.arange(len(theta), device=theta.device) < self.rotated_pairs)
