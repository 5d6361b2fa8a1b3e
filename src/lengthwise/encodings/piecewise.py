"""Convert an MLP of one scalar to linear segments: exactly for ReLU, on a fine grid for smooth activations.

A ReLU MLP of one scalar x is piecewise linear in x, and all outputs share its kinks ("knots"). So FIRE does not
evaluate its MLP for every pair of positions: a few dozen slopes and intercepts give exactly the same values, and
gradients reach the MLP through them. Knots need no gradient: the function is continuous, so its values do not depend on
them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.forms import table_dtype
from lengthwise.native import segments, tested_gpus
from lengthwise.native.gpu import has_triton
from lengthwise.values import ConfigError

GRID = 4096  # points on [0, 1] for smooth activations
MAX_COMPILED_SEGMENTS = 2048  # in a compiled graph, where the number of segments must be fixed

Segments = tuple[Float[Tensor, "h s"], Float[Tensor, "h s"], Float[Tensor, " s-1"]]


def relu_segments(layers: list[nn.Linear], *, final: bool = False) -> Segments:
    """Return (slope, intercept, knots) of `Linear, ReLU, Linear, ..., Linear` on [0, 1], in float64, up to rounding.

    It works layer by layer. Between two known knots every neuron is linear, so it has at most one zero there. These
    zeros are the knots of the next layer. `final`: there is also a ReLU after the last layer, whose zeros are knots as
    well.

    In a graph of `torch.compile` the number of segments is the maximum for such layers, or `MAX_COMPILED_SEGMENTS` if
    that is less. Unused segments lie behind knots at infinity. If there are more segments, the graph raises
    `ConfigError` when it runs.
    """
    parameters = [parameter for layer in layers for parameter in (layer.weight, layer.bias)]
    if not torch.compiler.is_compiling():
        slope, intercept, knots = _ReluSegments.apply(final, *parameters)
        return slope, intercept, knots
    widths = [layer.out_features for layer in (layers if final else layers[:-1])]
    return _padded_segments(parameters, final, min(math.prod([n + 1 for n in widths]), MAX_COMPILED_SEGMENTS))


class _ReluSegments(torch.autograd.Function):
    """Segments with a gradient written by hand: for such small tensors, half the time was spent inside autograd."""

    @staticmethod
    def forward(ctx: Any, final: bool, *parameters: Tensor) -> Segments:
        slope, intercept, knots, gates = _segments_and_gates(parameters, final)
        ctx.save_for_backward(*parameters)
        ctx.final, ctx.gates = final, gates  # not in save_for_backward, because it is neither an argument nor a result
        ctx.mark_non_differentiable(knots)
        return slope, intercept, knots

    @staticmethod
    def backward(
        ctx: Any, grad_slope: Tensor, grad_intercept: Tensor, _grad_knots: Tensor
    ) -> tuple[Tensor | None, ...]:
        return None, *_parameter_gradients(ctx.saved_tensors, ctx.gates, ctx.final, grad_slope, grad_intercept)


@torch.library.custom_op("lengthwise::relu_segments", mutates_args=())
def _padded_segments(parameters: Sequence[Tensor], final: bool, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return slope and intercept [h, count] and knots [count - 1]."""
    slope, intercept, knots, _ = _segments_and_gates(parameters, final)
    padding = count - slope.shape[1]
    if padding < 0:
        raise ConfigError(
            f"in a graph of torch.compile the MLP must have at most {count} segments, got {slope.shape[1]}; run the "
            "model without torch.compile, or with fewer or narrower hidden layers"
        )
    slope, intercept = (torch.nn.functional.pad(x, (0, padding)) for x in (slope, intercept))
    return slope, intercept, torch.nn.functional.pad(knots, (0, padding), value=math.inf)


@_padded_segments.register_fake
def _(parameters: Sequence[Tensor], final: bool, count: int) -> tuple[Tensor, Tensor, Tensor]:
    like = parameters[0].new_empty((), dtype=table_dtype(parameters[0].device))
    heads = parameters[-1].shape[0]
    return like.new_empty(heads, count), like.new_empty(heads, count), like.new_empty(count - 1)


@torch.library.custom_op("lengthwise::relu_segments_backward", mutates_args=())
def _padded_segments_backward(
    parameters: Sequence[Tensor], final: bool, grad_slope: Tensor, grad_intercept: Tensor
) -> list[Tensor]:
    slope, _, _, gates = _segments_and_gates(parameters, final)
    count = slope.shape[1]
    return _parameter_gradients(parameters, gates, final, grad_slope[:, :count], grad_intercept[:, :count])


@_padded_segments_backward.register_fake
def _(parameters: Sequence[Tensor], final: bool, grad_slope: Tensor, grad_intercept: Tensor) -> list[Tensor]:
    return [torch.empty_like(parameter) for parameter in parameters]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    parameters, ctx.final, _ = inputs
    ctx.save_for_backward(*parameters)
    ctx.mark_non_differentiable(output[2])


def _backward(ctx: Any, grad_slope: Tensor, grad_intercept: Tensor, _grad_knots: Tensor) -> tuple[Any, ...]:
    return _padded_segments_backward(list(ctx.saved_tensors), ctx.final, grad_slope, grad_intercept), None, None


_padded_segments.register_autograd(_backward, setup_context=_setup_context)


def uses_library(*tensors: Tensor) -> bool:
    """Whether the compiled library computes on these tensors.

    They must be ordinary tensors on a CPU, and no tracer, compiler or dispatch mode may have to see the operators.
    """
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return False
    plain = all(type(x) in (Tensor, nn.Parameter) and x.is_cpu for x in tensors)
    return plain and segments.is_available()


