"""Linear regression with few weights."""

from typing import Any

import torch

from lengthwise.tasks.functions.inputs import Inputs
from lengthwise.tasks.functions.linear import LinearRegression
from lengthwise.tasks.functions.prompts import Functions, chosen, require_room


class SparseLinearRegression(LinearRegression):
    """y = w·x, w ~ N(0, I) at `nonzero` random coordinates, 0 at the others. `length` counts the examples. Of 3 examples in 3
    dims, the function being w = (0, -2, 0):

        (1.00, 1.00, 0.00) -> -2.00; (0.00, 0.00, 1.00) -> 0.00; (1.00, 0.50, 0.00) -> ?        target  -1.00

    While a curriculum has only some coordinates open, those of w are chosen among them (all, while fewer than `nonzero` are
    open). Noise, and other inputs than normal ones: see `Regression`.

    Source: Garg et al. 2022, section 4.
    Differs: the program of the study of position encodings chooses among all coordinates in the curriculum too, and most of
    its first labels are 0.
    """

    baseline_names = ("least squares", "averaging", "3 nearest neighbours", "lasso", "mean label", "zero")

    def __init__(
        self,
        *,
        dims: int = 16,
        nonzero: int = 3,
        noise: float = 0.0,
        inputs: Inputs = "normal",
        input_scale: float = 1.0,
        label_scale: float = 1.0,
    ):
        self.nonzero = nonzero
        super().__init__(dims=dims, noise=noise, inputs=inputs, input_scale=input_scale, label_scale=label_scale)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        require_room(cls.__name__, settings, "nonzero")
        return settings

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """w [b, d]."""
        (w,) = super().functions(generator, count, dims)
        return (w * chosen(generator, count, min(self.nonzero, dims), dims, self.dims),)
