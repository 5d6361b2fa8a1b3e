"""LogN: larger logits for queries that see more keys than in training."""

import math
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings.temperatures.base import Temperature, require_logarithm


class LogN(Temperature):
    """The scaled product of query i with every key is multiplied by max(1, ln(i + 1) / ln L), L the training length.

    Softmax over more keys is flatter. Logits that grow with the logarithm of the number of keys keep its entropy about the
    same. Query i (0-based) sees i + 1 keys. Up to the training length the factor is exactly 1. Nothing is learned.

    Beyond the training length: attention flattens less than without the factor.

    Source: Su 2021, "The scale of attention from the invariance of entropy" (in Chinese), kexue.fm/archives/8823; Chiang and
    Cholak 2022, "Overcoming a Theoretical Limitation of Self-Attention".
    Code: bojone/rerope; Qwen-7B (`use_logn_attn`), both beside RoPE.
    Differs: Su derives one n, the number of keys, for a whole sequence. Both implementations count the keys that a causal
    query sees: ln(i + 1) at the 0-based position i, as here (Qwen's list begins with ln 1, and is used in evaluation only).
    Su and Chiang also train with ln n without the maximum, so that attention in short sequences is flatter than here. Here
    i is the query's position ID, whatever keys a mask or a position scheme leaves visible.

    >>> LogN(train_length=8).factor(torch.tensor([[0.0, 7.0, 63.0]]))      # 1, 1, ln 64 / ln 8
    tensor([[[1., 1., 2.]]])
    """

    version: ClassVar[int] = 2

    def __init__(self, *, train_length: int):
        super().__init__()
        require_logarithm("LogN", train_length)
        self.train_length = train_length

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return ((position + 1).log() / math.log(self.train_length)).clamp(min=1.0)[:, None]
