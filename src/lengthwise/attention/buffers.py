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
    w: Tensor | None, rows: Tensor | None, of_table: bool, of_pieces: bool, of_rows: bool, apart: bool = True,
) -> Gradients:  # fmt: skip
    """Memory for what `attention_backward` returns, of each argument's own dtype. `apart`: each has its own, as an operator's
    results must. Otherwise those of q, k and v lie in one piece: C libraries give large pieces back to the system and fetch
    them again page by page, and the largest that was freed says how soon."""
    none = lse.new_empty(0)

    def like(x: Tensor | None, asked: bool) -> Tensor:
        if asked and x is not None:
            return x.new_empty(x.shape)
        return (lse if x is None else x).new_empty(0) if apart else none

    heads = (like_heads(q), like_heads(k), like_heads(v)) if apart else _in_one_piece(q, k, v)
    return (
        *heads, like(table, of_table),
        like(slope, of_pieces), like(slope, of_pieces), like(u, of_pieces), like(w, of_pieces), like(rows, of_rows),
    )  # fmt: skip


def _in_one_piece(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`like_heads` of each."""
    of_q, of_k = (-(-x.numel() // 16) * 16 for x in (q, k))  # complex numbers, as of a rotation, begin at even places
    whole = q.new_empty(of_q + 2 * of_k)

    def part(x: Tensor, at: int) -> Tensor:
        b, h, i, d = x.shape
        return whole.as_strided((b, h, i, d), (i * h * d, d, h * d, 1), at)

    return part(q, 0), part(k, of_q), part(v, of_q + of_k)
