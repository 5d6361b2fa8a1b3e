"""The `sdpa` backend: torch's `scaled_dot_product_attention` for every form that is a rotation or an additive bias."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lengthwise import forms
from lengthwise.attention.backends.base import Attend, Backend, rows_unsupported_reason
from lengthwise.attention.masks import Mask
from lengthwise.span import Span


class SDPA(Backend):
    """Torch's `scaled_dot_product_attention`.

    Memory: a bias is one (heads, queries, keys) tensor for the whole batch (one per row of the batch where positions
    differ between rows). A sink is one more column of such a tensor, and one more key. On a GPU a bias has the dtype of
    q: in bfloat16 it has 8 bits. On a CPU half precision is computed in float32, and for a learned bias torch falls
    back to matrices of the whole batch.
    """

    name = "sdpa"

    def unsupported_reason(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
        return rows_unsupported_reason(modifiers, "fused attention")

    def prepare(self, modifiers: forms.AttentionModifiers, span: Span, mask: Mask) -> Attend:
        """Return attention for one span. What does not depend on q and k is computed at the first call and reused."""
        return partial(_attend, modifiers, span, mask, {})


# Autocast would round the bias and undo the conversion of half precision.
@torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]
def _attend(
    modifiers: forms.AttentionModifiers,
    span: Span,
    mask: Mask,
    biases: dict[tuple[torch.dtype, bool], Tensor | None],
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b g j d"],
    v: Float[Tensor, "b g j d"],
    *,
    scale: float,
) -> Float[Tensor, "b h i d"]:
    input_dtype = q.dtype
    if not q.is_cuda and input_dtype in (torch.bfloat16, torch.float16):
        q, k, v = q.float(), k.float(), v.float()
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    key = q.dtype, torch.is_grad_enabled()  # a bias computed without gradients cannot be used with them
    bias = biases[key] if key in biases else biases.setdefault(key, _static_bias(modifiers, span, mask, q, k, scale))
    for term in modifiers.terms:
        if term.reads_q or term.reads_k:
            values = _scaled(term.dense(q, k, span, scale), modifiers.gain)
            bias = _hide(values, mask) if bias is None else bias + values
    if modifiers.rotation:
        q, k = modifiers.rotation.rotate_query(q), modifiers.rotation.rotate_key(k)
    if modifiers.gain:
        compute = torch.promote_types(q.dtype, torch.float32)
        q = (q * modifiers.gain.gain[..., None].to(compute)).to(q.dtype)
    if modifiers.sink:
        k, v, bias = _with_sink(modifiers.sink, q, k, v, bias, mask)
    return _fused(q, k, v, bias, mask, scale).to(input_dtype)


def _scaled(values: Tensor, gain: forms.QueryGain | None) -> Tensor:
    """Return the values of a term, multiplied by a gain that scales terms."""
    return values * gain.gain[..., None].to(values.dtype) if gain and gain.scales_terms else values


def _with_sink(
    sink: forms.SinkLogit, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Mask
) -> tuple[Tensor, Tensor, Tensor]:
    """Return keys, values and bias with one more key: 0, like its value, and the sink's logit as its bias."""
    compute = torch.promote_types(q.dtype, torch.float32)
    if bias is None:
        bias = _hide(q.new_zeros((), dtype=compute), mask)
    batch, heads = max(1, bias.shape[0]) if bias.ndim == 4 else 1, q.shape[1]
    pairs = bias.expand(batch, heads, mask.queries, mask.keys)
    logit = sink.logit.to(compute)[:, None, None].expand(batch, heads, mask.queries, 1)
    return F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), torch.cat([pairs.to(compute), logit], -1)


def _static_bias(
    modifiers: forms.AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float
) -> Tensor | None:
    """Return the sum of the terms that do not depend on q and k, -inf for hidden keys; None if no bias is needed."""
    dtype, bias = torch.promote_types(q.dtype, torch.float32), None
    for term in modifiers.terms:
        if not term.reads_q and not term.reads_k:
            new = _scaled(term.in_dtype(dtype).block(q, k, span, scale).to(dtype), modifiers.gain)
            bias = new if bias is None else bias + new
    if bias is not None:
        return _hide(bias, mask)
    if mask.causal_only or mask.hides_nothing:
        return None
    return _hide(torch.zeros((), dtype=dtype, device=q.device), mask)


def _hide(bias: Tensor, mask: Mask) -> Tensor:
    if mask.hides_nothing:
        return bias
    visible = mask.visible(bias.device)[:, None]
    return torch.where(visible, bias, -math.inf)


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Mask, scale: float) -> Tensor:
    if scale <= 0:  # torch would multiply the -inf of hidden keys by it
        q, scale = q * scale, 1.0
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal_only, scale=scale)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), scale=scale)
    # For an empty batch torch has no gradient for the bias; with the sum it is 0.
    return out if q.numel() else out + bias.sum()
