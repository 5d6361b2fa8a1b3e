"""The operator of fused attention: one definition, a kernel for each kind of device, and gradients.

    out, lse = torch.ops.lengthwise.attention(q, k, v, table, first, slope, intercept, knots, distance_feature, query_scale,
                                              rows, rows_first, position_q, position_k, documents, causal, window, scale,
                                              cos_sin_q, cos_sin_k, interleaved)

The logit of query i and key j in head h is

    scale <q_i, k_j>  +  table[h, distance - first]  +  slope[h, s] x + intercept[h, s]  +  rows[b, h, i, distance - rows_first]

with x = distance_feature[distance] query_scale[i], and s the number of knots <= x. A distance past either end of a table takes the
nearest entry.

Arguments ("compute dtype" is float32 for half precision, otherwise the dtype of q):

- q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g. The queries are the last i of the j tokens. float32, bfloat16 or
  float16, and on the CPU also float64.
- table [h|1, n], rows [b, h|1, i, r]: in the compute dtype, contiguous, or None.
- slope, intercept [h|1, s], knots [s-1], distance_feature [n], query_scale [b|1, i]: in the compute dtype or float64,
  contiguous, or None. With float64 their gradients are float64 too, and a CPU decides exactly on which side of a knot x lies.
- position_q [b|1, i], position_k [b|1, j]: None if the position of every token is its index.
- documents [b|1, j]; `causal` and `window` (0: none) as in `Mask`.
- cos_sin_q [b|1, i, 2, pairs], cos_sin_k [b|1, j, 2, pairs]: in the compute dtype, on a CPU only. The cosines and sines of a
  rotation, including its gains, that q and k are rotated by first. Pairs are dims 2p and 2p + 1 (`interleaved`), or p and
  p + pairs.

lse [b, h, i] is the logarithm of each row's sum of exp(logit), for the backward pass.

Gradients reach q, k, v, table, slope, intercept, distance_feature, query_scale and rows; there is no second derivative. The
operator works under `torch.compile`. Results are the same at every call on one device, for any number of threads.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.attention.fused import cpu, gpu
from lengthwise.attention.fused.buffers import Gradients, compute_dtype, empty_gradients, like_heads
from lengthwise.attention.fused.cpu import segments
from lengthwise.encodings import piecewise
from lengthwise.encodings.piecewise import MAX_COMPILED_SEGMENTS

piecewise.compiled = segments

MAX_FAST_SEGMENTS = 64  # with more, the kernels use slower code paths


@torch.library.custom_op("lengthwise::attention", mutates_args=(), device_types=("cpu", "cuda"))
def attention(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, distance_feature: Tensor | None, query_scale: Tensor | None, rows: Tensor | None,
    rows_first: int, position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool,
    window: int, scale: float, cos_sin_q: Tensor | None = None, cos_sin_k: Tensor | None = None,
    interleaved: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output, laid out in memory as [b, i, h, d], and lse; see the module."""
    slope, intercept, knots = _without_padding(slope, intercept, knots)
    arguments = (
        q, k, v, table, first, slope, intercept, knots, distance_feature, query_scale, rows, rows_first, position_q,
        position_k, documents, causal, window, scale,
    )  # fmt: skip
    if not q.is_cuda:
        return cpu.forward(*arguments, cos_sin_q, cos_sin_k, interleaved)
    _require_no_rotation(cos_sin_q, cos_sin_k)
    return gpu.forward(*arguments)


def _require_no_rotation(*cos_sin: Tensor | None) -> None:
    if any(x is not None for x in cos_sin):
        raise NotImplementedError("cos_sin_q and cos_sin_k must be None on a GPU; rotate q and k before the call")


