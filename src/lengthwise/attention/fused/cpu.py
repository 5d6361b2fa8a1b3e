"""Calls of the compiled CPU kernel (lengthwise.native) behind operator.py."""

import ctypes

import torch
from torch import Tensor

from lengthwise.attention.fused.arguments import (
    CALL_AXES,
    CPP,
    LEARNED,
    TENSORS,
    Arguments,
    Gradients,
    Needs,
    names_for,
)
from lengthwise.attention.fused.buffers import compute_dtype, copy_sums, empty_gradients, gradient_sums, like_heads
from lengthwise.attention.fused.call import Call, View
from lengthwise.native import loaded, openmp, unsupported_reason
from lengthwise.values import ConfigError

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}

forced_target = -1  # -1: the best one; tests set others

_READ = frozenset(names_for(CPP))


def _view(x: Tensor) -> View:
    return View(x.data_ptr(), *x.stride()[:3])


def _contiguous_tokens(x: Tensor) -> Tensor:
    """Return `x`, or a copy if the dims of a token are not contiguous or its memory holds the negated numbers."""
    x = x.resolve_neg()
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _new_call(q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, arguments: Arguments) -> Call:
    sizes = {"batch": q.shape[0], "heads": q.shape[1], "queries": q.shape[2], "keys": k.shape[2], "dim": q.shape[3]}
    call = Call(
        **sizes, kv_heads=k.shape[1], dtype=DTYPES[q.dtype], threads=openmp.threads(), target=forced_target,
        q=_view(q), k=_view(k), v=_view(v), out=_view(out), lse=lse.data_ptr(),
    )  # fmt: skip
    for name, value in zip(Arguments._fields, arguments, strict=True):
        if value is None:
            continue
        if isinstance(value, Tensor):
            _add_tensor(call, name, value, sizes, lse.dtype, q)
        elif name in _READ:
            setattr(call, name, value)
    assert 2 * call.pairs <= call.dim, "a rotation of more dims than there are"
    return call


def _add_tensor(call: Call, name: str, x: Tensor, sizes: dict[str, int], compute: torch.dtype, q: Tensor) -> None:
    """Add a tensor to the call, and its sizes to `sizes`.

    A compiled graph reaches this place without the checks of the forms, and the kernel trusts the sizes.
    """
    argument = TENSORS[name]
    if name not in _READ:
        raise NotImplementedError(f"{name} must be None on a CPU")
    assert x.is_contiguous() and x.dtype == (argument.dtype or compute), name
    fits = x.ndim == len(argument.axes)
    for axis, size in zip(argument.axes, x.shape, strict=False):
        expected = sizes.setdefault(axis.name, int(axis.name) if axis.name.isdigit() else size + axis.less)
        has_entries = expected > 0 or axis.name in CALL_AXES  # an empty table has no nearest entry
        fits = fits and has_entries and (size == expected - axis.less or (axis.shared and size == 1))
        if axis.shared:
            setattr(call, f"{name}_{axis.name}", size)
        elif axis.is_sized_by_tensor:
            setattr(call, axis.name, expected)
    if not fits:
        raise ConfigError(f"{name} has shape {list(x.shape)}, which does not fit q of shape {list(q.shape)}")
    setattr(call, name, x.data_ptr())


def _run(call: Call) -> None:
    """Run the kernel; raise `MemoryError` if it cannot allocate its scratch memory."""
    if loaded().lengthwise_attention(ctypes.byref(call)):
        raise MemoryError(f"attention of {call.batch} x {call.heads} heads with {call.keys} keys")


def forward(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return the output and lse; see operator.py."""
    q, k, v = _contiguous_tokens(q), _contiguous_tokens(k), _contiguous_tokens(v)
    out, lse = like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))
    _run(_new_call(q, k, v, out, lse, arguments))
    return out, lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    arguments: Arguments,
    needs: Needs,
    separate_storage: bool = True,
) -> Gradients:
    """Return the gradients of the arguments; see operator.py, and buffers.py for `separate_storage`."""
    q, k, v, grad, out = (_contiguous_tokens(x) for x in (q, k, v, grad, out))
    gradients = empty_gradients(q, k, v, lse, arguments, needs, separate_storage)
    call = _new_call(q, k, v, out, lse, arguments)
    call.backward, call.grad = True, _view(grad)
    call.dq, call.dk, call.dv = (_view(gradients[name]) for name in "qkv")
    sums = gradient_sums(q, k, needs)
    for name in LEARNED:
        if name in needs and name in _READ:
            setattr(call, f"grad_{name}", sums.get(name, gradients[name]).data_ptr())
    _run(call)
    copy_sums(sums, gradients)
    return gradients


def statistics(
    q: Tensor,
    k: Tensor,
    arguments: Arguments,
    *,
    edges: Tensor,
    rank: Tensor | None,
    first_keys: int,
    last_keys: int,
) -> Tensor:
    """Return statistics of the weights of every query, [b, h, i, bins + 3] in float64.

    They are the mass in each bin of distances, the entropy in nats, and the mass on the first and the last keys of the
    query's document. `edges`: of the bins, ascending. `rank` [b|1, j]: how many keys of its own document come before
    each key; None if that is its index.
    """
    q, k, edges = _contiguous_tokens(q), _contiguous_tokens(k), edges.contiguous()
    result = q.new_empty((*q.shape[:3], len(edges) + 4), dtype=torch.float64)
    # It does not read values and output.
    call = _new_call(q, k, k, q, q.new_empty(0, dtype=compute_dtype(q)), arguments)
    if rank is not None:
        call.rank, call.rank_batch = rank.data_ptr(), len(rank)
    call.statistics, call.edges, call.edges_size = result.data_ptr(), edges.data_ptr(), len(edges)
    call.first_keys, call.last_keys = first_keys, last_keys
    _run(call)
    return result


__all__ = ["DTYPES", "backward", "forward", "statistics", "unsupported_reason"]
