"""Sinks: a learned number for each head in the denominator of the softmax."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, SinkLogit
from lengthwise.span import Span


class Sinks(PositionEncoding):
    """The weight of key j is exp(z_ij) / (exp(s_h) + Σ_k exp(z_ik)), where z are the logits and s_h is learned.

    The sink takes a share of the attention without adding anything to the output, so a head can attend to (nearly)
    nothing. Each head of each layer learns its logit s_h, which is initialized with 0: the sink is like one more key
    whose logit is 0 and whose value is 0. It depends on no position, and `Combined` adds it to any encoding.

    Beyond the training length: the share of the sink falls with the number of keys, unless their logits are far below
    s_h.

    Source: OpenAI 2025, the gpt-oss models, after the attention sinks of Xiao et al. 2023, "Efficient Streaming
    Language Models with Attention Sinks".
    Code: huggingface/transformers, models/gpt_oss (`sinks`), also in MiMo V2 Flash, DeepSeek V4 and others.
    Differs: transformers initializes the logits from N(0, 0.02^2).

    >>> from lengthwise import attend
    >>> q = torch.zeros(1, 1, 3, 8)      # all logits are 0: query i has i + 2 equal shares, one of them the sink's
    >>> attend(q, q, torch.ones(1, 1, 3, 8), Sinks(num_heads=1))[0, 0, :, 0].detach()
    tensor([0.5000, 0.6667, 0.7500])
    """

    shared_across_layers: ClassVar[bool] = False
    num_axes = None

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(num_heads))

    def modifiers(self, span: Span) -> AttentionModifiers:
        return AttentionModifiers(sink=SinkLogit(self.logit))

    def tracked(self) -> Mapping[str, Tensor]:
        return {"logit": self.logit}
