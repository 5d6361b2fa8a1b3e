"""Decision trees."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.inputs import Inputs
from lengthwise.tasks.functions.prompts import Functions
from lengthwise.tasks.functions.regression import Regression
from lengthwise.values import require_most, require_whole

DEEPEST = 16  # 65,536 leaves for every prompt


class DecisionTree(Regression):
    """y is the number at the leaf that x comes to, in a full binary tree of `depth` questions. `length` counts the examples. Of
    3 examples in 2 dims, the tree of depth 2 being "x_1 > 0? no: x_2 > 0? (leaves 1, 2); yes: x_2 > 0? (leaves 3, 4)":

        (1.00, -1.00) -> 3.00; (-0.50, 2.00) -> 2.00; (-2.00, -0.10) -> ?        target  1.00

    Each inner node asks whether a coordinate is above 0, the coordinate uniform among all (open) ones; each leaf holds a number
    of its own from N(0, 1). Noise, and other inputs than normal ones: see `Regression`.

    Source: Garg et al. 2022, section 5. Differs: while a curriculum has only some coordinates open, the published program asks
    of all of them.
    """

    def __init__(
        self,
        *,
        dims: int = 16,
        depth: int = 4,
        noise: float = 0.0,
        inputs: Inputs = "normal",
        input_scale: float = 1.0,
        label_scale: float = 1.0,
    ):
        self.depth = depth
        super().__init__(dims=dims, noise=noise, inputs=inputs, input_scale=input_scale, label_scale=label_scale)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_whole(cls.__name__, 1, depth=settings["depth"])
        require_most(cls.__name__, DEEPEST, depth=settings["depth"])
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """The coordinates that inner nodes ask for [b, 2^depth - 1], node 0 the root, the children of node n being 2n + 1 (no) and
        2n + 2 (yes); and the numbers of the leaves [b, 2^depth], from no, no, ... to yes, yes, ..."""
        leaves = 2**self.depth
        asked = torch.randint(dims, (count, leaves - 1), generator=generator)
        return asked, torch.randn(count, leaves, generator=generator)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        asked, leaves = functions
        node = torch.zeros(xs.shape[:2], dtype=torch.long)
        for _ in range(self.depth):
            at = xs.gather(2, asked.gather(1, node)[..., None])[..., 0]
            node = 2 * node + 1 + (at > 0)
        return leaves.gather(1, node - (leaves.shape[1] - 1))
