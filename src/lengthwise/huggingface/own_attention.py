"""Attention layers of transformers that do not call its attention interface: BLOOM and MPT, both with ALiBi.

For each class there is a function that replaces its `forward`: it projects as it does, and calls our attention.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.config import Choice
from lengthwise.huggingface.attention import attention
from lengthwise.models.conversion import alibi_from_slopes
from lengthwise.transformers_versions import cache_of


def bloom(
    layer: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Any,
    **further: Any,
) -> tuple[Tensor, None]:
    q, k, v = layer._reshape(layer.query_key_value(hidden_states))
    if (cache := cache_of(further)) is not None:
        k, v = cache.update(k, v, layer.layer_idx)
    dropout = layer.attention_dropout.p if layer.training else 0.0
    out, _ = attention(layer, q, k, v, attention_mask, scaling=layer.inv_norm_factor, dropout=dropout, **further)
    return residual + F.dropout(layer.dense(out.flatten(2)), layer.hidden_dropout, layer.training), None


def mpt(
    layer: Any,
    hidden_states: Tensor,
    position_bias: Tensor,
    attention_mask: Any = None,
    **further: Any,
) -> tuple[Tensor, None]:
    qkv = layer.Wqkv(hidden_states)
    if layer.clip_qkv:
        qkv = qkv.clamp(-layer.clip_qkv, layer.clip_qkv)
    q, k, v = (
        projection.unflatten(-1, (layer.n_heads, layer.head_dim)).transpose(1, 2) for projection in qkv.chunk(3, -1)
    )
    if (cache := cache_of(further)) is not None:
        k, v = cache.update(k, v, layer.layer_idx)
    dropout = layer.attn_dropout_p if layer.training else 0.0
    out, _ = attention(layer, q, k, v, attention_mask, scaling=layer.softmax_scale, dropout=dropout, **further)
    return layer.out_proj(out.flatten(2)), None


FORWARDS: dict[str, Callable[..., Any]] = {"BloomAttention": bloom, "MptAttention": mpt}


def alibi_of(config: Any) -> Choice | None:
    """Return the ALiBi of a BLOOM or MPT model with the slopes that transformers computes; None for other models."""
    if config.model_type == "bloom":
        return alibi_from_slopes(_bloom_slopes(int(config.num_attention_heads)))
    if config.model_type == "mpt" and config.attn_config.alibi:
        return alibi_from_slopes(_mpt_slopes(int(config.num_attention_heads), int(config.attn_config.alibi_bias_max)))
    return None


def _bloom_slopes(heads: int) -> Tensor:
    """Return 2^(-8 h / p) for the first p heads, the largest power of two; the others lie between them."""
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * n / power) for n in range(1, power + 1)]
    between = [2.0 ** (-4 * n / power) for n in range(1, 2 * (heads - power), 2)]
    return torch.tensor(first + between, dtype=torch.float64)


def _mpt_slopes(heads: int, bias_max: int) -> Tensor:
    """Return 2^(-bias_max h / p), p the next power of two of `heads`: the even ones, then the odd ones."""
    power = 1 << (heads - 1).bit_length()
    slopes = [2.0 ** (-bias_max * n / power) for n in range(1, power + 1)]
    ordered = slopes if power == heads else [*slopes[1::2], *slopes[::2]][:heads]
    return torch.tensor(ordered, dtype=torch.float64)
