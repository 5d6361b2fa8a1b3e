"""Our own attention (operator.py) for rotations, tables over distances, and straight pieces (FIRE): C++ on a CPU (cpu/),
Triton on a GPU (gpu/).

No bias is ever a matrix: memory is that of torch's fused attention without encoding, forward and backward, and the
gradients of tables, slopes and intercepts come out of the same pass. float32 and, computed in float32, half precision;
on a CPU float64 too. Rotations and query gains are applied before.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.attention import cpu, gpu, operator
from lengthwise.attention.masks import Mask
from lengthwise.forms import Effect, ProgressiveBias, ToeplitzBias
from lengthwise.span import Span

Attend = Callable[..., Tensor]


def refuses(effect: Effect, span: Span, mask: Mask, q: Tensor) -> str | None:
    """Why this backend cannot serve an effect, or None."""
    if effect.rewrite:
        return "LogitRewrite needs whole rows of logits, and fused attention never has them"
    if effect.values:
        return "ValueRelative needs the weights, and fused attention never has them"
    for term in effect.terms:
        if not isinstance(term, (ToeplitzBias, ProgressiveBias)):
            return f"{type(term).__name__} is no bias from a table over distances"
    if sum(isinstance(term, ProgressiveBias) for term in effect.terms) > 1:
        return "it has room for one ProgressiveBias"
    if q.device.type not in ("cpu", "cuda"):
        return f"it has no kernel for {q.device.type}"
    kernel = gpu if q.is_cuda else cpu
    if q.dtype not in kernel.DTYPES:
        return f"it does not compute with {q.dtype} on {q.device.type}"
    if q.is_cuda and q.shape[-1] > gpu.MOST_DIMS:
        return f"on a GPU it has room for heads of {gpu.MOST_DIMS} dims, and these have {q.shape[-1]}"
    return kernel.missing()


def prepare(effect: Effect, span: Span, mask: Mask) -> Attend:
    """Attention for one span; what does not depend on q and k is made at the first call and kept."""
    kept: dict[tuple[torch.dtype, bool], tuple[Any, ...]] = {}

    # Autocast changes nothing here: there is no product of matrices that it knows.
    def attend(
        q: Float[Tensor, "b h i d"],
        k: Float[Tensor, "b g j d"],
        v: Float[Tensor, "b g j d"],
        *,
        scale: float,
    ) -> Float[Tensor, "b h i d"]:
        compute = torch.promote_types(q.dtype, torch.float32)
        key = compute, torch.is_grad_enabled()  # what was made without gradients would not pass them on
        static = kept[key] if key in kept else kept.setdefault(key, _static(effect, span, mask, compute))
        given = q.dtype
        if q.device.type == "cpu" and (effect.rotation or effect.gain):
            q, k, v = q.to(compute), k.to(compute), v.to(compute)  # rounded again after it, it would lose for nothing
        if effect.rotation:
            q, k = effect.rotation.query(q), effect.rotation.key(k)
        if effect.gain:
            q = (q * effect.gain.gain[..., None].to(compute)).to(q.dtype)
        out, _ = operator.attend(q, k, v, *static, mask.causal, mask.window or 0, scale)
        return out.to(given)

    return attend


def _static(effect: Effect, span: Span, mask: Mask, dtype: torch.dtype) -> tuple[Any, ...]:
    """The operator's arguments from `table` to `documents`."""
    table, first = _one_table([term for term in effect.terms if isinstance(term, ToeplitzBias)], dtype)
    pieces: tuple[Tensor | None, ...] = (None,) * 5
    for term in effect.terms:
        if isinstance(term, ProgressiveBias):
            numbers = (term.slope, term.intercept, term.knots.detach(), term.u, term.w)
            pieces = tuple(x.to(dtype).contiguous() for x in numbers)
    places = (None, None) if span.consecutive else (span.q.long().contiguous(), span.k.long().contiguous())
    documents = None if mask.documents is None else mask.documents.long().contiguous()
    return (table, first, *pieces, None, 0, *places, documents)


def _one_table(terms: list[ToeplitzBias], dtype: torch.dtype) -> tuple[Tensor | None, int]:
    """The sum of several tables as one that reaches as far as any of them."""
    if not terms:
        return None, 0
    first = min(term.first for term in terms)
    size = max(term.first + term.table.shape[1] for term in terms) - first
    total: Tensor | None = None
    for term in terms:
        table = term.table.to(dtype)
        if table.shape[1] != size:
            column = (torch.arange(size, device=table.device) + first - term.first).clamp(0, table.shape[1] - 1)
            table = table.index_select(1, column)
        total = table if total is None else total + table
    assert total is not None
    return total.contiguous(), first
