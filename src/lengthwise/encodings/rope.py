"""RoPE, with fixed, learned or fewer frequencies.

RoPE: rotate queries and keys by their position.
PRoPE: RoPE that rotates only the fastest pairs.
LeRoPE: RoPE with learned frequencies.
"""

from collections.abc import Mapping
from typing import Any, Literal, Required, TypedDict, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive
from lengthwise.encodings.base import RotaryEncoding
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

    d is the number of dimensions of a head, of which the first r are rotated. The product of the rotated query at
    position i and the rotated key at position j depends only on i - j. `layout="interleaved"` pairs dimensions (2p,
    2p+1) as in the paper. `"half"` pairs (p, p + r/2) as Llama, NeoX and Hugging Face weights do. The two differ only
    in the order of dimensions, but weights are not interchangeable.

    Beyond the training length: slow pairs reach angles never seen in training, which PI, NTK and YaRN avoid.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", eq. 14-15.
    Differs: the NoPE paper's code rotates a quarter of each head (`rotary_fraction=0.25`); the paper says only
    "Rotary".

    >>> RoPE(head_dim=8).frequencies(torch.tensor(1))
    tensor([1.0000, 0.1000, 0.0100, 0.0010], dtype=torch.float64)
    """

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
        if not 0 < rotary_fraction <= 1:
            raise ConfigError(
                f"{name}: rotary_fraction must be more than 0 and at most 1, got {shown(rotary_fraction)}"
            )
        self.rotary_dims = int(rotary_fraction * head_dim + 1e-9)  # 0.58 * 50 is 28.999999999999996
        if self.rotary_dims < 2 or self.rotary_dims % 2:
            raise ConfigError(
                f"{name}: rotary_fraction {rotary_fraction} of head_dim {head_dim} must be an even number of "
                f"dimensions, at least 2, because they are rotated in pairs, got {self.rotary_dims}; change one of the "
                "two"
            )
        self.head_dim, self.base, self.layout = head_dim, base, layout

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # Whether a fraction is valid depends on the model's head_dim: 0.4 of 80 is 32, but 0.4 of 64 is not even.
        if 0 < settings.get("rotary_fraction", 1.0) < 1:
            settings = {**settings, "rotary_fraction": 1.0}
        return super().nominal(settings)

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


class PRoPE(RoPE):
    """Pair i of all d/2 pairs is rotated by position · base^(-2i/d) radians if i < floor(p d / 2); slower pairs are not
    rotated.

    According to the paper, the slowest pairs of RoPE carry meaning rather than position, and their slow rotation
    distorts it in long sequences. Here they are the same at every distance. p = 1 is RoPE, and p = 0 would be NoPE.

    This is not RoPE's `rotary_fraction`. There, the rotated dimensions have all frequencies from 1 down to nearly 1 /
    base, and pairs consist of rotated dimensions only. Here frequencies and pairs are those of the whole head, and the
    slow ones are left out.

    Beyond the training length: rotated pairs behave as in RoPE. The slowest pairs, which do not complete a turn in
    training, are not rotated.

    Source: Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional Encodings useful?".
    Code: google-deepmind/gemma (`rope_proportion`); Hugging Face transformers, `rope_type` "proportional". Both round
    down.
    Differs: a p that rotates no pair is an error. If p d is a whole number except for a rounding error, it counts as
    whole.

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
        if not 0 < p <= 1:
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


class LeRoPE(RoPE):
    """Pair p of q and k is rotated by position · base^(-2p/r) · exp(α_p / `divisor`) radians, with a learned α_p.

    All heads share the r/2 numbers α. They are initialized with 0, which is RoPE. With AdamW, whose steps hardly depend
    on the size of the gradient, a larger `divisor` makes the frequencies change more slowly. As with RoPE, the product
    of the rotated query at position i and the rotated key at position j depends only on i - j.

    Beyond the training length: slow pairs reach angles never seen in training, unless training has made them slower.

    Source: Mistral Large 4, in Hugging Face transformers (models/mistral_large4), where it has this name and divisor 1;
    no paper is known. Zhang et al. 2025, "Group Representational Position Encoding", call it the non-contextual
    GRAPE-M, with divisor 16 and numbers α for each layer (`share_encoding=false` of the model).
    Code: huggingface/transformers; model-architectures/GRAPE, llama-mha-grape-m-nonctx.py.
    Differs: in transformers α is a buffer, which is not trained. GRAPE learns `divisor` · ln(base^(-2p/r)) + α_p, which
    has the same gradient. Both compute frequencies and angles in float32; here they are float64.

    >>> lerope = LeRoPE(head_dim=8); _ = lerope.alpha.data.copy_(torch.tensor([0.0, 1.0, -1.0, 0.0]))
    >>> lerope.frequencies(torch.tensor(1)).detach()
    tensor([1.0000, 0.2718, 0.0037, 0.0010], dtype=torch.float64)
    """

    def __init__(self, *, divisor: float = 1.0, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        require_positive("LeRoPE", divisor=divisor)
        self.divisor = divisor
        self.alpha = nn.Parameter(torch.zeros(self.rotary_dims // 2))

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        fixed = super().frequencies(length)
        return fixed * (self.alpha.to(fixed.dtype) / self.divisor).exp()

    def tracked(self) -> Mapping[str, Tensor]:
        return {"α": self.alpha[None]}
