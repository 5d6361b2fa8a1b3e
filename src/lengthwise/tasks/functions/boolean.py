"""What classes of Boolean functions have in common: inputs of -1 and +1, labels -1 and +1, and accuracy."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from lengthwise.config import ConfigError
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions.prompts import Functions, FunctionTask

OTHERS = ("least squares", "averaging"), ("always −1", "best constant label")  # baselines
ONE_NEIGHBOUR = (
    *OTHERS[0],
    "nearest neighbour",
    *OTHERS[1],
)  # of conjunctions, disjunctions and majorities, as published


class BooleanFunction(FunctionTask):
    """Boolean functions of x uniform in {-1, +1}^d, with labels -1 and +1; bits 0 and 1 where people read them.

    Loss: the binary cross-entropy of σ(z) against (y + 1) / 2, z being the prediction. Score: accuracy, whether sign(z) is y; a
    prediction of exactly 0 is wrong.

    `noise`: the probability that a label says the opposite, each for itself, the asked one too; at most 1/2.
    Every coordinate is always open: a curriculum may grow the length, and not the dims (published code leaves Boolean inputs
    whole too).

    Source: Bhattamishra et al. 2023, "Understanding In-Context Learning in Transformers and LLMs by Learning to Learn Discrete
    Functions", and its program.
    """

    metric = "accuracy"
    better = "higher"
    baseline_names: ClassVar[tuple[str, ...]] = (*OTHERS[0], "3 nearest neighbours", *OTHERS[1])

    def __init__(self, *, dims: int = 16, noise: float = 0.0):
        self.noise = noise
        super().__init__(dims=dims)
        self.curriculum_dims = None

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        settings = super().check(settings)
        if not 0 <= settings["noise"] <= 0.5:
            raise ConfigError(
                f"{cls.__name__}: noise is {settings['noise']}; it is the probability that a label says the opposite, and has "
                "to lie in 0 ... 0.5"
            )
        return settings

    def draw(
        self, generator: torch.Generator, count: int, length: int, dims: int
    ) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n"]]:
        functions = self.functions(generator, count, dims)
        xs = self.inputs_for(generator, functions, length)
        ys = self.apply(self.labelling(generator, functions), xs)
        if self.noise:
            ys = torch.where(torch.rand(ys.shape, generator=generator) < self.noise, -ys, ys)
        return xs, ys

    def inputs_for(self, generator: torch.Generator, functions: Functions, length: int) -> Float[Tensor, "b n d"]:
        """The inputs of each prompt."""
        bits = torch.randint(2, (len(functions[0]), length, self.dims), generator=generator)
        return (bits * 2 - 1).float()

    def labelling(self, generator: torch.Generator, functions: Functions) -> Functions:
        """The functions that label the inputs: those that they were drawn for."""
        return functions

    def loss(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, ""]:
        """Mean binary cross-entropy of all predictions, in nats."""
        _, ys = self.examples_of(batch)
        return binary_cross_entropy_with_logits(self.predictions(logits).float(), (ys + 1) / 2)

    def worth(self, predicted: Float[Tensor, "b n"], ys: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
        return (predicted.sign() == ys).double().masked_fill(predicted.isnan(), torch.nan)

    def written(self, x: list[float]) -> str:
        return " ".join(map(self.label_text, x))

    def label_text(self, y: float) -> str:
        return "1" if y > 0 else "0"


def literals(
    generator: torch.Generator, count: int, dims: int, chance: float, *, negated: bool = True
) -> Float[Tensor, "b d"]:
    """Rows of w: each coordinate occurs with probability `chance`, as +1 or, where literals may be negated, as -1 as often."""
    drawn = torch.rand(count, dims, generator=generator)
    signs = 1 - 2.0 * (drawn < chance / 2) if negated else 1.0
    return (drawn < chance) * signs


def not_empty(draw: Callable[[int], Float[Tensor, "b d"]], count: int, again: bool) -> Float[Tensor, "b d"]:
    """`count` rows of w; those that are 0 throughout are drawn anew if `again`."""
    w = draw(count)
    while again and (empty := ~w.any(1)).any():
        w[empty] = draw(int(empty.sum()))
    return w
