"""Linear maps and the gated activation of the MLP, as fast as a CPU has them.

torch multiplies float32 matrices by the library that it was built with, MKL, which knows the wide registers of Intel's
processors alone; oneDNN, which torch brings as well, has kernels for every processor's: on an EPYC of 2024 twice as fast.
Both are sums of the same products in another order.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

SMALLEST = 1 << 21  # products: below, calling oneDNN takes longer than it saves
ROWS = 128  # that the gated activation works on together: what stays in a core's cache


def _product() -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """x [n, i], w [o, i] → x wᵀ by oneDNN; None where torch has none."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return None
    op = torch.ops.mkldnn._linear_pointwise
    return lambda x, w, bias: op(x, w, bias, "none", [], "")


_PRODUCT = _product()


def multiplied_by() -> str:
    """Which library large linear maps are multiplied by on a CPU here: "oneDNN", or "torch" for what torch takes itself."""
    return "oneDNN" if _PRODUCT is not None and torch.backends.mkldnn.enabled else "torch"


class Linear(nn.Linear):
    """`nn.Linear`, by oneDNN where that is faster: large products of float32 on a CPU, not in a compiled graph."""

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        size = x.numel() * self.out_features
        if size < SMALLEST or torch.compiler.is_compiling() or not _served(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        return _Linear.apply(x, self.weight, self.bias)


def _served(x: Tensor, weight: Tensor) -> bool:
    plain = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return plain and multiplied_by() == "oneDNN" and not torch.is_autocast_enabled("cpu")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        assert _PRODUCT is not None
        ctx.save_for_backward(x, weight)
        return _PRODUCT(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        assert _PRODUCT is not None
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        g, rows = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        dx = _PRODUCT(g, weight.t(), None).view(x.shape) if of_x else None
        dw = None
        if of_weight:  # the wider one in the place of the weights: twice as fast
            wide = g.shape[1] > rows.shape[1]
            dw = _PRODUCT(rows.t(), g.t(), None).t() if wide else _PRODUCT(g.t(), rows.t(), None)
        return dx, dw, g.sum(0) if of_bias else None


def swiglu(h: Float[Tensor, "*b h2"]) -> Float[Tensor, "*b h"]:
    """silu(gate) · up of h = gate | up. Keeps h alone for the backward pass, and works on a few rows at a time."""
    if h.device.type != "cpu" or torch.compiler.is_compiling():
        gate, up = h.chunk(2, -1)
        return F.silu(gate) * up
    return _SwiGLU.apply(h)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        rows = h.reshape(-1, h.shape[-1])
        out = rows.new_empty(len(rows), rows.shape[1] // 2)
        for part, made in zip(rows.split(ROWS), out.split(ROWS), strict=True):
            gate, up = part.chunk(2, -1)
            torch.mul(F.silu(gate), up, out=made)
        return out.view(*h.shape[:-1], out.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        rows, g = h.reshape(-1, h.shape[-1]), grad.reshape(-1, grad.shape[-1])
        out = torch.empty_like(rows)
        for part, g_part, made in zip(rows.split(ROWS), g.split(ROWS), out.split(ROWS), strict=True):
            (gate, up), (of_gate, of_up) = part.chunk(2, -1), made.chunk(2, -1)
            torch.ops.aten.silu_backward.grad_input(g_part * up, gate, grad_input=of_gate)
            torch.mul(g_part, F.silu(gate), out=of_up)
        return out.view(h.shape)