def uses_gpu_kernels(*tensors: Tensor) -> bool:
    """Whether Triton kernels compute on these tensors: the same for a GPU where the kernels were tested."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return False
    plain = all(type(x) in (Tensor, nn.Parameter) and x.is_cuda for x in tensors)
    return plain and has_triton() and tested_gpus.is_tested(tensors[0].device)


def _segments_and_gates(parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return slope, intercept, knots, and for each segment which neurons are active, as 1 and 0 [segments, neurons]."""
    if uses_library(*parameters) and segments.supports(parameters):
        return segments.relu_segments(parameters, final)
    if uses_gpu_kernels(*parameters):
        from lengthwise.native import gpu_segments

        if gpu_segments.supports(parameters) and (result := gpu_segments.relu_segments(parameters, final)) is not None:
            slope, intercept, knots, gates = result
            return slope, intercept, knots, gates
    lines, knots, layer_gates = segments_in_torch(parameters, final)
    slope, intercept = lines.mT.contiguous()
    gates = torch.cat(layer_gates, 1) if layer_gates else lines.new_empty(lines.shape[1], 0)
    return slope, intercept, knots, gates.to(torch.uint8)


def _parameter_gradients(
    parameters: Sequence[Tensor], gates: Tensor, final: bool, grad_slope: Tensor, grad_intercept: Tensor
) -> list[Tensor]:
    tensors = (*parameters, gates, grad_slope, grad_intercept)
    if not torch.is_grad_enabled() and uses_library(*tensors) and segments.supports(parameters):
        return segments.relu_segments_backward(parameters, gates, final, grad_slope, grad_intercept)
    if not torch.is_grad_enabled() and uses_gpu_kernels(*tensors):
        from lengthwise.native import gpu_segments

        if gpu_segments.supports(parameters):
            return gpu_segments.relu_segments_backward(grad_slope, grad_intercept, parameters, gates, final)
    sizes = [len(bias) for bias in parameters[1::2]]
    layer_gates = gates.split(sizes if final else sizes[:-1], 1)
    return gradients_in_torch(parameters, layer_gates, grad_slope, grad_intercept)


# ---- lines [2, s, width]: slope and intercept of every neuron in every segment; parameters: weight, bias, weight, ...


def segments_in_torch(parameters: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the last layer's lines, the knots, and for every ReLU which neurons are active, as 1 and 0 [s, width]."""
    weights, biases = _weights_and_biases(parameters)
    lines = torch.stack([weights[0].T, biases[0][None]])
    gates: list[Tensor] = []
    edges = lines.new_tensor([0.0, 1.0])
    for weight, bias in [*zip(weights[1:], biases[1:], strict=True), *[(None, None)] * final]:
        left, right = edges[:-1], edges[1:]
        zero = -lines[1] / lines[0]
        edges = torch.cat([edges, zero[(zero > left[:, None]) & (zero < right[:, None])]]).sort().values
        middle = (edges[:-1] + edges[1:]) / 2
        parent = torch.searchsorted(right, middle)  # the old segment that contains each new one
        lines, gates = lines[:, parent], [gate[parent] for gate in gates]
        gates.append((torch.addcmul(lines[1], lines[0], middle[:, None]) > 0).to(lines.dtype))
        lines = _apply_layer(lines * gates[-1], weight, bias)
    return lines, edges[1:-1], gates


def gradients_in_torch(
    parameters: Sequence[Tensor], gates: Sequence[Tensor], grad_slope: Tensor, grad_intercept: Tensor
) -> list[Tensor]:
    """Return the gradients as a function of the parameters, so that there are second derivatives too."""
    weights, biases = _weights_and_biases(parameters)
    lines, layer_inputs = torch.stack([weights[0].T, biases[0][None]]), []
    for weight, bias, gate in zip(weights[1:], biases[1:], gates, strict=False):
        layer_inputs.append(lines * gate)
        lines = _apply_layer(layer_inputs[-1], weight, bias)
    grad_lines, gradients = torch.stack([grad_slope.T, grad_intercept.T]), []
    if len(gates) == len(weights):
        grad_lines = grad_lines * gates[-1]
    for n in range(len(weights) - 1, 0, -1):
        gradients += [grad_lines[1].sum(0), grad_lines.flatten(0, 1).T @ layer_inputs[n - 1].flatten(0, 1)]
        grad_lines = grad_lines @ weights[n] * gates[n - 1]
    gradients += [grad_lines[1].sum(0), grad_lines[0].sum(0)[:, None]]
    return [gradient.to(parameter.dtype) for gradient, parameter in zip(reversed(gradients), parameters, strict=True)]


def _weights_and_biases(parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    converted = [parameter.to(table_dtype(parameter.device)) for parameter in parameters]
    return converted[::2], converted[1::2]


def _apply_layer(lines: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return the lines after the layer, or unchanged if there is none left."""
    if weight is None or bias is None:
        return lines
    return torch.stack([lines[0] @ weight.T, torch.addmm(bias, lines[1], weight.T)])


def grid_segments(function: Callable[[Tensor], Tensor], like: Tensor) -> Segments:
    """Return (slope, intercept, knots) of chords between `GRID` equally spaced values of a smooth function f on [0, 1].

    The error of f is at most max|f''| / (8 · 4095^2) = 7.5e-9 max|f''|. That of a slope is at most
    max|f''| / (2 · 4095) < 1.23e-4 max|f''|; it affects gradients with respect to x, such as those of FIRE's c and L,
    which use the slope of the chord instead of f'.
    """
    x = torch.linspace(0.0, 1.0, GRID, dtype=table_dtype(like.device), device=like.device)
    value = function(x[:, None])
    slope = (value[1:] - value[:-1]) * (GRID - 1)
    return slope.T.contiguous(), (value[:-1] - slope * x[:-1, None]).T.contiguous(), x[1:-1]
