"""The operator of fused attention: one meaning, a kernel for each kind of device, with gradients.

    out, lse = torch.ops.lengthwise.attention(q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first,
                                              position_q, position_k, documents, causal, window, scale)

The logit of query i and key j in head h is

    scale <q_i, k_j>  +  table[h, distance - first]  +  slope[h, s] x + intercept[h, s]  +  rows[b, h, i, distance - rows_first]

with x = u[distance] w[i] and s the number of knots <= x; a distance past either end of a table takes the nearest entry.

q [b, h, i, d]; k, v [b, g, j, d] with h a multiple of g, and queries the last i of the j; float32, bfloat16, float16
(computed in float32), and on the CPU float64. table [h|1, n]; slope, intercept [h|1, s], knots [s-1], u [n], w [b|1, i];
rows [b, h|1, i, r]: of the dtype that is computed in, contiguous, None where there is none. position_q [b|1, i],
position_k [b|1, j]: None where key j stands at j and each query at its own index. documents [b|1, j]; `causal` and
`window` (0: none) as in `Mask`. lse [b, h, i] is the logarithm of each row's sum of exp(logit), for the backward pass.

Gradients reach q, k, v, table, slope, intercept, u, w and rows; there is no second derivative. It works under
`torch.compile`. The numbers are the same at every call on one device, whatever the number of threads.
"""

from typing import Any

import torch
from torch import Tensor

from lengthwise.attention import cpu, gpu
from lengthwise.attention.buffers import Gradients, computed_in, empty_gradients, like_heads


@torch.library.custom_op("lengthwise::attention", mutates_args=(), device_types="cpu")
def attention(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor | None, first: int, slope: Tensor | None, intercept: Tensor | None,
    knots: Tensor | None, u: Tensor | None, w: Tensor | None, rows: Tensor | None, rows_first: int,
    position_q: Tensor | None, position_k: Tensor | None, documents: Tensor | None, causal: bool, window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output, laid out in memory as [b, i, h, d], and lse; see the module."""
    return cpu.forward(
        q, k, v, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k, documents, causal,
        window, scale,
    )  # fmt: skip


attention.register_kernel("cuda")(gpu.forward)


@attention.register_fake
def _(q: Tensor, *_args: Any) -> tuple[Tensor, Tensor]:
    return like_heads(q), q.new_empty(q.shape[:3], dtype=computed_in(q))


@torch.library.custom_op("lengthwise::attention_backward", mutates_args=(), device_types="cpu")
def attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    """Gradients of q, k, v, table, slope, intercept, u, w, rows; the last ones have no entries where nobody asks."""
    return cpu.backward(
        grad, q, k, v, out, lse, table, first, slope, intercept, knots, u, w, rows, rows_first, position_q, position_k,
        documents, causal, window, scale, of_table, of_pieces, of_rows,
    )  # fmt: skip


attention_backward.register_kernel("cuda")(gpu.backward)


@attention_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor | None, first: int,
    slope: Tensor | None, intercept: Tensor | None, knots: Tensor | None, u: Tensor | None, w: Tensor | None,
    rows: Tensor | None, rows_first: int, position_q: Tensor | None, position_k: Tensor | None,
    documents: Tensor | None, causal: bool, window: int, scale: float, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    return empty_gradients(q, k, v, lse, table, slope, u, w, rows, of_table, of_pieces, of_rows)


_NAMES = ("q", "k", "v", "table", "first", "slope", "intercept", "knots", "u", "w", "rows", "rows_first", "position_q",
          "position_k", "documents", "causal", "window", "scale")  # fmt: skip
_PLAIN = ("first", "rows_first", "causal", "window", "scale")  # no tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    given = dict(zip(_NAMES, inputs, strict=True))
    ctx.plain = {name: given.pop(name) for name in _PLAIN}
    ctx.save_for_backward(*output, *given.values())
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _pass_back(ctx: Any, grad: Tensor | None, _grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * len(_NAMES)
    out, lse, *tensors = ctx.saved_tensors
    given = {**dict(zip((n for n in _NAMES if n not in _PLAIN), tensors, strict=True)), **ctx.plain}
    q, k, v, *bias = (given[name] for name in _NAMES)
    needs = dict(zip(_NAMES, ctx.needs_input_grad, strict=True))
    of_pieces = any(needs[name] for name in ("slope", "intercept", "u", "w"))
    found = attention_backward(grad, q, k, v, out, lse, *bias, needs["table"], of_pieces, needs["rows"])
    gradients = dict(zip(("q", "k", "v", "table", "slope", "intercept", "u", "w", "rows"), found, strict=True))
    return tuple(gradients[name] if needs[name] else None for name in _NAMES)


attention.register_autograd(_pass_back, setup_context=_keep)
