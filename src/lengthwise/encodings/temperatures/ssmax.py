"""SSMax: a learned factor of the logits that grows with the logarithm of the number of keys."""

import math

import torch

from lengthwise.encodings.temperatures.base import LearnedTemperature, require_logarithm


class SSMax(LearnedTemperature):
    """The scaled product of query i with every key is multiplied by scale_h ln(i + 1), or by scale_h ln(i + 1) + bias_h.

    With n = i + 1 keys, softmax of s ln(n) z has the weights n^(s z_j) / Σ n^(s z): a logit that is larger than the others by a
    fixed amount keeps its weight while n grows. Each head of each layer learns its `scale`, and with `bias=True` its `bias` too.
    The scale is initialized so that the factor is 1 on average up to the training length, L / (ln 1 + ... + ln L), and the bias
    with 0. i is the query's position ID, whatever keys a mask or a position scheme leaves visible.

    Beyond the training length: the factor grows with the logarithm, so attention flattens less than with a constant one.

    Source: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention" (arXiv 2501.19399).
    Differs: with fewer visible keys than positions, as in a sliding window, the paper's n is the number of keys.

    >>> ssmax = SSMax(num_heads=1, train_length=16)
    >>> _ = ssmax.scale.data.fill_(0.5)
    >>> torch.exp(2 * ssmax.factor(torch.tensor([[0.0, 1.0, 7.0]]))).detach()      # n^(2 s) with s = 1/2
    tensor([[[1., 2., 8.]]])
    """

    def __init__(self, *, num_heads: int, train_length: int, bias: bool = False):
        require_logarithm("SSMax", train_length)
        mean = math.lgamma(train_length + 1) / train_length  # of ln 1 ... ln L
        super().__init__(torch.full((num_heads,), 1 / mean), torch.zeros(num_heads) if bias else None)
