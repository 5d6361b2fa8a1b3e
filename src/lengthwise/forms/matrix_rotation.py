"""`MatrixRotation`: blocks of dims of queries and keys, multiplied by matrices of their own."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms.base import CallSizes
from lengthwise.forms.rotation import TokenRotation
from lengthwise.values import ConfigError


@dataclass(frozen=True)
class MatrixRotation(TokenRotation):
    """Multiply blocks of m dims of q and k by matrices m x m, for LieRE.

    Block n has the dims n·m ... n·m + m - 1. Dims after the last block stay as they are, and None leaves q or k
    unrotated. A `Rotation` is the case of blocks of two dims, with two numbers in place of the four of each matrix.
    """

    matrix_q: Float[Tensor, "#b #h i n m m"] | None = None
    matrix_k: Float[Tensor, "#b #h j n m m"] | None = None

    cost = ("a matrix for each position, head and block of m dims: O(n h d m)", "O(n h d m)")

    @property
    def key_groups(self) -> int:
        return 1 if self.matrix_k is None else self.matrix_k.shape[1]

    def rotate_query(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return _product(self.matrix_q, q)

    def rotate_key(self, k: Float[Tensor, "b h j d"]) -> Float[Tensor, "b h j d"]:
        return _product(self.matrix_k, k)

    def frequencies(self) -> Float[Tensor, " pairs"]:
        """Return by how many radians the matrices of the first head and of key 1 rotate, from large to small.

        An orthogonal matrix rotates pairs of directions, by the angles of its pairs of complex eigenvalues.
        """
        assert self.matrix_k is not None
        matrices = self.matrix_k[0, 0, 1]
        angles = torch.linalg.eigvals(matrices).angle().sort(-1, descending=True).values
        return angles[:, : matrices.shape[-1] // 2].flatten().sort(descending=True).values

    def check(self, sizes: CallSizes) -> None:
        super().check(sizes)
        for matrix in self.tensors.values():
            if (dims := matrix.shape[3] * matrix.shape[4]) > sizes.d:
                raise ConfigError(
                    f"MatrixRotation{sizes.owner} rotates {dims} dims; it must be at most {sizes.d}, the head dim"
                )


def _product(matrix: Tensor | None, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
    """Return the queries or keys, multiplied in float32 or higher, in their own dtype."""
    if matrix is None:
        return x
    compute, (blocks, m) = torch.promote_types(x.dtype, torch.float32), matrix.shape[3:5]
    rotary, rest = x[..., : blocks * m].to(compute).unflatten(-1, (blocks, m)), x[..., blocks * m :]
    with torch.autocast(x.device.type, enabled=False):  # it would compute the product in half precision
        # `einsum` does not repeat a matrix for every row of the batch, as `matmul` does.
        out = torch.einsum("bhtnij,bhtnj->bhtni", matrix.to(compute), rotary).flatten(-2).to(x.dtype)
    return torch.cat([out, rest], -1) if rest.shape[-1] else out
