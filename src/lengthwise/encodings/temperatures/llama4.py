"""Llama4: a factor of the logits that grows in steps, each of many positions."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.temperatures.base import Temperature


class Llama4(Temperature):
    """The scaled product of query i with every key is multiplied by 1 + strength · ln(1 + floor((i + 1) / step)).

    The factor is exactly 1 at the first `step` - 1 positions. i is the query's position ID. Nothing is learned.

    Beyond the training length: the factor grows with the logarithm, in steps.

    Source: Meta 2025, the Llama 4 models, which have this factor in the layers without rotation.
    Code: huggingface/transformers, models/llama4 (`attn_scale` is `strength`, `floor_scale` is `step`).
    Differs: transformers counts the tokens of the row instead of reading the position IDs. So the factors of a row that is padded
    on the left, or of packed documents, are those of later positions.

    >>> Llama4(strength=1.0, step=4).factor(torch.tensor([[0.0, 2.0, 3.0, 7.0]]))      # 1, 1, 1 + ln 2, 1 + ln 3
    tensor([[[1.0000, 1.0000, 1.6931, 2.0986]]])
    """

    conformance_settings: ClassVar[dict[str, Any]] = {"step": 4}  # with the default, short texts have no factor

    def __init__(self, *, strength: float = 0.1, step: int = 8192):
        super().__init__()
        require_positive("Llama4", strength=strength, or_zero=True)
        require_positive_int("Llama4", step=step)
        self.strength, self.step = strength, step

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        steps = torch.floor((position + 1) / self.step)
        return (1 + self.strength * torch.log1p(steps))[:, None]
