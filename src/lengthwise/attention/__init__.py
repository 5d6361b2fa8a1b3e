"""Attention with the forms of an encoding, on several backends.

`attend` is for a model of your own. Our models call `plan`, which prepares once per forward pass and encoding
everything that the layers share. `BACKENDS` lists the backends.
"""

from lengthwise.attention.backends import BACKENDS
from lengthwise.attention.cache import KVCache
from lengthwise.attention.calls import TokenInfo, attend, statistics
from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.attention.masks import Mask
from lengthwise.attention.plans import (
    Plan,
    check_backend,
    gradients_unsupported_reason,
    plan,
    unsupported_reason,
    with_content,
)
from lengthwise.attention.statistics import Bins, Statistics, measure

__all__ = [
    "BACKENDS",
    "Bins",
    "EncodingCache",
    "KVCache",
    "Mask",
    "Plan",
    "Statistics",
    "TokenInfo",
    "attend",
    "check_backend",
    "gradients_unsupported_reason",
    "measure",
    "plan",
    "statistics",
    "unsupported_reason",
    "with_content",
]
