"""Log-n scaling: RoPE with larger logits for queries that see more keys than in training."""

import math
from typing import ClassVar, Unpack

from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.rope import RoPE, RoPEArguments
from lengthwise.forms import AttentionModifiers, QueryGain, table_dtype
from lengthwise.span import Span


class LogN(RoPE):
    """RoPE, and the scaled product of query i with every key is multiplied by max(1, ln(i + 1) / ln L), L the training length.

    Softmax over more keys is flatter. Logits that grow with the logarithm of the number of keys keep its entropy about the
    same. Query i (0-based) sees i + 1 keys. `rotary_fraction=0` rotates nothing, which is log-n scaling on NoPE. Up to the
    training length this is exactly RoPE, or NoPE.

    Beyond the training length: attention flattens less than with RoPE, and the angles are those of RoPE.

    Source: Su 2021, "The scale of attention from the invariance of entropy" (in Chinese), kexue.fm/archives/8823; Chiang and
    Cholak 2022, "Overcoming a Theoretical Limitation of Self-Attention".
    Code: bojone/rerope; Qwen-7B (`use_logn_attn`).
    Differs: Su derives one n, the number of keys, for a whole sequence. Both implementations count the keys that a causal
    query sees: ln(i + 1) at the 0-based position i, as here (Qwen's list begins with ln 1, and is used in evaluation only).
    Su and Chiang also train with ln n without the maximum, so that attention in short sequences is flatter than here. Here
    i is the query's position ID, whatever keys a mask or a position scheme leaves visible.

    >>> LogN(head_dim=8, train_length=8).modifiers(Span.of(64)).gain.gain[0, 0, [0, 7, 63]]  # ln 64 / ln 8
    tensor([1., 1., 2.], dtype=torch.float64)
    """

    shift_invariant: ClassVar[bool] = False
    allows_no_rotation: ClassVar[bool] = True
    alternatives: ClassVar[dict[str, tuple[float, ...]]] = {"rotary_fraction": (0.5, 0.0)}

    def __init__(self, *, train_length: int, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        if train_length == 1:
            raise ConfigError("LogN: train_length must be at least 2, because ln 1 = 0 is a divisor, got 1")
        self.train_length = train_length

    def modifiers(self, span: Span) -> AttentionModifiers:
        rotation = super().modifiers(span).rotation if self.rotary_dims else None
        visible_keys: Tensor = (span.q + 1).to(table_dtype(span.q.device))
        gain = (visible_keys.log() / math.log(self.train_length)).clamp(min=1.0)
        return AttentionModifiers(rotation=rotation, gain=QueryGain(gain[:, None]))
