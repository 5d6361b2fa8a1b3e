"""Tensors that the kernels behind operator.py write into: the same shapes, dtypes and layouts on every device."""

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import LEARNED, TENSORS, Arguments, Gradients, Needs


def compute_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype that attention computes in: float32 for half precision, otherwise the dtype of q."""
    return torch.promote_types(q.dtype, torch.float32)


def like_heads(q: Tensor) -> Tensor:
    """Return an empty tensor of q's shape, laid out in memory as [b, i, h, d] for the projection after attention."""
    b, h, i, d = q.shape
    return q.new_empty((b, i, h, d)).transpose(1, 2)


def empty_gradients(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lse: Tensor,
    arguments: Arguments,
    needs: Needs,
    separate_storage: bool = True,
) -> Gradients:
    """Return empty tensors for the gradients that `attention_backward` returns, in the dtype of each argument.

    `separate_storage`: every gradient has its own memory, as the results of an operator must. Otherwise those of q, k
    and v share one allocation. A C library returns large allocations to the system and gets them back page by page; the
    largest allocation freed so far determines from which size on.
    """
    none = None if separate_storage else lse.new_empty(0)
    heads = (like_heads(q), like_heads(k), like_heads(v)) if separate_storage else _in_shared_storage(q, k, v)
    gradients = dict(zip(("q", "k", "v"), heads, strict=True))
    for name in LEARNED:
        gradients[name] = _like(getattr(arguments, name), name in needs, lse, none)
    return gradients


def gradient_sums(q: Tensor, k: Tensor, needs: Needs) -> dict[str, Tensor]:
    """Return zeros in float64 for the gradients in `needs` that kernels write with the axes `sums`."""
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "queries": q.shape[2], "keys": k.shape[2]}
    return {
        name: q.new_zeros([sizes[axis] for axis in axes], dtype=torch.float64)
        for name in LEARNED
        if name in needs and (axes := TENSORS[name].sums)
    }


def copy_sums(sums: dict[str, Tensor], gradients: Gradients) -> None:
    """Write the gradients whose sums are complete. Each is the sum over the axes that its argument shares or lacks."""
    for name, total in sums.items():
        gradient, argument = gradients[name], TENSORS[name]
        axes = [axis.name for axis in argument.axes]
        for n, axis in reversed(list(enumerate(argument.sums))):
            if axis not in axes:
                total = total.sum(n)
            elif gradient.shape[axes.index(axis)] != total.shape[n]:
                total = total.sum(n, keepdim=True)
        gradient.copy_(total)


def _like(x: Tensor | None, needed: bool, lse: Tensor, none: Tensor | None) -> Tensor:
    """Return an empty tensor like x if its gradient is needed; otherwise `none`, or a new one without elements."""
    if needed and x is not None:
        return x.new_empty(x.shape)
    return (lse if x is None else x).new_empty(0) if none is None else none


def _in_shared_storage(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return `like_heads` of each, as views of one allocation."""
    size_q, size_k = (-(-x.numel() // 16) * 16 for x in (q, k))  # aligned, because complex numbers need even offsets
    storage = q.new_empty(size_q + 2 * size_k)
    return _heads_view(storage, q, 0), _heads_view(storage, k, size_q), _heads_view(storage, v, size_q + size_k)


def _heads_view(storage: Tensor, x: Tensor, offset: int) -> Tensor:
    b, h, i, d = x.shape
    return storage.as_strided((b, h, i, d), (i * h * d, d, h * d, 1), offset)
