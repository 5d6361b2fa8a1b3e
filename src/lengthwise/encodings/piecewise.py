"""An MLP of one scalar as pieces of straight lines: exactly for ReLU, on a fine grid for smooth activations.

A ReLU MLP of one scalar x is piecewise linear in x, and its kinks ("knots") are shared by all outputs. So FIRE never
evaluates its MLP on every pair of positions: a few dozen slopes and intercepts say the same, exactly, and gradients
reach the MLP through them (a continuous function does not change when a knot moves, so knots need none).
"""

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.forms import table_dtype
from lengthwise.values import ConfigError

GRID = 4096  # points on [0, 1] for smooth activations
ROOM = 2048  # pieces at most in a compiled graph, where no tensor's shape follows from numbers

Pieces = tuple[Float[Tensor, "h s"], Float[Tensor, "h s"], Float[Tensor, " s-1"]]

# The same in C++, where there is a library: attention, which has it and comes after encodings, puts it here.
compiled: ModuleType | None = None


def relu_pieces(layers: list[nn.Linear], *, final: bool = False) -> Pieces:
    """(slope, intercept, knots) of `Linear, ReLU, Linear, ..., Linear` on [0, 1], in float64, exact up to rounding.

    Layer by layer: between two known knots every neuron is a straight line, so each has at most one zero there, and
    those zeros are the next layer's knots. `final`: a ReLU after the last layer too, so its zeros are knots as well.

    In a graph of `torch.compile` there are as many pieces as such layers can ever make, or `ROOM`, if that is less: those
    that are left over lie behind knots at infinity. `ConfigError`, when the graph runs, where there are more.
    """
    numbers = [number for layer in layers for number in (layer.weight, layer.bias)]
    if not torch.compiler.is_compiling():
        slope, intercept, knots = _Pieces.apply(final, *numbers)
        return slope, intercept, knots
    widths = [layer.out_features for layer in (layers if final else layers[:-1])]
    return _pieces_with_room(numbers, final, min(math.prod([n + 1 for n in widths]), ROOM))


