"""Quadratic regression."""

import math

from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.prompts import Functions


class QuadraticRegression(LinearRegression):
    """y = Σ w_i x_i² / √3, w ~ N(0, I), with the label variance of linear regression. `length` counts the examples. Of 3
    examples in 2 dims, the function being w = (1, -2):

        (1.00, 0.00) -> 0.58; (0.00, 1.00) -> -1.15; (2.00, 1.00) -> ?        target  1.15

    `Regression` describes noise and other inputs.

    Source: the code of Garg et al. 2022.
    """

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        return super().apply(functions, xs.square()) / math.sqrt(3)
