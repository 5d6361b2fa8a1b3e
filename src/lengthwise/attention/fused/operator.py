"""The operator of fused attention: one definition, a kernel for each kind of device, and gradients.

    out, lse = attend(q, k, v, Arguments(...))
    out, lse = torch.ops.lengthwise.attention(q, k, v, *Arguments(...).flatten())

The logit of query i and key j in head h is

    scale <q_i, k_j>  +  table[h, distance - first]  +  slope[h, s] x + intercept[h, s]  +  rows[b, h, i, distance - rows_first]
                      +  prefix_sum[b, h, own key of i] - prefix_sum[b, h, j]

with x = distance_feature[distance] query_scale[i], and s the number of knots <= x. A distance past either end of a table takes the
nearest entry. exp(sink[h]) may be added to the denominator of the softmax. The value of key j is v_j + value_vectors[h, distance -
value_first]. q and k are rotated first. arguments.py has the
groups of arguments with their shapes and dtypes.

q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g. The queries are the last i of the j tokens. float32, bfloat16 or
float16, and on the CPU also float64. lse [b, h, i] is the logarithm of each row's sum of exp(logit), for the backward pass.

Gradients reach q, k, v, table, slope, intercept, distance_feature, query_scale, rows, sink, prefix_sum and value_vectors; there is
no second derivative. The operator works under `torch.compile`. Results are the same at every call on one device, for any number of
threads.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import CustomOpDef  # type: ignore[attr-defined]  # its __all__ lacks the type that custom_op returns
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.attention.fused import arguments as schemas
from lengthwise.attention.fused import cpu, gpu
from lengthwise.attention.fused.arguments import Arguments, Biases, NeedsGrad
from lengthwise.attention.fused.buffers import Gradients, compute_dtype, empty_gradients, like_heads
from lengthwise.encodings.piecewise import MAX_COMPILED_SEGMENTS

MAX_FAST_SEGMENTS = 64  # with more, the kernels use slower code paths


@torch.library.custom_op(
    "lengthwise::attention", mutates_args=(), device_types=("cpu", "cuda"), schema=schemas.ATTENTION
)
def attention(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Return the output, laid out in memory as [b, i, h, d], and lse; see the module."""
    arguments = _without_padding(Arguments.unflatten(flat))
    if not q.is_cuda:
        return cpu.forward(q, k, v, arguments)
    _require_gpu_arguments(arguments)
    return gpu.forward(q, k, v, arguments)


def _require_gpu_arguments(arguments: Arguments) -> None:
    rotary = arguments.rotary
    if rotary.cos_sin_q is not None or rotary.cos_sin_k is not None:
        raise NotImplementedError("cos_sin_q and cos_sin_k must be None on a GPU; rotate q and k before the call")
    (rows, rows_first), (values, values_first) = arguments.rows, arguments.values
    if values is None:
        return
    if rows is None or (rows.shape[3], rows_first) != (values.shape[1], values_first):
        raise NotImplementedError("value_vectors need rows with the same distances on a GPU")


def _without_padding(arguments: Arguments) -> Arguments:
    """Return the arguments without the segments behind knots at infinity.

    A compiled graph pads the segments to a fixed number; no x reaches the padding. Few padded segments do no harm and are
    left. If there can be many, counting the finite knots waits for the device.
    """
    segments = arguments.biases.segments
    if segments is None or not MAX_FAST_SEGMENTS < segments.slope.shape[1] <= MAX_COMPILED_SEGMENTS:
        return arguments
    count = int(segments.knots.isfinite().sum()) + 1
    slope, intercept = (x[:, :count].contiguous() for x in (segments.slope, segments.intercept))
    segments = segments._replace(slope=slope, intercept=intercept, knots=segments.knots[: count - 1])
    return arguments._replace(biases=arguments.biases._replace(segments=segments))


@attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=compute_dtype(q))


@torch.library.custom_op(
    "lengthwise::attention_backward",
    mutates_args=(),
    device_types=("cpu", "cuda"),
    schema=schemas.ATTENTION_BACKWARD,
)
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any
) -> Gradients:
    """Return the gradients of the arguments that the module names, in that order.

    From the table on, gradients that are not needed are empty.
    """
    padded, needs = Arguments.unflatten(flat[:-6]), NeedsGrad(*flat[-6:])
    arguments = _without_padding(padded)
    if q.is_cuda:
        _require_gpu_arguments(arguments)
        gradients = gpu.backward(grad, q, k, v, out, lse, arguments, needs)
    else:
        gradients = cpu.backward(grad, q, k, v, out, lse, arguments, needs)
    missing = _segment_count(padded.biases) - _segment_count(arguments.biases)
    if not needs.segments or not missing:
        return gradients
    grad_slope, grad_intercept = (F.pad(x, (0, missing)) for x in gradients[4:6])
    return *gradients[:4], grad_slope, grad_intercept, *gradients[6:]


