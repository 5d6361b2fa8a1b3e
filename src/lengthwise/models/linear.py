"""Linear maps and the gated activation of the MLP, optimized for CPUs.

torch multiplies float32 matrices with the library that it was built with, MKL, which uses wide registers only on
Intel's processors. oneDNN, which torch includes too, has kernels for every processor: on an EPYC of 2024 it is twice as
fast. Both sum the same products in a different order.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

MIN_PRODUCTS = 1 << 21  # below, calling oneDNN takes longer than it saves
ROWS = 128  # rows that the gated activation processes together, so that they stay in a core's cache


def _product() -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """Return a function of x [n, i] and w [o, i] that computes x wᵀ with oneDNN; None if torch was built without it."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return None
    op = torch.ops.mkldnn._linear_pointwise
    return lambda x, w, bias: op(x, w, bias, "none", [], "")


_PRODUCT = _product()


def matmul_library() -> str:
    """Return which library multiplies large linear maps on this CPU: "oneDNN", or "torch" for torch's default."""
    return "oneDNN" if _PRODUCT is not None and torch.backends.mkldnn.enabled else "torch"


class Linear(nn.Linear):
    """`nn.Linear`, with oneDNN where that is faster: for large float32 products on a CPU outside of compiled graphs."""

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        size = x.numel() * self.out_features
        if size < MIN_PRODUCTS or torch.compiler.is_compiling() or not _onednn_applies(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        return _Linear.apply(x, self.weight, self.bias)


def _onednn_applies(x: Tensor, weight: Tensor) -> bool:
    float32_on_cpu = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return float32_on_cpu and matmul_library() == "oneDNN" and not torch.is_autocast_enabled("cpu")


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
        x_needs_grad, weight_needs_grad, bias_needs_grad = ctx.needs_input_grad
        g, rows = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        dx = _PRODUCT(g, weight.t(), None).view(x.shape) if x_needs_grad else None
        dw = None
        if weight_needs_grad:  # twice as fast if the matrix with more columns is the second argument
            g_is_wider = g.shape[1] > rows.shape[1]
            dw = _PRODUCT(rows.t(), g.t(), None).t() if g_is_wider else _PRODUCT(g.t(), rows.t(), None)
        return dx, dw, g.sum(0) if bias_needs_grad else None


def swiglu(h: Float[Tensor, "*b h2"]) -> Float[Tensor, "*b h"]:
    """Return silu(gate) · up, where h is gate and up concatenated.

    It saves only h for the backward pass and processes a few rows at a time.
    """
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
        for h_rows, out_rows in zip(rows.split(ROWS), out.split(ROWS), strict=True):
            gate, up = h_rows.chunk(2, -1)
            torch.mul(F.silu(gate), up, out=out_rows)
        return out.view(*h.shape[:-1], out.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        rows, g = h.reshape(-1, h.shape[-1]), grad.reshape(-1, grad.shape[-1])
        out = torch.empty_like(rows)
        for h_rows, g_rows, out_rows in zip(rows.split(ROWS), g.split(ROWS), out.split(ROWS), strict=True):
            (gate, up), (grad_gate, grad_up) = h_rows.chunk(2, -1), out_rows.chunk(2, -1)
            torch.ops.aten.silu_backward.grad_input(g_rows * up, gate, grad_input=grad_gate)
            torch.mul(g_rows, F.silu(gate), out=grad_up)
        return out.view(h.shape)
