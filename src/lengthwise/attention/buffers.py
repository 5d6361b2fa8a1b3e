"""What the kernels behind operator.py write into: the same shapes, dtypes and layouts whatever the device."""

import torch
from torch import Tensor

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def computed_in(q: Tensor) -> torch.dtype:
    return torch.promote_types(q.dtype, torch.float32)


def like_heads(q: Tensor) -> Tensor:
    """A new tensor of q's shape, in memory [b, i, h, d], as the projection after attention wants it."""
    b, h, i, d = q.shape
    return q.new_empty((b, i, h, d)).transpose(1, 2)


def empty_gradients(
    q: Tensor, k: Tensor, v: Tensor, lse: Tensor, table: Tensor | None, slope: Tensor | None, u: Tensor | None,
    w: Tensor | None, rows: Tensor | None, of_table: bool, of_pieces: bool, of_rows: bool,
) -> Gradients:  # fmt: skip
    """Memory for what `attention_backward` returns."""

    def like(x: Tensor | None, asked: bool) -> Tensor:
        return lse.new_empty(x.shape if asked and x is not None else (0,))

    return (
        like_heads(q), like_heads(k), like_heads(v), like(table, of_table),
        like(slope, of_pieces), like(slope, of_pieces), like(u, of_pieces), like(w, of_pieces), like(rows, of_rows),
    )  # fmt: skip
