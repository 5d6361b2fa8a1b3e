"""Two-layer ReLU networks."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.inputs import Inputs
from lengthwise.tasks.functions.prompts import MAX_WIDTH, Functions
from lengthwise.tasks.functions.regression import Regression
from lengthwise.values import require_at_most, require_integer


class ReLUNetwork(Regression):
    """y = √(2 / r) Σ_j a_j max(0, w_j·x), a network with r = `width` hidden units whose w and a are drawn from N(0, 1). `length`
    counts the examples. Of 3 examples in 2 dims, the network being r = 2, w = (1, 0), (1, -1), a = (1, 2):

        (1.00, 0.00) -> 3.00; (0.00, 1.00) -> 0.00; (2.00, 1.00) -> ?        target  4.00

    Labels have the variance of linear regression. `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 5.
    """

    def __init__(
        self,
        *,
        dims: int = 16,
        width: int = 100,
        noise: float = 0.0,
        inputs: Inputs = "normal",
        input_scale: float = 1.0,
        label_scale: float = 1.0,
    ):
        self.width = width
        super().__init__(dims=dims, noise=noise, inputs=inputs, input_scale=input_scale, label_scale=label_scale)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_integer(cls.__name__, 1, width=settings["width"])
        require_at_most(cls.__name__, MAX_WIDTH, width=settings["width"])
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, r, d] and a [b, r]."""
        w = torch.randn(count, self.width, self.dims, generator=generator)
        return w, torch.randn(count, self.width, generator=generator)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        w, a = functions
        return math.sqrt(2 / a.shape[1]) * ((xs @ w.mT).relu() @ a[..., None])[..., 0]