def _without_padding(
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return slope, intercept and knots without the segments behind knots at infinity.

    A compiled graph pads the segments to a fixed number; no x reaches the padding. Few padded segments do no harm and are
    left. If there can be many, counting the finite knots waits for the device.
    """
    if slope is None or intercept is None or knots is None:
        return slope, intercept, knots
    if not MAX_FAST_SEGMENTS < slope.shape[1] <= MAX_COMPILED_SEGMENTS:
        return slope, intercept, knots
    count = int(knots.isfinite().sum()) + 1
    return slope[:, :count].contiguous(), intercept[:, :count].contiguous(), knots[: count - 1]


@attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))


@torch.library.custom_op("lengthwise::attention_backward", mutates_args=(), device_types=("cpu", "cuda"))
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, distance_feature: Tensor | None,
    query_scale: Tensor | None, rows: Tensor | None, rows_first: int, position_q: Tensor | None,
    position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int, scale: float,
    cos_sin_q: Tensor | None, cos_sin_k: Tensor | None, interleaved: bool, needs_table_grad: bool,
    needs_segment_grads: bool, needs_rows_grad: bool,
) -> Gradients:  # fmt: skip
    """Return the gradients of q, k, v, table, slope, intercept, distance_feature, query_scale and rows.

    From the table on, gradients that are not needed are empty.
    """
    padded = 0 if slope is None else slope.shape[1]
    slope, intercept, knots = _without_padding(slope, intercept, knots)
    arguments = (
        grad, q, k, v, out, lse, table, first, slope, intercept, knots, distance_feature, query_scale, rows, rows_first,
        position_q, position_k, documents, causal, window, scale,
    )  # fmt: skip
    if q.is_cuda:
        _require_no_rotation(cos_sin_q, cos_sin_k)
        gradients = gpu.backward(*arguments, needs_table_grad, needs_segment_grads, needs_rows_grad)
    else:
        gradients = cpu.backward(
            *arguments, cos_sin_q, cos_sin_k, interleaved, needs_table_grad, needs_segment_grads, needs_rows_grad
        )
    if not needs_segment_grads or slope is None or slope.shape[1] == padded:
        return gradients
    grad_slope, grad_intercept = (F.pad(x, (0, padded - slope.shape[1])) for x in gradients[4:6])
    return *gradients[:4], grad_slope, grad_intercept, *gradients[6:]


@attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, distance_feature: Tensor | None,
    query_scale: Tensor | None, rows: Tensor | None, rows_first: int, position_q: Tensor | None,
    position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int, scale: float,
    cos_sin_q: Tensor | None, cos_sin_k: Tensor | None, interleaved: bool, needs_table_grad: bool,
    needs_segment_grads: bool, needs_rows_grad: bool,
) -> Gradients:  # fmt: skip
    return empty_gradients(
        q,
        k,
        v,
        lse,
        table,
        slope,
        distance_feature,
        query_scale,
        rows,
        needs_table_grad,
        needs_segment_grads,
        needs_rows_grad,
    )


_NUMBERS = (
    "first",
    "rows_first",
    "relative_first",
    "causal",
    "window",
    "scale",
    "interleaved",
)  # arguments, no tensors


class OperatorAutograd:
    """`setup_context` and `backward` of an operator that returns out and lse.

    `names`: its arguments; q, k and v are the first. `differentiable`: those that its backward kernel returns gradients of. The
    kernel takes the gradient of out, q, k, v, out, lse and the other arguments. These are followed by whether the gradients of
    the table, of the segments and, if there is such an argument, of the rows are needed.
    """

    def __init__(self, names: tuple[str, ...], differentiable: tuple[str, ...]) -> None:
        index = {name: n for n, name in enumerate(names)}
        self.numbers = tuple(index[name] for name in _NUMBERS if name in index)
        self.tensors = tuple(n for n in range(len(names)) if n not in self.numbers)
        self.differentiable = tuple(index[name] for name in differentiable)
        self.table, self.rows = index["table"], index.get("rows")
        self.segments = tuple(index[name] for name in ("slope", "intercept", "distance_feature", "query_scale"))

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.numbers = [inputs[n] for n in self.numbers]
        ctx.save_for_backward(*output, *[inputs[n] for n in self.tensors])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    def backward(
        self, ctx: Any, grad: Tensor | None, kernel: Callable[..., tuple[Tensor, ...]]
    ) -> tuple[Tensor | None, ...]:
        arguments: list[Any] = [None] * (len(self.numbers) + len(self.tensors))
        gradients: list[Tensor | None] = list(arguments)
        if grad is None:
            return tuple(gradients)
        out, lse, *tensors = ctx.saved_tensors
        for n, x in zip((*self.tensors, *self.numbers), (*tensors, *ctx.numbers), strict=True):
            arguments[n] = x
        needs_grad = ctx.needs_input_grad
        flags = [needs_grad[self.table], any(needs_grad[n] for n in self.segments)]
        if self.rows is not None:
            flags.append(needs_grad[self.rows])
        computed = kernel(grad, *arguments[:3], out, lse, *arguments[3:], *flags)
        for n, gradient in zip(self.differentiable, computed, strict=True):
            gradients[n] = gradient if needs_grad[n] else None
        return tuple(gradients)


_autograd = OperatorAutograd(
    ("q", "k", "v", "table", "first", "slope", "intercept", "knots", "distance_feature", "query_scale", "rows", "rows_first",
     "position_q", "position_k", "documents", "causal", "window", "scale", "cos_sin_q", "cos_sin_k", "interleaved"),
    ("q", "k", "v", "table", "slope", "intercept", "distance_feature", "query_scale", "rows"),
)  # fmt: skip


def _backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    return _autograd.backward(ctx, grad, attention_backward)


attention.register_autograd(_backward, setup_context=_autograd.setup_context)


def _is_eager_on_cpu(*tensors: Tensor) -> bool:
    """Whether these are ordinary tensors on a CPU, and no tracer, compiler or dispatch mode has to see the operator."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" for x in tensors)


class _Eager(torch.autograd.Function):
    """The operator's kernels and gradients without torch.library.

    A call through torch.library takes a tenth of a millisecond, as long as the whole attention of a small model.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = cpu.forward(*inputs)
        _autograd.setup_context(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        direct = grad is not None and _is_eager_on_cpu(grad) and not torch.is_grad_enabled()
        return _autograd.backward(ctx, grad, _backward_in_shared_storage if direct else attention_backward)


_backward_in_shared_storage = functools.partial(cpu.backward, separate_storage=False)


def attend(
    *inputs: Any, cos_sin_q: Tensor | None = None, cos_sin_k: Tensor | None = None, interleaved: bool = True
) -> tuple[Tensor, Tensor]:
    """Return `attention(...)`, without the overhead of torch.library if possible."""
    inputs = (*inputs, cos_sin_q, cos_sin_k, interleaved)
    if not _is_eager_on_cpu(*inputs[:3]):
        return attention(*inputs)
    output: tuple[Tensor, Tensor] = _Eager.apply(*inputs) if torch.is_grad_enabled() else cpu.forward(*inputs)
    return output