class _Pieces(torch.autograd.Function):
    """By hand, because this is done at every step for small tensors, and half the time was autograd's own."""

    @staticmethod
    def forward(ctx: Any, final: bool, *numbers: Tensor) -> Pieces:
        slope, intercept, knots, gates = _found(numbers, final)
        ctx.save_for_backward(*numbers)
        ctx.final, ctx.gates = final, gates  # no argument and no result
        ctx.mark_non_differentiable(knots)
        return slope, intercept, knots

    @staticmethod
    def backward(ctx: Any, of_slope: Tensor, of_intercept: Tensor, _of_knots: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_passed_back(ctx.saved_tensors, ctx.gates, ctx.final, of_slope, of_intercept)


@torch.library.custom_op("lengthwise::relu_pieces", mutates_args=())
def _pieces_with_room(numbers: Sequence[Tensor], final: bool, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """Slope, intercept [h, room] and knots [room - 1]."""
    slope, intercept, knots, _ = _found(numbers, final)
    more = room - slope.shape[1]
    if more < 0:
        raise ConfigError(
            f"the MLP makes {slope.shape[1]} straight pieces, and in a graph of torch.compile there is room for {room}; run "
            "the model without torch.compile, or with fewer or narrower hidden layers"
        )
    slope, intercept = (torch.nn.functional.pad(x, (0, more)) for x in (slope, intercept))
    return slope, intercept, torch.nn.functional.pad(knots, (0, more), value=math.inf)


@_pieces_with_room.register_fake
def _(numbers: Sequence[Tensor], final: bool, room: int) -> tuple[Tensor, Tensor, Tensor]:
    like = numbers[0].new_empty((), dtype=table_dtype(numbers[0].device))
    heads = numbers[-1].shape[0]
    return like.new_empty(heads, room), like.new_empty(heads, room), like.new_empty(room - 1)


@torch.library.custom_op("lengthwise::relu_pieces_backward", mutates_args=())
def _with_room_backward(numbers: Sequence[Tensor], final: bool, of_slope: Tensor, of_intercept: Tensor) -> list[Tensor]:
    slope, _, _, gates = _found(numbers, final)
    many = slope.shape[1]
    return _passed_back(numbers, gates, final, of_slope[:, :many], of_intercept[:, :many])


@_with_room_backward.register_fake
def _(numbers: Sequence[Tensor], final: bool, of_slope: Tensor, of_intercept: Tensor) -> list[Tensor]:
    return [torch.empty_like(number) for number in numbers]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    numbers, ctx.final, _ = inputs
    ctx.save_for_backward(*numbers)
    ctx.mark_non_differentiable(output[2])


def _pass_back(ctx: Any, of_slope: Tensor, of_intercept: Tensor, _of_knots: Tensor) -> tuple[Any, ...]:
    return _with_room_backward(list(ctx.saved_tensors), ctx.final, of_slope, of_intercept), None, None


_pieces_with_room.register_autograd(_pass_back, setup_context=_keep)


def library(*tensors: Tensor) -> ModuleType | None:
    """`compiled`, where it may be given the memory of tensors: ordinary ones, on a CPU, and nobody who wants to see operators."""
    if compiled is None or torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return None
    plain = all(type(x) in (Tensor, nn.Parameter) and x.device.type == "cpu" for x in tensors)
    return compiled if plain and compiled.there() else None


def _found(numbers: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Slope, intercept, knots, and of every piece which neurons each ReLU lets through, [s, all their widths] of 1 and 0."""
    if (made := library(*numbers)) and made.serves(numbers):
        slope, intercept, knots, gates = made.find(numbers, final)
        return slope, intercept, knots, gates
    lines, knots, of_layers = _in_torch(numbers, final)
    slope, intercept = lines.mT.contiguous()
    gates = torch.cat(of_layers, 1) if of_layers else lines.new_empty(lines.shape[1], 0)
    return slope, intercept, knots, gates.to(torch.uint8)


def _passed_back(
    numbers: Sequence[Tensor], gates: Tensor, final: bool, of_slope: Tensor, of_intercept: Tensor
) -> list[Tensor]:
    """The gradient of every number."""
    made = None if torch.is_grad_enabled() else library(*numbers, gates, of_slope, of_intercept)
    if made and made.serves(numbers):
        found: list[Tensor] = made.pass_back(numbers, gates, final, of_slope, of_intercept)
        return found
    sizes = [len(bias) for bias in numbers[1::2]]
    return _back_in_torch(numbers, gates.split(sizes if final else sizes[:-1], 1), of_slope, of_intercept)


# ---- lines [2, s, width]: of every neuron in every piece its slope and its intercept; `numbers`: weight, bias, weight, ...


def _in_torch(numbers: Sequence[Tensor], final: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The last layer's lines, the knots, and for every ReLU which neurons it lets through, [s, width] of 1 and 0."""
    weights, biases = _split(numbers)
    lines = torch.stack([weights[0].T, biases[0][None]])
    gates: list[Tensor] = []
    edges = lines.new_tensor([0.0, 1.0])
    for n in range(1, len(weights) + final):
        left, right = edges[:-1], edges[1:]
        zero = -lines[1] / lines[0]
        edges = torch.cat([edges, zero[(zero > left[:, None]) & (zero < right[:, None])]]).sort().values
        middle = (edges[:-1] + edges[1:]) / 2
        of = torch.searchsorted(right, middle)  # the piece that each is a part of
        lines, gates = lines[:, of], [gate[of] for gate in gates]
        gates.append((torch.addcmul(lines[1], lines[0], middle[:, None]) > 0).to(lines.dtype))
        lines = _through(lines * gates[-1], weights[n : n + 1], biases[n : n + 1])
    return lines, edges[1:-1], gates


def _back_in_torch(
    numbers: Sequence[Tensor], gates: Sequence[Tensor], of_slope: Tensor, of_intercept: Tensor
) -> list[Tensor]:
    """The gradient of every number. Functions of `numbers`, so that there are second derivatives too."""
    weights, biases = _split(numbers)
    lines, into = torch.stack([weights[0].T, biases[0][None]]), []
    for n, gate in enumerate(gates, 1):
        into.append(lines * gate)
        lines = _through(into[-1], weights[n : n + 1], biases[n : n + 1])
    change, found = torch.stack([of_slope.T, of_intercept.T]), []
    if len(gates) == len(weights):
        change = change * gates[-1]
    for n in range(len(weights) - 1, 0, -1):
        found += [change[1].sum(0), change.flatten(0, 1).T @ into[n - 1].flatten(0, 1)]
        change = change @ weights[n] * gates[n - 1]
    found += [change[1].sum(0), change[0].sum(0)[:, None]]
    return [gradient.to(number.dtype) for gradient, number in zip(reversed(found), numbers, strict=True)]


def _split(numbers: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    wider = [number.to(table_dtype(number.device)) for number in numbers]
    return wider[::2], wider[1::2]


def _through(lines: Tensor, weight: Sequence[Tensor], bias: Sequence[Tensor]) -> Tensor:
    """Through the layer, where there is one more."""
    if not weight:
        return lines
    return torch.stack([lines[0] @ weight[0].T, torch.addmm(bias[0], lines[1], weight[0].T)])


def grid_pieces(function: Callable[[Tensor], Tensor], like: Tensor) -> Pieces:
    """(slope, intercept, knots) of straight lines between `GRID` equally spaced values of a smooth function on [0, 1].

    The error is at most max|f''| / (8 · 4095^2) = 7.5e-9 max|f''|, that of a slope max|f''| / (2 · 4095) < 1.23e-4 max|f''|:
    gradients with respect to x, as FIRE's of c and L, are the slope of the chord where f' is meant.
    """
    x = torch.linspace(0.0, 1.0, GRID, dtype=table_dtype(like.device), device=like.device)
    value = function(x[:, None])
    slope = (value[1:] - value[:-1]) * (GRID - 1)
    return slope.T.contiguous(), (value[:-1] - slope * x[:-1, None]).T.contiguous(), x[1:-1]
