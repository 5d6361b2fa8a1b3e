"""torch's fused attention (`scaled_dot_product_attention`) for every form that is a rotation or an additive bias.

Memory: a bias is one (heads, queries, keys) tensor for the whole batch (one per row of the batch where positions differ
between rows). On a GPU a bias takes the dtype of q: in bfloat16 it has 8 bits. On a CPU half precision computes in
float32, and a bias that learns makes torch fall back to matrices of the whole batch.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention import reference
from lengthwise.attention.masks import Mask
from lengthwise.attention.tables import of_distance, of_pieces
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    ToeplitzBias,
)
from lengthwise.span import Span

Attend = Callable[..., Tensor]


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve the modifiers, or None."""
    if modifiers.rewrite:
        return "LogitTransform needs whole rows of logits, and fused attention never has them"
    if modifiers.values:
        return "RelativeValues needs the weights, and fused attention never has them"
    return None


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """Attention for one span; what does not depend on q and k is made at the first call and kept."""
    kept: dict[tuple[torch.dtype, bool], Tensor | None] = {}

    # Under autocast torch would round the bias, and undo what is done here for half precision.
    @torch.autocast("cpu", enabled=False)  # type: ignore[untyped-decorator]
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        given = q.dtype
        if not q.is_cuda and given in (torch.bfloat16, torch.float16):
            q, k, v = q.float(), k.float(), v.float()
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        key = q.dtype, torch.is_grad_enabled()  # what was made without gradients would not pass them on
        bias = kept[key] if key in kept else kept.setdefault(key, _static(modifiers, span, mask, q))
        for term in modifiers.terms:
            if isinstance(term, (RelativeKeyBias, KeyBias)):
                row = reference.dense(term, q, k, span, scale)
                bias = _hide(row, mask) if bias is None else bias + row
        if modifiers.rotation:
            q, k = modifiers.rotation.query(q), modifiers.rotation.key(k)
        if modifiers.gain:
            compute = torch.promote_types(q.dtype, torch.float32)
            q = (q * modifiers.gain.gain[..., None].to(compute)).to(q.dtype)
        return _fused(q, k, v, bias, mask, scale).to(given)

    return attend


def _static(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> Tensor | None:
    """The sum of the terms that do not depend on q and k, -inf where nothing is seen; None when there is nothing to say."""
    dtype, total = torch.promote_types(q.dtype, torch.float32), None
    for term in modifiers.terms:
        match term:
            case ToeplitzBias(table, first, distances):
                new = of_distance(table.to(dtype), span, first, distances).transpose(0, 1)
            case PiecewiseLinearBias(slope, intercept, knots, u, w, _, distances):
                x = of_distance(u.to(dtype)[None], span, 0, distances)[0] * w.to(dtype)[..., None]
                new = of_pieces(slope.to(dtype), intercept.to(dtype), knots.to(dtype), x).transpose(0, 1)
            case DenseBias() | ContentBias() | CumulativeBias():
                new = reference.dense(term, q, q, span, 1.0).to(dtype)
            case _:
                continue
        total = new if total is None else total + new
    if total is not None:
        return _hide(total, mask)
    if mask.causal_only or mask.hides_nothing:
        return None
    return _hide(torch.zeros((), dtype=dtype, device=q.device), mask)


def _hide(bias: Tensor, mask: Mask) -> Tensor:
    if mask.hides_nothing:
        return bias
    visible = mask.visible(bias.device)[:, None]
    return torch.where(visible, bias, -math.inf)


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Mask, scale: float) -> Tensor:
    if scale <= 0:  # torch's would multiply the -inf of a hidden key by it
        q, scale = q * scale, 1.0
    if bias is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask.causal_only, scale=scale)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), scale=scale)
    return (
        out if q.numel() else out + bias.sum()
    )  # of an empty batch torch's knows no gradient of the bias: here it is 0