def _segment_count(biases: Biases) -> int:
    return 0 if biases.segments is None else biases.segments.slope.shape[1]


@attention_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any) -> Gradients:
    return empty_gradients(q, k, v, lse, Arguments.unflatten(flat[:-6]), NeedsGrad(*flat[-6:]))


def _no_second_derivative(_ctx: Any, *_grads: Any) -> None:
    raise NotImplementedError("backend 'fused' has no second derivative; use backend='reference'")


class OperatorAutograd:
    """The gradients of an operator that returns out and lse.

    `schema`: its schema; q, k and v are the first arguments. `differentiable`: the arguments that its backward kernel returns
    gradients of. The kernel takes the gradient of out, q, k, v, out, lse and the other arguments. These are followed by whether
    the gradients of the table, of the segments and, if there are such arguments, of the rows, the sink, the running sum and the
    vectors of values are needed.
    """

    def __init__(self, schema: str, differentiable: tuple[str, ...]) -> None:
        arguments = schemas.declared(schema)
        index = {name: n for n, (_, name) in enumerate(arguments)}
        self.numbers = tuple(n for n, (kind, _) in enumerate(arguments) if not kind.startswith("Tensor"))
        self.tensors = tuple(n for n in range(len(arguments)) if n not in self.numbers)
        self.differentiable = tuple(index[name] for name in differentiable)
        segments = "slope", "intercept", "distance_feature", "query_scale"
        groups = ("table",), segments, ("rows",), ("sink",), ("prefix_sum",), ("value_vectors",)
        self.groups = [[index[name] for name in group] for group in groups if group[0] in index]

    def register(self, operator: CustomOpDef, kernel: CustomOpDef) -> None:
        """Let autograd compute the operator's gradients with the kernel, which has none itself."""

        def backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
            return self.backward(ctx, grad, kernel)

        operator.register_autograd(backward, setup_context=self.setup_context)
        kernel.register_autograd(_no_second_derivative)

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
        # A dispatcher leaves out the last arguments if they are the defaults.
        needs_grad = (*ctx.needs_input_grad, *[False] * (len(arguments) - len(ctx.needs_input_grad)))
        flags = [any(needs_grad[n] for n in group) for group in self.groups]
        computed = kernel(grad, *arguments[:3], out, lse, *arguments[3:], *flags)
        for n, gradient in zip(self.differentiable, computed, strict=True):
            gradients[n] = gradient if needs_grad[n] else None
        return tuple(gradients)


_autograd = OperatorAutograd(
    schemas.ATTENTION,
    (
        *("q", "k", "v", "table", "slope", "intercept", "distance_feature", "query_scale", "rows", "sink"),
        *("prefix_sum", "value_vectors"),
    ),
)
_autograd.register(attention, attention_backward)


def _is_eager_on_cpu(*tensors: Tensor) -> bool:
    """Whether these are ordinary tensors on a CPU, and no tracer, compiler or dispatch mode has to see the operator."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) and x.is_cpu for x in tensors)


class _Eager(torch.autograd.Function):
    """The operator's kernels and gradients without torch.library.

    A call through torch.library takes a tenth of a millisecond, as long as the whole attention of a small model.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
        output = cpu.forward(q, k, v, Arguments.unflatten(flat))
        _autograd.setup_context(ctx, (q, k, v, *flat), output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        direct = grad is not None and _is_eager_on_cpu(grad) and not torch.is_grad_enabled()
        return _autograd.backward(ctx, grad, _backward_in_shared_storage if direct else attention_backward)


def _backward_in_shared_storage(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, *flat: Any
) -> Gradients:
    arguments, needs = Arguments.unflatten(flat[:-6]), NeedsGrad(*flat[-6:])
    return cpu.backward(grad, q, k, v, out, lse, arguments, needs, separate_storage=False)


def attend(q: Tensor, k: Tensor, v: Tensor, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return `attention(...)`, without the overhead of torch.library if possible."""
    if not _is_eager_on_cpu(q, k, v):
        return attention(q, k, v, *arguments.flatten())
    if not torch.is_grad_enabled():
        return cpu.forward(q, k, v, arguments)
    return _Eager.apply(q, k, v, *arguments.flatten())
