"""Boolean functions of a weighted sum: thresholds, halfspaces, majorities and parities."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.tasks.functions.boolean import ONE_NEIGHBOUR, BooleanFunction, draw_rows, literals
from lengthwise.tasks.functions.prompts import Functions, random_subset


@dataclass(kw_only=True, eq=False, repr=False)
class WeightedFunction(BooleanFunction):
    """y = sign(w·x - 1/2) with integer weights w, unless a subclass defines another function of w. The inputs are
    uniform.

    `resample_empty`: draw functions again whose weights are all 0, because they are constant. The published code keeps
    them (False).
    """

    resample_empty: bool = True

    @abstractmethod
    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        """Draw w for each function; it may be 0 everywhere."""

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (draw_rows(lambda rows: self.weights(generator, rows), count, self.resample_empty),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return ((xs @ w[..., None])[..., 0] - 0.5).sign()


class Threshold(WeightedFunction):
    """0-1 threshold: y = sign(w·x - b), where each w_i is 0, +1 or -1. `length` counts the examples. Of 3 examples in 5
    dims, the function being w = (1, 0, -1, 0, 1), b = 1/2:

        1 1 0 0 0 -> 1; 1 0 1 1 0 -> 0; 0 1 1 0 0 -> ?        target  0

    Each w_i is 0 with probability 0.7, and +1 or -1 with probability 0.15 each; b is uniform over -5/2, -3/2, -1/2,
    1/2, 3/2, 5/2. Functions with w = 0 are constant, see `WeightedFunction`. A few others, with |w|_1 less than |b|,
    are constant too and are never drawn again. P(y = 1) = 1/2.

    Source: Bhattamishra et al. 2023 and its code. Differs: the thesis on position encodings says that b is one of -3
    ... 3; its code draws half-integers.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.3)

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d] and b [b]."""
        return *super().functions(generator, count, dims), torch.randint(-3, 3, (count,), generator=generator) + 0.5

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        w, b = functions
        return ((xs @ w[..., None])[..., 0] - b[:, None]).sign()


LARGEST = 3


class IntegerHalfspace(WeightedFunction):
    """y = sign(w·x - 1/2), with each w_i uniform in -3 ... 3. `length` counts the examples. Of 3 examples in 5 dims,
    the function being w = (3, -2, 1, 0, -1):

        1 1 0 0 0 -> 1; 0 0 1 1 1 -> 0; 0 1 1 0 0 -> ?        target  0

    P(y = 1) is 0.475 at 16 dims and 0.478 at 20.

    Source: Bhattamishra et al. 2023 and its code.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return torch.randint(-LARGEST, LARGEST + 1, (count, self.dims), generator=generator).float()


class SparseMajority(WeightedFunction):
    """More than half of a random set of coordinates are true; a tie is false. `length` counts the examples. Of 3
    examples in 5 dims, the function being the majority of x_1, x_2 and x_4:

        1 1 0 0 0 -> 1; 0 0 1 1 1 -> 0; 0 1 1 0 0 -> ?        target  0

    y = sign(w·x - 1/2); each coordinate is in the set with probability 0.3, and none is negated. The majority of an
    empty set (0.33 % of the published functions at 16 dims) is never true, see `WeightedFunction`. P(y = 1) is 0.410 at
    16 dims and 0.419 at 20 (0.409 and 0.418 with empty sets).

    Source: Bhattamishra et al. 2023 and its code. Differs: the thesis on position encodings shows a majority with a
    negated coordinate; its code has none.
    """

    baseline_names = ONE_NEIGHBOUR

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.3, negated=False)


def odd(w: Float[Tensor, "b d"], xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
    """Return +1 if the number of +1 among the coordinates of w is odd, else -1."""
    ones = ((xs > 0).float() @ w[..., None])[..., 0]
    return 2 * (ones % 2) - 1


class ParityFunction(WeightedFunction):
    """The number of ones among a random set of coordinates is odd. `length` counts the examples. Of 3 examples in 5
    dims, the function being the parity of x_1, x_2 and x_3:

        1 1 0 0 0 -> 0; 0 0 1 1 1 -> 1; 0 1 1 0 0 -> ?        target  0

    Every set of coordinates is equally likely: each coordinate is in it with probability 1/2. P(y = 1) = 1/2, but 0 for
    the empty set (see `WeightedFunction`). Not to be confused with `Parity`, the parity of the bits of one sequence.

    Source: Bhattamishra et al. 2023 and its code.
    """

    def weights(self, generator: torch.Generator, count: int) -> Float[Tensor, "b d"]:
        return literals(generator, count, self.dims, 0.5, negated=False)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return odd(w, xs)


@dataclass(kw_only=True, eq=False, repr=False)
class SparseParity(BooleanFunction):
    """The number of ones among `bits` coordinates is odd. `length` counts the examples. Of 3 examples in 5 dims, the
    function being the parity of x_2 and x_5:

        1 1 0 0 1 -> 0; 0 0 1 1 1 -> 1; 0 1 1 0 0 -> ?        target  1

    The coordinates are uniform without repetition. P(y = 1) = 1/2.

    Source: Bhattamishra et al. 2023 and its code.
    """

    at_most_dims = ("bits",)

    bits: int = 2

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (random_subset(generator, count, self.bits, self.dims, self.dims),)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return odd(w, xs)
