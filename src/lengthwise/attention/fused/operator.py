"""The operator of fused attention: one definition, a kernel for each kind of device, and gradients.

    out, lse = attend(q, k, v, Arguments(...))
    out, lse = torch.ops.lengthwise.attention(q, k, v, *Arguments(...))

The logit of query i and key j in head h is scale <q_i, k_j> plus the biases among the arguments, and q and k are
rotated first. arguments.py declares the arguments, with their formulas, shapes and dtypes.

q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g. The queries are the last i of the j tokens. float32, bfloat16
or float16, and on the CPU also float64. lse [b, h, i] is the logarithm of each row's sum of exp(logit), for the
backward pass.

Gradients reach q, k, v and every argument that is declared as learned; there is no second derivative. The operator
works under `torch.compile`. Results are the same at every call on one device, for any number of threads.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.attention.fused import cpu
from lengthwise.attention.fused.arguments import (
    ATTENTION,
    ATTENTION_BACKWARD,
    LEARNED,
    TENSORS,
    Arguments,
    Gradients,
    with_groups,
)
from lengthwise.attention.fused.buffers import compute_dtype, empty_gradients, like_heads
from lengthwise.attention.fused.gpu import query_parts
from lengthwise.encodings.piecewise import MAX_COMPILED_SEGMENTS

MAX_FAST_SEGMENTS = 64  # with more, the kernels use slower code paths

_INPUTS = ("q", "k", "v", *Arguments._fields)
_TENSORS = tuple(n for n, name in enumerate(_INPUTS) if name in ("q", "k", "v", *TENSORS))


@torch.library.custom_op("lengthwise::attention", mutates_args=(), device_types=("cpu", "cuda"), schema=ATTENTION)
def attention(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Return the output, laid out in memory as [b, i, h, d], and lse; see the module."""
    return _kernels(q).forward(q, k, v, _without_padding(Arguments(*flat)))


def _kernels(q: Tensor) -> Any:
    """Return the module with the kernels of a device."""
    return query_parts if on_gpu(q) else cpu


def on_gpu(q: Tensor) -> bool:
    """Whether attention is computed by the kernels of a GPU."""
    return q.is_cuda


def _without_padding(arguments: Arguments) -> Arguments:
    """Return the arguments without the segments behind knots at infinity.

    A compiled graph pads the segments to a fixed number; no x reaches the padding. Few padded segments do no harm and
    are left. If there can be many, counting the finite knots waits for the device.
    """
    slope, intercept, knots = arguments.slope, arguments.intercept, arguments.knots
    if slope is None or intercept is None or knots is None:
        return arguments
    if not MAX_FAST_SEGMENTS < slope.shape[1] <= MAX_COMPILED_SEGMENTS:
        return arguments
    count = int(knots.isfinite().sum()) + 1
    slope, intercept = (x[:, :count].contiguous() for x in (slope, intercept))
    return arguments._replace(slope=slope, intercept=intercept, knots=knots[: count - 1])


@attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))


@torch.library.custom_op(
    "lengthwise::attention_backward", mutates_args=(), device_types=("cpu", "cuda"), schema=ATTENTION_BACKWARD
)
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any
) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v and the learned arguments, in the order in which they are declared.

    Those of learned arguments that are not needed are empty.
    """
    padded, needs = Arguments(*flat[:-1]), frozenset(flat[-1])
    arguments = _without_padding(padded)
    gradients: Gradients = _kernels(q).backward(grad, q, k, v, out, lse, arguments, needs)
    if padded.slope is not None and arguments.slope is not None and "slope" in needs:
        missing = padded.slope.shape[1] - arguments.slope.shape[1]
        for name in ("slope", "intercept") if missing else ():
            gradients[name] = F.pad(gradients[name], (0, missing))
    return tuple(gradients.values())


@attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    return tuple(empty_gradients(q, k, v, lse, Arguments(*flat[:-1]), frozenset(flat[-1])).values())


def _no_second_derivative(_ctx: Any, *_grads: Any) -> None:
    raise NotImplementedError("backend 'fused' has no second derivative; use backend='reference'")


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.numbers = [None if n in _TENSORS else x for n, x in enumerate(inputs)]
    ctx.save_for_backward(*output, *[inputs[n] for n in _TENSORS])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, kernel: Callable[..., tuple[Tensor, ...]]) -> tuple[Tensor | None, ...]:
    """Return the gradient of every input, by a function with the arguments of `attention_backward`."""
    if grad is None:
        return (None,) * len(_INPUTS)
    out, lse, *tensors = ctx.saved_tensors
    inputs = list(ctx.numbers)
    for n, x in zip(_TENSORS, tensors, strict=True):
        inputs[n] = x
    needed = [name for name, needs_grad in zip(_INPUTS, ctx.needs_input_grad, strict=True) if needs_grad]
    needs = [name for name in LEARNED if name in with_groups(set(needed) & set(LEARNED))]
    gradients = kernel(grad, *inputs[:3], out, lse, *inputs[3:], needs)
    by_name = dict(zip(("q", "k", "v", *LEARNED), gradients, strict=True))
    return tuple(by_name[name] if name in needed else None for name in _INPUTS)


attention.register_autograd(lambda ctx, grad, _: _backward(ctx, grad, attention_backward), setup_context=_setup_context)
attention_backward.register_autograd(_no_second_derivative)


def _is_eager_on_cpu(*tensors: Tensor) -> bool:
    """Whether these are ordinary tensors on a CPU, and no tracer, compiler or dispatch mode has to see the operator."""
    observed = torch.compiler.is_compiling() or is_in_torch_dispatch_mode()
    if observed or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) and x.is_cpu for x in tensors)


class _Eager(torch.autograd.Function):
    """The operator's kernels and gradients without torch.library.

    A call through torch.library takes a tenth of a millisecond, as long as the whole attention of a small model.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
        output = cpu.forward(q, k, v, Arguments(*flat))
        _setup_context(ctx, (q, k, v, *flat), output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        direct = grad is not None and _is_eager_on_cpu(grad) and not torch.is_grad_enabled()
        return _backward(ctx, grad, _backward_in_shared_storage if direct else attention_backward)


def _backward_in_shared_storage(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any
) -> tuple[Tensor, ...]:
    arguments, needs = Arguments(*flat[:-1]), frozenset(flat[-1])
    return tuple(cpu.backward(grad, q, k, v, out, lse, arguments, needs, separate_storage=False).values())


def attend(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return `attention(...)`, without the overhead of torch.library if possible."""
    if not _is_eager_on_cpu(q, k, v):
        return attention(q, k, v, *arguments)
    if not torch.is_grad_enabled():
        return cpu.forward(q, k, v, arguments)
    return _Eager.apply(q, k, v, *arguments)
