"""The operator of fused attention: one meaning, a kernel for each kind of device, with gradients.

    out, lse = torch.ops.lengthwise.attention(q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first,
                                              position_q, position_k, documents, causal, window, scale,
                                              cos_sin_q, cos_sin_k, interleaved)

The logit of query i and key j in head h is

    scale <q_i, k_j>  +  table[h, distance - first]  +  slope[h, s] x + intercept[h, s]  +  rows[b, h, i, distance - rows_first]

with x = u[distance] w[i] and s the number of knots <= x; a distance past either end of a table takes the nearest entry.

q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g, and queries the last i of the j; float32, bfloat16, float16
(computed in float32), and on the CPU float64. table [h|1, n], rows [b, h|1, i, r]: of the dtype that is computed in;
slope, intercept [h|1, s], knots [s-1], u [n], w [b|1, i]: the same, or float64: so are their gradients
then, and a CPU tells exactly on which side of a knot x is. All contiguous, None where there is none. position_q [b|1, i],
position_k [b|1, j]: None where key j stands at j and each query at its own index. documents [b|1, j]; `causal` and
`window` (0: none) as in `Mask`. cos_sin_q [b|1, i, 2, pairs], cos_sin_k [b|1, j, 2, pairs], of the dtype that is computed in: a
rotation's cosines and sines, with its gains, which q and k are turned by first; of dims 2p and 2p + 1 (`interleaved`), or p and
p + pairs; on a CPU alone. lse [b, h, i] is the logarithm of each row's sum of exp(logit), for the backward pass.

Gradients reach q, k, v, table, slope, intercept, u, w and rows; there is no second derivative. It works under
`torch.compile`. The numbers are the same at every call on one device, whatever the number of threads.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lengthwise.attention import cpu, gpu
from lengthwise.attention.buffers import Gradients, computed_in, empty_gradients, like_heads
from lengthwise.attention.cpu import pieces
from lengthwise.encodings import piecewise
from lengthwise.encodings.piecewise import ROOM

piecewise.compiled = pieces

MANY = 64  # pieces from which on the kernels have slower ways


@torch.library.custom_op("lengthwise::attention", mutates_args=(), device_types=("cpu", "cuda"))
def attention(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None, rows_first: int,
    position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int,
    scale: float, cos_sin_q: Tensor | None = None, cos_sin_k: Tensor | None = None, interleaved: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output, laid out in memory as [b, i, h, d], and lse; see the module."""
    slope, intercept, knots = _in_use(slope, intercept, knots)
    given = (
        q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k, documents, causal,
        window, scale,
    )  # fmt: skip
    if not q.is_cuda:
        return cpu.forward(*given, cos_sin_q, cos_sin_k, interleaved)
    _require_unturned(cos_sin_q, cos_sin_k)
    return gpu.forward(*given)


def _require_unturned(*turns: Tensor | None) -> None:
    if any(turn is not None for turn in turns):
        raise NotImplementedError("attention on a GPU rotates nothing: rotate q and k before it")


