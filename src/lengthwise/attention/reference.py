"""The meaning of every form: short, exact in float64, dull. Every other backend must agree with this one."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention.masks import Mask
from lengthwise.forms import (
    AttentionModifiers,
    ContentBias,
    CumulativeBias,
    DenseBias,
    KeyBias,
    PiecewiseLinearBias,
    RelativeKeyBias,
    Term,
    ToeplitzBias,
    column,
)
from lengthwise.span import Span

Attend = Callable[..., Tensor]


def unsupported_reason(modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve the modifiers: it can serve them all."""
    return None


def prepare(modifiers: AttentionModifiers, span: Span, mask: Mask) -> Attend:
    """softmax(scale · <rotated q, rotated k> + terms) v, written the way the papers write it."""

    # Under autocast the products would be in half precision.
    @torch.autocast(span.q.device.type, enabled=False)  # type: ignore[untyped-decorator]
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        given, compute = q.dtype, torch.promote_types(q.dtype, torch.float32)
        groups = q.shape[1] // k.shape[1]
        q = q.to(compute)
        k, v = (x.to(compute).repeat_interleave(groups, 1) for x in (k, v))
        return attention(modifiers, q, k, v, span, mask.visible(q.device)[:, None], scale).to(given)

    return attend


def attention(
    modifiers: AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    v: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
) -> Float[Tensor, "b h i d"]:
    """As many heads of q, k and v, in the dtype that is computed in."""
    weights = logits(modifiers, q, k, span, visible, scale).masked_fill(~visible, -math.inf).softmax(-1)
    out = weights @ v
    for value in modifiers.values:
        # What of a query's weight falls to each column; vectors for every pair would be d times the weights.
        at = column(span.distance(), value.table.shape[1], value.first)[:, None].expand_as(weights)
        share = weights.new_zeros(*weights.shape[:-1], value.table.shape[1]).scatter_add(-1, at, weights)
        out = out + share @ value.table.to(weights.dtype)
    return out


def logits(
    modifiers: AttentionModifiers,
    q: Float[Tensor, "b h i d"],
    k: Float[Tensor, "b h j d"],
    span: Span,
    visible: Bool[Tensor, "#b 1 i j"],
    scale: float,
) -> Float[Tensor, "b h i j"]:
    """What the modifiers make of q and k, as many heads of either, before masking: a number for every pair, in float32 at least.
    What is rotated is rounded to the dtype of q and k, as a cache keeps it."""
    compute = torch.promote_types(q.dtype, torch.float32)
    rotation = modifiers.rotation
    turned_q, turned_k = (rotation.query(q), rotation.key(k)) if rotation else (q, k)
    total = turned_q.to(compute) @ turned_k.to(compute).mT * scale
    if modifiers.gain:
        total = total * modifiers.gain.gain[..., None].to(compute)
    q, k = q.to(compute), k.to(compute)
    for term in modifiers.terms:
        total = total + dense(term, q, k, span, scale).to(compute)
    return modifiers.rewrite.function(total, q, visible, scale, span) if modifiers.rewrite else total


def dense(term: Term, q: Tensor, k: Tensor, span: Span, scale: float) -> Float[Tensor, "#b #h #i j"]:
    """A term for every pair of query and key."""
    match term:
        case ToeplitzBias(table, first, distances):
            return table[:, column(span.distance(), table.shape[1], first, distances)].transpose(0, 1)
        case PiecewiseLinearBias(slope, intercept, knots, u, w, exact, distances):
            x = u[column(span.distance(), len(u), 0, distances)] * w[..., None]
            if exact is not None:
                return exact(x[..., None]).movedim(-1, 1)
            s = torch.bucketize(x.detach(), knots, right=True)  # the number of knots <= x
            return (slope[:, s] * x + intercept[:, s]).transpose(0, 1)
        case RelativeKeyBias(table, first, vector, distances):
            q = q if vector is None else q + vector.to(q.dtype)[:, None]
            return _relative(q, table, column(span.distance(), table.shape[1], first, distances)) * scale
        case ContentBias(content, table, first):
            return _relative(content, table, column(span.distance(), table.shape[1], first))
        case KeyBias(vector):
            return torch.einsum("hd,bhjd->bhj", vector.to(k.dtype), k)[:, :, None] * scale
        case CumulativeBias(total):
            return total[..., -span.q.shape[1] :, None] - total[..., None, :]
        case DenseBias(bias):
            return bias
    raise AssertionError(f"a term that is not in the vocabulary: {term}")


def _relative(
    x: Float[Tensor, "b h i d"], table: Float[Tensor, "#h n d"], at: Int[Tensor, "#b i j"]
) -> Float[Tensor, "b h i j"]:
    """<x_i, table[h, at]>"""
    # Few keys far apart: only what they ask for. A compiled graph is one for all lengths, and does not ask how many.
    if not torch.compiler.is_compiling() and at.shape[-1] * x.shape[-1] <= table.shape[1]:
        asked = table[:, at].to(x.dtype).transpose(0, 1)  # [b, h, i, j, d]
        return torch.einsum("bhid,bhijd->bhij", x, asked)
    rows = torch.einsum("bhid,hnd->bhin", x, table.to(x.dtype).expand(x.shape[1], -1, -1))
    return rows.gather(-1, at[:, None].expand(*rows.shape[:3], -1))
