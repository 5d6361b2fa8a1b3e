"""Attention with an additive bias that learns, without a tensor of (batch, heads, queries, keys).

torch's fused CPU attention has no gradient for its mask; with a mask that needs one it falls back to plain matrices of
the whole batch. Here the forward pass is the fused kernel, and the backward pass recomputes the weights block by block
(as flash attention does) and adds up the bias' gradient on the way.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_ROWS = 128  # queries of a block
_PAIRS = 1 << 19  # logits of a block: small enough to stay in a core's cache


class BiasedAttention(torch.autograd.Function):
    """softmax(scale · q kᵀ + bias) v on the CPU; bias [b|1, h|1, i, j] in q's dtype, -inf where nothing is seen.

    `causal`: the bias hides every key past the query's own index, so blocks need not look there. There is no second
    derivative here: asking for one is an error (the reference backend has it).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, causal: bool) -> Tensor:
        # The kernel takes for granted that the numbers of one head lie side by side.
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = kernel(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
        ctx.save_for_backward(q, k, v, bias, out, lse)
        ctx.scale, ctx.causal = scale, causal
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None, None]:
        q, k, v, bias, out, lse = ctx.saved_tensors
        lse = lse.view(q.shape[:3])
        delta = (grad * out).sum(-1)
        batch, heads, queries, _ = q.shape
        keys, offset = k.shape[2], k.shape[2] - q.shape[2]
        dq, dk, dv, db = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v), torch.zeros_like(bias)
        rows = min(queries, _ROWS)
        step = max(1, _PAIRS // (heads * rows * keys))
        for b in range(0, batch, step):
            at = slice(b, b + step)
            own = at if len(bias) > 1 else slice(None)
            for i in range(0, queries, rows):
                r = slice(i, i + rows)
                c = slice(0, min(keys, offset + i + rows) if ctx.causal else keys)
                scaled, g, kc = q[at, :, r] * ctx.scale, grad[at, :, r], k[at, :, c]
                p = scaled @ kc.mT
                p.add_(bias[own, :, r, c]).sub_(lse[at, :, r, None]).exp_()
                dv[at, :, c] += p.mT @ g
                ds = g @ v[at, :, c].mT
                ds.sub_(delta[at, :, r, None]).mul_(p)
                db[own, :, r, c] += ds.sum_to_size(db[own, :, r, c].shape)
                dq[at, :, r] = ds @ kc * ctx.scale
                dk[at, :, c] += ds.mT @ scaled
        return dq, dk, dv, db, None, None
