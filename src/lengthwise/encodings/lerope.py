"""LeRoPE: RoPE with learned frequencies."""

from collections.abc import Mapping
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.encodings.base import require_positive
from lengthwise.encodings.rope import RoPE, RoPEArguments


class LeRoPE(RoPE):
    """Pair p of q and k is rotated by position · base^(-2p/r) · exp(α_p / `divisor`) radians, with a learned α_p.

    All heads share the r/2 numbers α. They are initialized with 0, which is RoPE. With AdamW, whose steps hardly depend on the
    size of the gradient, a larger `divisor` makes the frequencies change more slowly. As with RoPE, the product of the rotated
    query at position i and the rotated key at position j depends only on i - j.

    Beyond the training length: slow pairs reach angles never seen in training, unless training has made them slower.

    Source: Mistral Large 4, in Hugging Face transformers (models/mistral_large4), where it has this name and divisor 1; no paper is
    known. Zhang et al. 2025, "Group Representational Position Encoding", call it the non-contextual GRAPE-M, with divisor 16 and
    numbers α for each layer (`share_encoding=false` of the model).
    Code: huggingface/transformers; model-architectures/GRAPE, llama-mha-grape-m-nonctx.py.
    Differs: in transformers α is a buffer, which is not trained. GRAPE learns `divisor` · ln(base^(-2p/r)) + α_p, which has
    the same gradient. Both compute frequencies and angles in float32; here they are float64.

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
