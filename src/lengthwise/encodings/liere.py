"""LieRE: blocks of each head rotate in several dimensions at once, by learned matrices."""

import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import NOMINAL_SIZES, require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, MatrixRotation, table_dtype
from lengthwise.span import Span
from lengthwise.values import shown


class LieRE(PositionEncoding):
    """Each block of m = `block` dims of q and k is multiplied by exp(x_0 A_0 + x_1 A_1 + ...), x_a = position on axis a / `unit`.

    exp is the exponential of a matrix. Each A is skew-symmetric (A^T = -A), so its exponential is a rotation of m dimensions. The
    m (m - 1) / 2 entries above the diagonal are learned, for each axis, head and block, in each layer. They begin uniform between 0
    and 2π. With m = 2 this is RoPE with learned frequencies (`RoPEMixed`).

    With one axis, the product of rotated q and k depends only on the distance. With several axes this holds for tokens whose
    positions are equal on all axes, such as words, and for m = 2. Otherwise it also depends on the positions themselves, because
    exp(A + B) is in general not exp(A) exp(B). Positions are [batch, tokens, axes]. A token with a single position ID has
    this ID on every axis.

    Matrices are computed in float64. They take 8 m d bytes for each position and head of d dims: 8 MiB for 512 positions, 4 heads
    of 64 dims and m = 8, and several times as much in training. If axes are equal and tokens are no fewer than positions, only the
    exponentials of position 1 are computed, and the others are their powers. Otherwise every token has exponentials of its own,
    which take much longer.

    Beyond the training length: directions that rotate slowly reach angles never seen in training.

    Source: Ostmeier et al. 2024, "LieRE: Lie Rotational Positional Encodings".
    Code: StanfordMIMI/LieRE, models/rope_vit.py (`generator_dim=8`, `rotary_embedding_per_layer`, `rotary_embedding_per_head`).
    Differs: the code divides positions by the number of patches on an axis, which is 14 for ImageNet, the default of `unit` here.
    Its patches are spread evenly from 0 to 1, so their step is 1/13. It computes exponentials in float32, or in the model's dtype,
    and leaves dimensions after the last whole block unrotated; here `block` has to divide the dimensions of a head. It does not
    rotate the class token, which is position 0 on every axis.

    >>> liere = LieRE(num_heads=1, head_dim=2, block=2, axes=1, unit=1.0)
    >>> _ = liere.generators.data.fill_(math.pi / 2)                      # a quarter turn for each position
    >>> liere.matrices(torch.tensor([[3]]), None).detach().round().int().tolist()
    [[[[[[0, -1], [1, 0]]]]]]
    """

    shared_across_layers: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False  # unless all rotations commute
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {"block": (2, 4), "axes": (1, 3), "unit": (1.0,)}

    def __init__(self, *, num_heads: int, head_dim: int, axes: int = 2, block: int = 8, unit: float = 14.0):
        super().__init__()
        require_positive_int("LieRE", axes=axes, block=block)
        require_positive("LieRE", unit=unit)
        if unit < 1:  # rotations of distant tokens would have few correct digits
            raise ConfigError(f"LieRE: unit must be at least 1 position, got {shown(unit)}")
        if block < 2 or head_dim % block:
            raise ConfigError(f"LieRE: block must be at least 2 and divide head_dim, {head_dim}, got {shown(block)}")
        self.head_dim, self.num_axes, self.block, self.unit = head_dim, axes, block, unit
        self.shift_invariant = axes == 1 or block == 2  # type: ignore[misc]
        above_diagonal = block * (block - 1) // 2
        self.generators = nn.Parameter(2 * math.pi * torch.rand(axes, num_heads, head_dim // block, above_diagonal))

    @classmethod
    def nominal_sizes(cls, settings: dict[str, Any]) -> dict[str, int]:
        # Whether a block is valid depends on the model's head_dim.
        require_positive_int("LieRE", block=settings.get("block", 8))
        return {**NOMINAL_SIZES, "head_dim": max(2, settings.get("block", 8))}

    def skew(self) -> Float[Tensor, "axes h n m m"]:
        """Return the skew-symmetric matrices, divided by `unit`."""
        entries = self.generators.to(table_dtype(self.generators.device))
        row, column = torch.triu_indices(self.block, self.block, 1, device=entries.device)
        upper = entries.new_zeros(*entries.shape[:-1], self.block**2).index_add(-1, row * self.block + column, entries)
        upper = upper.unflatten(-1, (self.block, self.block))
        return (upper - upper.mT) / self.unit

    def matrices(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None, table_length: int | None = None
    ) -> Float[Tensor, "b h t n m m"]:
        """Return the rotation of every token, head and block.

        `axes` is None if all axes of a token are its position ID. `table_length`: all position IDs are below it, and the rotations
        of all of them may be computed; None: compute only those of `positions`.
        """
        skew = self.skew()[:, :, None]
        if axes is not None:
            x = axes.to(skew.dtype)[:, None, :, None, None, None]
            return torch.linalg.matrix_exp(sum(x[..., axis] * of_axis for axis, of_axis in enumerate(skew)))
        skew = skew.sum(0)
        if table_length is not None:
            table = _powers(torch.linalg.matrix_exp(skew), table_length)
            return table.index_select(1, positions.flatten()).unflatten(1, positions.shape).transpose(0, 1)
        return torch.linalg.matrix_exp(positions.to(skew.dtype)[:, None, :, None, None, None] * skew)

    def modifiers(self, span: Span) -> AttentionModifiers:
        matrix_k = self.matrices(span.k, span.axes_k, _table_length(span, span.k))
        if span.consecutive and span.q.shape == span.k.shape:
            return AttentionModifiers(rotation=MatrixRotation(matrix_k, matrix_k))
        matrix_q = self.matrices(span.q, span.axes_q, _table_length(span, span.q))
        return AttentionModifiers(rotation=MatrixRotation(matrix_q, matrix_k))


def _table_length(span: Span, positions: Tensor) -> int | None:
    """Return the length of a table of all position IDs; None if it is unknown, or longer than the tokens are many."""
    if torch.compiler.is_compiling() and not span.consecutive:
        return None
    return span.length if span.length <= positions.numel() else None


def _powers(matrix: Float[Tensor, "h 1 n m m"], count: int) -> Float[Tensor, "h count n m m"]:
    """Return the powers 0 ... count - 1 of matrices: of one position's rotation, the rotations of all positions."""
    powers, step = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device).expand_as(matrix), matrix
    while powers.shape[1] < count:
        powers = torch.cat([powers, powers @ step], 1)
        step = step @ step
    return powers[:, :count]
