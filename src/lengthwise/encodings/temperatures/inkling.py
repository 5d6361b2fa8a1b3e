"""Inkling: a factor of all logits, including biases, that grows with the logarithm of the position."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings.arguments import require_positive
from lengthwise.encodings.temperatures.base import Temperature


class Inkling(Temperature):
    """Every logit of query i, including biases, is multiplied by 1 + strength · ln(max(1, (i + 1) / length)).

    The factor is exactly 1 at the first `length` positions. i is the query's position ID. Nothing is learned. The other
    temperatures multiply the product of query and key only, and not a bias.

    Beyond the training length: the factor grows with the logarithm.

    Source: Thinking Machines Lab 2026, the Inkling model, which has this factor in the layers without a window, beside a
    [banded bias](banded_bias.md); no paper is known.
    Code: huggingface/transformers, models/inkling (`log_scaling_alpha` is `strength`, `log_scaling_n_floor` is `length`).
    Differs: transformers counts the tokens of the row instead of reading the position IDs, so padding on the left and packed
    documents change its factors. Its default has no factor at all; the default of `length` here is ours.

    >>> Inkling(strength=1.0, length=4.0).factor(torch.tensor([[0.0, 3.0, 7.0]]))      # 1, 1, 1 + ln 2
    tensor([[[1.0000, 1.0000, 1.6931]]])
    """

    conformance_settings: ClassVar[dict[str, Any]] = {"length": 4.0}  # with the default, short texts have no factor
    scales_terms: ClassVar[bool] = True

    def __init__(self, *, strength: float = 0.1, length: float = 8192.0):
        super().__init__()
        require_positive("Inkling", strength=strength, or_zero=True)
        require_positive("Inkling", length=length)
        self.strength, self.length = strength, length

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return (1 + self.strength * ((position + 1) / self.length).clamp(min=1).log())[:, None]
