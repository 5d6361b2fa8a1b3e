"""`Product`, the base class of forms that take the place of the product of a rotated query and a rotated key."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.forms.base import AxisFunctions, CallSizes, Form
from lengthwise.forms.rotation import Rotation, rotated_product
from lengthwise.span import Span

BLOCK = 64  # keys


class Product(Form, ABC):
    """A product of queries and keys. Backends multiply it by the scale."""

    @abstractmethod
    def dense(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span) -> Float[Tensor, "b h i j"]:
        """Return the product of every query and key, in float32 or higher."""

    @abstractmethod
    def unsupported_reason(self, kernel: str) -> str:
        """Return why a kernel that has one product of all queries and keys cannot compute this one."""

    def in_blocks(self, k: Float[Tensor, "b h j d"], queries: int) -> "ProductBlocks | None":
        """Return a way to compute the product for some queries at a time, in the dtype of k; None: `dense` is one.

        The queries are the last `queries` tokens.
        """
        return None


class ProductBlocks(ABC):
    """The products of blocks of queries and their keys, with memory in proportion to the number of keys.

    Keys are divided into blocks. What does not depend on queries is computed once for each block, and a block of
    queries walks back over the blocks of its keys. The queries are the last tokens.
    """

    def __init__(self, documents: Tensor | None, queries: int, keys: int):
        self.documents, self.first_query, self.keys = documents, keys - queries, keys

    @abstractmethod
    def logits(self, q: Float[Tensor, "b h i d"], rows: slice, keys: slice) -> Float[Tensor, "b h i j"]:
        """Return the products of `q`, the queries `rows`, and the keys `keys`, which end with the last query."""

    def blocks(self, keys: slice) -> list[tuple[int, slice]]:
        """Return the number of every block with some of the keys, in ascending order, and the indices of its keys."""
        numbers = range(keys.start // BLOCK, -(-keys.stop // BLOCK))
        return [(n, slice(n * BLOCK, min((n + 1) * BLOCK, self.keys))) for n in numbers]

    def same_document(self, one: slice, other: slice) -> Tensor | None:
        """Return whether tokens belong to the same document, [b|1, one, other]. None: all do."""
        if self.documents is None:
            return None
        return self.documents[:, one, None] == self.documents[:, None, other]


@dataclass(frozen=True)
class PiecewiseRotation(Product):
    """Rotate q and k of each pair by one of several rotations, for maps of distances such as Self-Extend.

    `region(q, k)` returns the index of the rotation of every pair, [b|1, i, j], from the position IDs of queries [b|1,
    i] and keys [b|1, j], which may be those of a part of the call. So the product of a pair is the one that its own
    rotation gives alone.
    """

    rotations: tuple[Rotation, ...]
    region: Callable[[Tensor, Tensor], Tensor]
    bidirectional: bool = False

    cost = ("cosines and sines for each position, pair and region: O(n d)", "O(h n² d) for each region")

    def dense(self, q: Float[Tensor, "b h i d"], k: Float[Tensor, "b h j d"], span: Span) -> Float[Tensor, "b h i j"]:
        region = self.region(span.q, span.k)[:, None]
        out = rotated_product(self.rotations[0], q, k)
        for n, rotation in enumerate(self.rotations[1:], 1):
            out = torch.where(region == n, rotated_product(rotation, q, k), out)
        return out

    def unsupported_reason(self, kernel: str) -> str:
        return f"PiecewiseRotation needs several products of q and k, and {kernel} has one"

    def map_axes(self, functions: AxisFunctions) -> "PiecewiseRotation":
        return replace(self, rotations=tuple(rotation.map_axes(functions) for rotation in self.rotations))

    def check(self, sizes: CallSizes) -> None:
        for rotation in self.rotations:
            rotation.check(sizes)
