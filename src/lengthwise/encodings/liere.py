"""LieRE: blocks of each head rotate in several dimensions at once, by learned matrices."""

import functools
import math
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, MatrixRotation, table_dtype
from lengthwise.span import Span
from lengthwise.values import shown

# Tokens whose exponentials are computed together, which takes some 20 times the memory of their matrices.
_CHUNK_SIZE = 1024


class LieRE(PositionEncoding):
    """Each block of m = `block` dims of q and k is multiplied by exp(x_0 A_0 + x_1 A_1 + ...), x_a = position on axis a
    / `unit`.

    exp is the exponential of a matrix. Each A is skew-symmetric (A^T = -A), so its exponential is a rotation of m
    dimensions. The m (m - 1) / 2 entries above the diagonal are learned, for each axis, head and block, in each layer.
    They begin uniform between 0 and 2π. With m = 2 this is RoPE with learned frequencies (`RoPEMixed`).

    With one axis, the product of rotated q and k depends only on the distance. With several axes this holds for tokens
    whose positions are equal on all axes, such as words, and for m = 2. Otherwise it also depends on the positions
    themselves, because exp(A + B) is in general not exp(A) exp(B). Positions are [batch, tokens, axes]. A token with a
    single position ID has this ID on every axis.

    Matrices are computed in float64. They take 8 m d bytes for each position and head of d dims: 8 MiB for 512
    positions, 4 heads of 64 dims and m = 8. If the axes of every token are equal, and positions are below twice the
    number of tokens, few exponentials are computed, and the rotations are their products; the peak of memory is then
    about 3 times the matrices, and 6 times in training. Otherwise every token has exponentials of its own, which take
    longer, and in training some 70 times the memory of the matrices. Without gradients, they are computed for 1,024
    tokens at a time, and the peak is about 4 times the matrices of 16,384 tokens. A compiled graph with position IDs
    computes the exponentials of all tokens at once. Each step of decoding with several axes, or with gaps between
    positions, computes the exponentials of all earlier keys again.

    Beyond the training length: directions that rotate slowly reach angles never seen in training.

    Source: Ostmeier et al. 2024, "LieRE: Lie Rotational Positional Encodings".
    Code: StanfordMIMI/LieRE, models/rope_vit.py (`generator_dim=8` as for ImageNet, and matrices for each layer and
    head as in all its scripts; by default, its classes share them).
    Differs: the code divides positions by the number of patches on an axis, which is 14 for ImageNet, the default of
    `unit` here. Its patches are spread evenly from 0 to 1, so their step is 1/13. It computes exponentials in float32,
    or in the model's dtype, and leaves dimensions after the last whole block unrotated; here `block` has to divide the
    dimensions of a head. It does not rotate the class token, which is position 0 on every axis.

    >>> liere = LieRE(num_heads=1, head_dim=2, block=2, unit=4.0)
    >>> _ = liere.generators.data.fill_(2 * math.pi)                      # a quarter turn for each position
    >>> liere.matrices(torch.tensor([[3]]), None).detach().round().int().tolist()
    [[[[[[0, -1], [1, 0]]]]]]
    """

    shared_across_layers: ClassVar[bool] = False
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {"block": (2, 4), "axes": (2, 3), "unit": (4.0,)}

    def __init__(self, *, num_heads: int, head_dim: int, axes: int = 1, block: int = 8, unit: float = 14.0):
        super().__init__()
        require_positive_int("LieRE", axes=axes, block=block)
        require_positive("LieRE", unit=unit)
        if unit < 4:  # with 1, a shift to position 10^6 changes logits by 7.7e-8, where rounding explains 5.5e-8
            raise ConfigError(f"LieRE: unit must be at least 4 positions, got {shown(unit)}")
        if block < 2 or head_dim % block:
            raise ConfigError(f"LieRE: block must be at least 2 and divide head_dim, {head_dim}, got {shown(block)}")
        self.head_dim, self.num_axes, self.block, self.unit = head_dim, axes, block, unit
        self.shift_invariant = axes == 1 or block == 2  # type: ignore[misc]  # otherwise rotations do not commute
        above_diagonal = block * (block - 1) // 2
        self.generators = nn.Parameter(2 * math.pi * torch.rand(axes, num_heads, head_dim // block, above_diagonal))

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # Whether a block is valid depends on the model's head_dim.
        sizes, settings = super().nominal(settings)
        return {**sizes, "head_dim": max(2, settings.get("block", 8))}, settings

    def skew(self) -> Float[Tensor, "axes h n m m"]:
        """Return the skew-symmetric matrices, divided by `unit`."""
        entries = self.generators.to(table_dtype(self.generators.device))
        row, column = torch.triu_indices(self.block, self.block, 1, device=entries.device)
        upper = entries.new_zeros(*entries.shape[:-1], self.block**2).index_add(-1, row * self.block + column, entries)
        upper = upper.unflatten(-1, (self.block, self.block))
        return (upper - upper.mT) / self.unit

    def matrices(
        self, positions: Int[Tensor, "b t"], axes: Int[Tensor, "b t axes"] | None, table: Tensor | None = None
    ) -> Float[Tensor, "b h t n m m"]:
        """Return the rotation of every token, head and block.

        `axes` is None if all axes of a token are its position ID. `table` may have the rotations of all positions then.
        """
        if table is not None:
            return table.index_select(1, positions.flatten()).unflatten(1, positions.shape).transpose(0, 1)
        x = (positions[..., None] if axes is None else axes).to(table_dtype(positions.device))
        skew = self.skew().sum(0, keepdim=True) if axes is None else self.skew()
        needs_gradient = torch.is_grad_enabled() and skew.requires_grad
        whole = needs_gradient or torch.compiler.is_compiling() or x.shape[1] <= _CHUNK_SIZE
        return torch.cat([_exponentials(chunk, skew) for chunk in ([x] if whole else x.split(_CHUNK_SIZE, 1))], 2)

    def table(self, length: int) -> Float[Tensor, "h positions n m m"]:
        """Return the rotations of positions 0 ... `length` or more, each equal on all axes, from few exponentials.

        A position is 32 a + b with b below 32, and its rotation is the product of those of 32 a and b.
        """
        device = self.generators.device
        near = self.matrices(torch.arange(32, device=device)[None], None)[0]
        # Never a single one, for which torch.compile would make another graph.
        far = self.matrices(32 * torch.arange(length // 32 + 2, device=device)[None], None)[0]
        return (far[:, :, None] @ near[:, None]).flatten(1, 2)

    def modifiers(self, span: Span) -> AttentionModifiers:
        # A compiled graph does not know the length unless positions are consecutive.
        is_dense = span.consecutive or (not torch.compiler.is_compiling() and span.length <= 2 * span.k.numel())
        table = self.table(span.length) if is_dense and span.axes_k is None else None
        matrix_k = self.matrices(span.k, span.axes_k, table)
        same = span.consecutive and span.q.shape == span.k.shape
        matrix_q = matrix_k if same else self.matrices(span.q, span.axes_q, table)
        return AttentionModifiers(rotation=MatrixRotation(matrix_q, matrix_k))


def _exponentials(x: Float[Tensor, "b t axes"], skew: Float[Tensor, "axes h n m m"]) -> Float[Tensor, "b h t n m m"]:
    """Return exp(x_0 A_0 + x_1 A_1 + ...) for the positions of every token."""
    exponents = [x[:, None, :, None, None, None, axis] * of_axis for axis, of_axis in enumerate(skew[:, :, None])]
    return torch.linalg.matrix_exp(functools.reduce(torch.add, exponents))
