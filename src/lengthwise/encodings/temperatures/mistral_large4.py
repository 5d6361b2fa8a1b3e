"""MistralLarge4: a learned factor of the logits, with a scale and a bias for each head."""

import torch

from lengthwise.encodings.temperatures.base import LearnedTemperature


class MistralLarge4(LearnedTemperature):
    """The scaled product of query i with every key is multiplied by scale_h ln(i + 1) + bias_h.

    Each head of each layer learns both numbers. They are initialized with 0 and 1, so that the factor is 1. i is the query's
    position ID.

    Beyond the training length: the factor continues on the same logarithm.

    Source: Mistral AI 2026, the Mistral Large 4 model, which has this factor in every layer; no paper is known.
    Code: huggingface/transformers, models/mistral_large4 (`MistralLarge4TextSoftmaxScaling`).
    Differs: transformers rounds ln(i + 1), the scale and the bias to the model's dtype before the product. In bfloat16 a logarithm
    near 10 is then off by up to 0.03. Here the factor is computed in float64.

    >>> large = MistralLarge4(num_heads=1)
    >>> _ = large.scale.data.fill_(2.0)
    >>> large.factor(torch.tensor([[0.0, 1.0, 3.0]])).detach()      # 1, 1 + 2 ln 2, 1 + 2 ln 4
    tensor([[[1.0000, 2.3863, 3.7726]]])
    """

    def __init__(self, *, num_heads: int):
        super().__init__(torch.zeros(num_heads), torch.ones(num_heads))
