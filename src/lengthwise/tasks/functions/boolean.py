"""The base class of Boolean functions: inputs of -1 and +1, labels -1 and +1, scored by accuracy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from lengthwise.config import ConfigError
from lengthwise.metrics import ACCURACY
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.prompts import LINEAR_BASELINES, Functions, FunctionTask

CONSTANT_BASELINES = ("always −1", "best constant label")
# Conjunctions, disjunctions and majorities have one neighbour, as published.
ONE_NEIGHBOUR = (*LINEAR_BASELINES, "nearest neighbour", *CONSTANT_BASELINES)


@dataclass(kw_only=True, eq=False, repr=False)
class BooleanFunction(FunctionTask):
    """Boolean functions of x uniform in {-1, +1}^d, with labels -1 and +1. Readable text shows them as bits 0 and 1.

    The loss is the binary cross-entropy of σ(z) against (y + 1) / 2 for a prediction z. The score is accuracy: whether
    sign(z) is y; a prediction of exactly 0 is wrong.

    `noise`: the probability that a label is flipped, independently for each label including the predicted one; at most
    1/2. All coordinates are always open: a curriculum can raise the length but not the dims (as in the published code).

    Source: Bhattamishra et al. 2023, "Understanding In-Context Learning in Transformers and LLMs by Learning to Learn
    Discrete Functions", and its code.
    """

    metric = ACCURACY
    baseline_names: ClassVar[Sequence[str]] = (*LINEAR_BASELINES, "3 nearest neighbours", *CONSTANT_BASELINES)

    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.curriculum_dims = None

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        if not 0 <= settings["noise"] <= 0.5:
            raise ConfigError(
                f"{cls.__name__}: noise, the probability that a label is flipped, must be between 0 and 0.5, got "
                f"{settings['noise']}"
            )
        return settings

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        functions = self.functions(generator, count, dims)
        xs = self.inputs_for(generator, functions, length)
        ys = self.apply(self.label_functions(generator, functions), xs)
        if self.noise:
            ys = torch.where(torch.rand(ys.shape, generator=generator) < self.noise, -ys, ys)
        return xs, ys

    def inputs_for(self, generator: torch.Generator, functions: Functions, length: int) -> Float[Tensor, "b n d"]:
        """Draw the inputs of each prompt."""
        bits = torch.randint(2, (len(functions[0]), length, self.dims), generator=generator)
        return (bits * 2 - 1).float()

    def label_functions(self, generator: torch.Generator, functions: Functions) -> Functions:
        """Return the functions that label the inputs: by default those for which the inputs were drawn."""
        return functions

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Return the mean binary cross-entropy of all predictions, in nats."""
        _, ys = self.examples_of(batch)
        return binary_cross_entropy_with_logits(self.predictions(logits).float(), (ys + 1) / 2)

    def score_predictions(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted.sign() == ys).double().masked_fill(predicted.isnan(), torch.nan)

    def input_text(self, x: list[float]) -> str:
        return " ".join(map(self.label_text, x))

    def label_text(self, y: float) -> str:
        return "1" if y > 0 else "0"


def literals(
    generator: torch.Generator, count: int, dims: int, probability: float, *, negated: bool = True
) -> Float[Tensor, "b d"]:
    """Draw rows of w: each coordinate is nonzero with this probability, then +1, or also -1 if `negated`."""
    uniform = torch.rand(count, dims, generator=generator)
    signs = 1 - 2.0 * (uniform < probability / 2) if negated else 1.0
    return (uniform < probability) * signs


def draw_rows(draw: Callable[[int], Float[Tensor, "b d"]], count: int, resample_empty: bool) -> Float[Tensor, "b d"]:
    """Draw `count` rows of w. With `resample_empty`, rows of zeros are drawn again."""
    w = draw(count)
    while resample_empty and (empty := ~w.any(1)).any():
        w[empty] = draw(int(empty.sum()))
    return w
