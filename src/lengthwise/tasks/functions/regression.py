"""Real functions to learn in context: linear and quadratic ones, decision trees and networks.

Their inputs may have another distribution in tests than in training. x ~ N(0, I) with d coordinates becomes, with a
random basis U and λ normalised so that Σ λ² = d:

    "half-subspace"  U diag(λ) Uᵀ x, λ the same for ⌊d/2⌋ directions and 0 for the others
    "skewed"         U diag(λ) Uᵀ x, λ_i ∝ 1/i
    "quadrants"      all inputs but the last lie in one random orthant
    "orthogonal"     the last input is projected to be orthogonal to all others, and keeps its norm
    "overlapping"    the last input equals one of the others

Source: Garg et al. 2022, section 4 and appendix B. Differs: every prompt has its own basis; the published code draws
one for a whole test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.metrics import SQUARED_ERROR
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.prompts import LINEAR_BASELINES, MAX_WIDTH, Functions, FunctionTask, random_subset

Inputs = Literal["normal", "half-subspace", "skewed", "quadrants", "orthogonal", "overlapping"]
LAST = ("quadrants", "orthogonal", "overlapping")  # the last input has another distribution than those before it


def mix_covariance(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Change the eigenvalues of the inputs' covariance, in a random basis for each prompt."""
    count, _, dims = xs.shape
    if kind == "half-subspace":
        values = (torch.arange(dims) < dims // 2).double()
    else:
        values = 1 / torch.arange(1, dims + 1, dtype=torch.float64)
    values *= math.sqrt(dims) / values.norm()
    basis = torch.linalg.qr(torch.randn(count, dims, dims, generator=generator, dtype=torch.float64)).Q
    return (xs.double() @ (basis * values) @ basis.mT).float()


def change_last(generator: torch.Generator, xs: Float[Tensor, "b n d"], kind: str) -> Float[Tensor, "b n d"]:
    """Give the last input another distribution than the inputs before it, by changing the one or the others."""
    count, length, dims = xs.shape
    if length == 1:
        return xs
    before, last = xs[:, :-1], xs[:, -1:]
    if kind == "quadrants":
        before = before.abs() * (torch.randint(2, (count, 1, dims), generator=generator) * 2 - 1)
    elif kind == "orthogonal":
        last = _orthogonal_part(before.double(), last.double()).float()
    else:
        index = torch.randint(length - 1, (count,), generator=generator)
        last = before[torch.arange(count), index][:, None]
    return torch.cat([before, last], 1)


def _orthogonal_part(before: Float[Tensor, "b m d"], last: Float[Tensor, "b one d"]) -> Float[Tensor, "b one d"]:
    """Return the part of `last` that is orthogonal to `before`, scaled to the norm of `last`."""
    basis = torch.linalg.qr(before.mT).Q
    residual = last
    for _ in range(2):  # the second projection removes rounding errors of the first
        residual = residual - residual @ basis @ basis.mT
    return residual * last.norm(dim=-1, keepdim=True) / residual.norm(dim=-1, keepdim=True)


MAX_SCALE = 1e6  # the smallest scale is its inverse


@dataclass(kw_only=True, eq=False, repr=False)
class Regression(FunctionTask):
    """Real functions of x ~ N(0, I). Loss and score are the squared error of a prediction.

    y = label_scale · f(x) + noise · ε, where x is input_scale times a draw of `inputs`, and ε ~ N(0, 1) for every label
    including the predicted one. A test can differ from training in these settings (`EvaluationConfig.shifts`):

    - `inputs`: "normal", "half-subspace", "skewed", "quadrants", "orthogonal" or "overlapping", see the top of this
      file. With the last three the last input has another distribution than those before it, so every length has its
      own prompts; with "orthogonal" a prompt has at most `dims` examples.
    - `input_scale`, `label_scale`: above 0; the published tests use 0.333, 0.5, 2 and 3 for one of them at a time.
    - `noise`: the standard deviation. The published noise test (standard deviation 1, labels rescaled to variance d)
      corresponds to noise = label_scale = √(d / (d + 1)).

    Source: Garg et al. 2022, sections 3 and 4.
    """

    metric = SQUARED_ERROR
    baseline_names: ClassVar[Sequence[str]] = (*LINEAR_BASELINES, "3 nearest neighbours", "mean label", "zero")

    noise: float = 0.0
    inputs: Inputs = "normal"
    input_scale: float = 1.0
    label_scale: float = 1.0

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings, name = super().check(settings), cls.__name__
        inputs, noise = settings["inputs"], settings["noise"]
        if inputs == "half-subspace" and settings["dims"] < 2:
            raise ConfigError(f"{name}: dims must be at least 2 with inputs='half-subspace', got {settings['dims']}")
        if not 0 <= noise <= MAX_SCALE:
            raise ConfigError(
                f"{name}: noise, a standard deviation, must be between 0 and {MAX_SCALE:,.0f}, got {noise}"
            )
        for scale in ("input_scale", "label_scale"):
            if not 1 / MAX_SCALE <= settings[scale] <= MAX_SCALE:
                raise ConfigError(
                    f"{name}: {scale} must be between {1 / MAX_SCALE:g} and {MAX_SCALE:,.0f}, so that squares fit into "
                    f"float32, got {settings[scale]}"
                )
        return settings

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        self._require_room(length, dims)
        xs = self._inputs(generator, count, length, dims)
        ys = self.label_scale * self.apply(self.functions(generator, count, dims), xs)
        if self.noise:
            ys = ys + self.noise * torch.randn(ys.shape, generator=generator)
        return xs, ys

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Return the mean squared error of all predictions."""
        return (self.predictions(logits).float() - self.examples_of(batch)[1]).square().mean()

    def score_predictions(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted - ys).square()

    def prefixes_are_examples(self) -> bool:
        return self.inputs not in LAST

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        self._require_room(length, self.dims)

    def _inputs(self, generator: torch.Generator, count: int, length: int, dims: int) -> Float[Tensor, "b n d"]:
        xs = torch.randn(count, length, self.dims, generator=generator)
        if self.inputs in ("half-subspace", "skewed"):
            xs = mix_covariance(generator, xs, self.inputs)
        xs[:, :, dims:] = 0
        if self.inputs in LAST:
            xs = change_last(generator, xs, self.inputs)
        return xs * self.input_scale

    def _require_room(self, length: int, dims: int) -> None:
        if self.inputs == "orthogonal" and length > dims:
            raise ConfigError(
                f"length must be at most {dims} for {type(self).__name__} with inputs='orthogonal' and {dims} open "
                f"dims, got {length}: no more inputs can be orthogonal"
            )


class LinearRegression(Regression):
    """y = w·x, w ~ N(0, I). `length` counts the examples. Of 3 examples in 2 dims, the function being w = (1.5, -2):

        (1.00, 0.00) -> 1.50; (0.00, 1.00) -> -2.00; (1.00, 1.00) -> ?        target  -0.50

    Least squares (of minimum norm if several solutions fit) has an expected squared error of max(dims - i, 0) after i
    examples. `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 3.
    """

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        return (torch.randn(count, self.dims, 1, generator=generator)[..., 0],)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        (w,) = functions
        return (xs @ w[..., None])[..., 0]


@dataclass(kw_only=True, eq=False, repr=False)
class SparseLinearRegression(LinearRegression):
    """y = w·x, w ~ N(0, I) at `nonzero` random coordinates, 0 at the others. `length` counts the examples. Of 3
    examples in 3 dims, the function being w = (0, -2, 0):

        (1.00, 1.00, 0.00) -> -2.00; (0.00, 0.00, 1.00) -> 0.00; (1.00, 0.50, 0.00) -> ?        target  -1.00

    While a curriculum has only some coordinates open, the nonzero weights are chosen among them (all, while fewer than
    `nonzero` are open). `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 4.
    Differs: during a curriculum, the code of the study of position encodings chooses among all coordinates, so most of
    its first labels are 0.
    """

    baseline_names = (*LINEAR_BASELINES, "3 nearest neighbours", "lasso", "mean label", "zero")
    at_most_dims = ("nonzero",)

    nonzero: int = 3

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, d]."""
        (w,) = super().functions(generator, count, dims)
        return (w * random_subset(generator, count, min(self.nonzero, dims), dims, self.dims),)


class QuadraticRegression(LinearRegression):
    """y = Σ w_i x_i² / √3, w ~ N(0, I), with the label variance of linear regression. `length` counts the examples. Of
    3 examples in 2 dims, the function being w = (1, -2):

        (1.00, 0.00) -> 0.58; (0.00, 1.00) -> -1.15; (2.00, 1.00) -> ?        target  1.15

    `Regression` describes noise and other inputs.

    Source: the code of Garg et al. 2022.
    """

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        return super().apply(functions, xs.square()) / math.sqrt(3)


MAX_DEPTH = 16  # 65,536 leaves for every prompt


@dataclass(kw_only=True, eq=False, repr=False)
class DecisionTree(Regression):
    """y is the value of the leaf that x reaches in a full binary tree of the given `depth`. `length` counts the
    examples. Of 3 examples in 2 dims, the tree of depth 2 being "x_1 > 0? no: x_2 > 0? (leaves 1, 2); yes: x_2 > 0?
    (leaves 3, 4)":

        (1.00, -1.00) -> 3.00; (-0.50, 2.00) -> 2.00; (-2.00, -0.10) -> ?        target  1.00

    Each inner node tests whether a coordinate is above 0; the coordinate is uniform over all (open) ones. The value of
    each leaf is drawn from N(0, 1). `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 5. Differs: while a curriculum has only some coordinates open, the published code
    tests all of them.
    """

    largest: ClassVar = {"depth": MAX_DEPTH}

    depth: int = 4

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw the coordinates that inner nodes test [b, 2^depth - 1], and the values of the leaves [b, 2^depth].

        Node 0 is the root, and the children of node n are 2n + 1 (no) and 2n + 2 (yes). Leaves are ordered from no, no,
        ... to yes, yes, ...
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


@dataclass(kw_only=True, eq=False, repr=False)
class ReLUNetwork(Regression):
    """y = √(2 / r) Σ_j a_j max(0, w_j·x), a network with r = `width` hidden units whose w and a are drawn from N(0, 1).
    `length` counts the examples. Of 3 examples in 2 dims, the network being r = 2, w = (1, 0), (1, -1), a = (1, 2):

        (1.00, 0.00) -> 3.00; (0.00, 1.00) -> 0.00; (2.00, 1.00) -> ?        target  4.00

    Labels have the variance of linear regression. `Regression` describes noise and other inputs.

    Source: Garg et al. 2022, section 5.
    """

    largest: ClassVar = {"width": MAX_WIDTH}
    version: ClassVar[int] = 2

    width: int = 100

    def functions(self, generator: torch.Generator, count: int, dims: int) -> Functions:
        """Draw w [b, r, d] and a [b, r]."""
        w = torch.randn(count, self.width, self.dims, generator=generator)
        return w, torch.randn(count, self.width, generator=generator)

    def apply(self, functions: Functions, xs: Float[Tensor, "b n d"]) -> Float[Tensor, "b n"]:
        w, a = (
            tensor.double() for tensor in functions
        )  # in float32, processors differ in the last digits of these sums
        sums = (xs.double() @ w.mT).relu() @ a[..., None]
        return (math.sqrt(2 / a.shape[1]) * sums[..., 0]).to(xs.dtype)
