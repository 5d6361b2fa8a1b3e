"""Linear regression."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.regression import Regression


class LinearRegression(Regression):
    """y = w·x, w ~ N(0, I). `length` counts the examples. Of 3 examples in 2 dims, the function being w = (1.5, -2):

        (1.00, 0.00) -> 1.50; (0.00, 1.00) -> -2.00; (1.00, 1.00) -> ?        target  -0.50

    Least squares (the least norm where several fit) has an expected squared error of max(dims - i, 0) after i examples.

    Source: Garg et al. 2022, section 3.
    """

    def __init__(self, *, dims: int = 16):
        super().__init__(dims=dims)

    def label(self, generator: torch.Generator, xs: Float[Tensor, "b n d"], dims: int) -> Float[Tensor, "b n"]:
        w = torch.randn(len(xs), self.dims, 1, generator=generator)
        return (xs @ w)[..., 0]
