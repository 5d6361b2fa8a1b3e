"""Decision trees."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.prompts import Functions
from lengthwise.tasks.functions.regression import Regression

MAX_DEPTH = 16  # 65,536 leaves for every prompt


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTree(Regression):
    """y is the value of the leaf that x reaches in a full binary tree of the given `depth`. `length` counts the examples. Of 3
    examples in 2 dims, the tree of depth 2 being "x_1 > 0? no: x_2 > 0? (leaves 1, 2); yes: x_2 > 0? (leaves 3, 4)":

        (1.00, -1.00) -> 3.00; (-0.50, 2.00) -> 2.00; (-2.00, -0.10) -> ?        target  1.00

    Each inner node tests whether a coordinate is above 0; the coordinate is uniform over all (open) ones. The value of each leaf is
    drawn from N(0, 1). `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 5. Differs: while a curriculum has only some coordinates open, the published code tests all of
    them.
    """

    largest: ClassVar = {"depth": MAX_DEPTH}

    depth: int = 4

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw the coordinates that inner nodes test [b, 2^depth - 1], and the values of the leaves [b, 2^depth].

        Node 0 is the root, and the children of node n are 2n + 1 (no) and 2n + 2 (yes). Leaves are ordered from no, no, ... to
        yes, yes, ...
        """
        num_leaves = 2**self.depth
        coordinates = torch.randint(dims, (count, num_leaves - 1), generator=generator)
        return coordinates, torch.randn(count, num_leaves, generator=generator)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        coordinates, leaves = functions
        node = torch.zeros(xs.shape[:2], dtype=torch.long)
        for _ in range(self.depth):
            value = xs.gather(2, coordinates.gather(1, node)[..., None])[..., 0]
            node = 2 * node + 1 + (value > 0)
        return leaves.gather(1, node - (leaves.shape[1] - 1))
