"""Ministral: a factor of the logits that grows in steps of the training length."""

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.temperatures.base import Temperature


class Ministral(Temperature):
    """The scaled product of query i with every key is multiplied by 1 + strength · ln(1 + floor(i / step)).

    The factor is exactly 1 at the first `step` positions. i is the query's position ID. Nothing is learned.

    Beyond the training length: the factor grows with the logarithm, in steps.

    Source: Mistral AI 2025, the Ministral 3 and Mistral 4 models, which have this factor in every layer beside a YaRN.
    Code: huggingface/transformers, models/ministral3 and mistral4 (`llama_4_scaling_beta` is `strength`,
    `original_max_position_embeddings` is `step`: 16384 in Ministral 3 and 8192 in Mistral 4).
    Differs: Llama 4, where it comes from, has i + 1 in place of i.

    >>> Ministral(strength=1.0, step=4).factor(torch.tensor([[0.0, 3.0, 4.0, 8.0]]))      # 1, 1, 1 + ln 2, 1 + ln 3
    tensor([[[1.0000, 1.0000, 1.6931, 2.0986]]])
    """

    conformance_settings: ClassVar[dict[str, Any]] = {"step": 4}  # with the default, short texts have no factor

    def __init__(self, *, strength: float = 0.1, step: int = 16384):
        super().__init__()
        require_positive("Ministral", strength=strength, or_zero=True)
        require_positive_int("Ministral", step=step)
        self.strength, self.step = strength, step

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return (1 + self.strength * torch.log1p(torch.floor(position / self.step)))[:, None]