def _in_use(
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Without the pieces behind knots at infinity: what a compiled graph has room for, and no x reaches. Few of them do no
    harm; where there can be many, looking waits for the device."""
    if slope is None or intercept is None or knots is None or not MANY < slope.shape[1] <= ROOM:
        return slope, intercept, knots
    pieces = int(knots.isfinite().sum()) + 1
    return slope[:, :pieces].contiguous(), intercept[:, :pieces].contiguous(), knots[: pieces - 1]


@attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))


@torch.library.custom_op("lengthwise::attention_backward", mutates_args=(), device_types=("cpu", "cuda"))
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, cos_sin_q: Tensor | None, cos_sin_k: Tensor | None,
    interleaved: bool, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    """Gradients of q, k, v, table, slope, intercept, u, w, rows; the last ones have no entries where nobody asks."""
    room = 0 if slope is None else slope.shape[1]
    slope, intercept, knots = _in_use(slope, intercept, knots)
    given = (
        grad, q, k, v, out, lse, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k,
        documents, causal, window, scale,
    )  # fmt: skip
    if q.is_cuda:
        _require_unturned(cos_sin_q, cos_sin_k)
        found = gpu.backward(*given, of_table, of_pieces, of_rows)
    else:
        found = cpu.backward(*given, cos_sin_q, cos_sin_k, interleaved, of_table, of_pieces, of_rows)
    if not of_pieces or slope is None or slope.shape[1] == room:
        return found
    of_slope, of_intercept = (F.pad(gradient, (0, room - slope.shape[1])) for gradient in found[4:6])
    return *found[:4], of_slope, of_intercept, *found[6:]


@attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, cos_sin_q: Tensor | None, cos_sin_k: Tensor | None,
    interleaved: bool, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    return empty_gradients(q, k, v, lse, table, slope, u, w, rows, of_table, of_pieces, of_rows)


_PLAIN = ("first", "rows_first", "relative_first", "causal", "window", "scale", "interleaved")  # no tensors


class Passing:
    """How gradients pass through an operator with arguments `names` (q, k and v the first) that gives out and lse. What makes
    those of `learned` is given the gradient of out, q, k, v, out, lse, the other arguments, and whether anybody asks for those
    of the table, of the pieces and, if there are any, of the rows."""

    def __init__(self, names: tuple[str, ...], learned: tuple[str, ...]) -> None:
        place = {name: n for n, name in enumerate(names)}
        self.plain = tuple(place[name] for name in _PLAIN if name in place)
        self.tensors = tuple(n for n in range(len(names)) if n not in self.plain)
        self.learned = tuple(place[name] for name in learned)
        self.table, self.rows = place["table"], place.get("rows")
        self.pieces = tuple(place[name] for name in ("slope", "intercept", "u", "w"))

    def keep(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.plain = [inputs[n] for n in self.plain]
        ctx.save_for_backward(*output, *[inputs[n] for n in self.tensors])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    def back(
        self, ctx: Any, grad: Tensor | None, kernel: Callable[..., tuple[Tensor, ...]]
    ) -> tuple[Tensor | None, ...]:
        given: list[Any] = [None] * (len(self.plain) + len(self.tensors))
        gradients: list[Tensor | None] = list(given)
        if grad is None:
            return tuple(gradients)
        out, lse, *tensors = ctx.saved_tensors
        for n, x in zip((*self.tensors, *self.plain), (*tensors, *ctx.plain), strict=True):
            given[n] = x
        needs = ctx.needs_input_grad
        asked = [needs[self.table], any(needs[n] for n in self.pieces)]
        if self.rows is not None:
            asked.append(needs[self.rows])
        found = kernel(grad, *given[:3], out, lse, *given[3:], *asked)
        for n, gradient in zip(self.learned, found, strict=True):
            gradients[n] = gradient if needs[n] else None
        return tuple(gradients)


_passing = Passing(
    ("q", "k", "v", "table", "first", "slope", "intercept", "knots", "u", "w", "rows", "rows_first", "position_q",
     "position_k", "documents", "causal", "window", "scale", "cos_sin_q", "cos_sin_k", "interleaved"),
    ("q", "k", "v", "table", "slope", "intercept", "u", "w", "rows"),
)  # fmt: skip


def _pass_back(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    return _passing.back(ctx, grad, attention_backward)


attention.register_autograd(_pass_back, setup_context=_passing.keep)


def _plain(*tensors: Tensor) -> bool:
    """Ordinary tensors on a CPU and nobody who wants to see operators: no tracer, compiler or dispatch mode."""
    if torch.compiler.is_compiling() or is_in_torch_dispatch_mode():
        return False
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return False
    return all(type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" for x in tensors)


class _Eager(torch.autograd.Function):
    """The operator's kernels and gradients without the way through torch.library, which takes a tenth of a millisecond each
    time: as long as the whole attention of a small model."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        output = cpu.forward(*inputs)
        _passing.keep(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
        direct = grad is not None and _plain(grad) and not torch.is_grad_enabled()
        return _passing.back(ctx, grad, _backward_in_one_piece if direct else attention_backward)


_backward_in_one_piece = functools.partial(cpu.backward, apart=False)


def attend(
    *inputs: Any, cos_sin_q: Tensor | None = None, cos_sin_k: Tensor | None = None, interleaved: bool = True
) -> tuple[Tensor, Tensor]:
    """`attention`, as fast as it can be called."""
    inputs = (*inputs, cos_sin_q, cos_sin_k, interleaved)
    if not _plain(*inputs[:3]):
        return attention(*inputs)
    output: tuple[Tensor, Tensor] = _Eager.apply(*inputs) if torch.is_grad_enabled() else cpu.forward(*inputs)
    return output
