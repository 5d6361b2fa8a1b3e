"""Linear regression."""

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.prompts import Functions
from lengthwise.tasks.functions.regression import Regression


class LinearRegression(Regression):
    """y = w·x, w ~ N(0, I). `length` counts the examples. Of 3 examples in 2 dims, the function being w = (1.5, -2):

        (1.00, 0.00) -> 1.50; (0.00, 1.00) -> -2.00; (1.00, 1.00) -> ?        target  -0.50

    Least squares (of minimum norm if several solutions fit) has an expected squared error of max(dims - i, 0) after i examples.
    `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 3.
    """

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (torch.randn(count, self.dims, 1, generator=generator)[..., 0],)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return (xs @ w[..., None])[..., 0]
