"""Temperatures: encodings that multiply the logits of each query by a number that depends on its position.

LogN: larger logits for queries that see more keys than in training.
SSMax: a learned factor of the logits that grows with the logarithm of the number of keys.
MistralLarge4: a learned factor of the logits, with a scale and a bias for each head.
Llama4: a factor of the logits that grows in steps, each of many positions.
Ministral: a factor of the logits that grows in steps of the training length.
Beam: a factor of the logits that grows with a power of the position.
Inkling: a factor of all logits, including biases, that grows with the logarithm of the position.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int, require_tensor
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, QueryGain, table_dtype
from lengthwise.span import Span


class Temperature(PositionEncoding):
    """Base class of temperatures. A subclass defines `factor(position)`.

    The factor is a function of the query's position ID, so padding, packed documents and a cache do not change it.
    Alone, a temperature is an encoding that rotates nothing and adds nothing; `Combined` adds it to another encoding.
    """

    is_temperature: ClassVar[bool] = True
    shift_invariant: ClassVar[bool] = False
    scales_terms: ClassVar[bool] = False  # whether biases are multiplied too, and not only the product of query and key

    @abstractmethod
    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "#b #h i"]:
        """Return the factor of the logits of each query, given its position as a floating-point number."""

    def modifiers(self, span: Span) -> AttentionModifiers:
        factor: Any = self.factor(span.q.to(table_dtype(span.q.device)))
        require_tensor(self, "factor", factor, batch=None, heads=None, queries=span.q.shape[1])
        return AttentionModifiers(gain=QueryGain(factor, scales_terms=self.scales_terms))


class LearnedTemperature(Temperature):
    """Base class of temperatures scale_h · ln(n) + bias_h, both learned; n is the position of the query + 1."""

    shared_across_layers: ClassVar[bool] = False

    def __init__(self, scale: Tensor, bias: Tensor | None):
        super().__init__()
        self.scale = nn.Parameter(scale)
        self.bias = None if bias is None else nn.Parameter(bias)

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b h i"]:
        factor = self.scale.to(position.dtype)[:, None] * torch.log1p(position)[:, None]
        return factor if self.bias is None else factor + self.bias.to(position.dtype)[:, None]

    def tracked(self) -> Mapping[str, Tensor]:
        return {"scale": self.scale} | ({} if self.bias is None else {"bias": self.bias})


def require_logarithm(encoding: str, train_length: int) -> None:
    """Raise `ConfigError` if the logarithm of the training length is 0, because temperatures divide by it."""
    if train_length == 1:
        raise ConfigError(f"{encoding}: train_length must be at least 2, because ln 1 = 0 is a divisor, got 1")


class LogN(Temperature):
    """The scaled product of query i with every key is multiplied by max(1, ln(i + 1) / ln L), L the training length.

    Softmax over more keys is flatter. Logits that grow with the logarithm of the number of keys keep its entropy about
    the same. Query i (0-based) sees i + 1 keys. Up to the training length the factor is exactly 1. Nothing is learned.

    Beyond the training length: attention flattens less than without the factor.

    Source: Su 2021, "The scale of attention from the invariance of entropy" (in Chinese), kexue.fm/archives/8823;
    Chiang and Cholak 2022, "Overcoming a Theoretical Limitation of Self-Attention".
    Code: bojone/rerope; Qwen-7B (`use_logn_attn`), both beside RoPE.
    Differs: Su derives one n, the number of keys, for a whole sequence. Both implementations count the keys that a
    causal query sees: ln(i + 1) at the 0-based position i, as here (Qwen's list begins with ln 1, and is used in
    evaluation only). Su and Chiang also train with ln n without the maximum, so that attention in short sequences is
    flatter than here. Here i is the query's position ID, whatever keys a mask or a position scheme leaves visible.

    >>> LogN(train_length=8).factor(torch.tensor([[0.0, 7.0, 63.0]]))      # 1, 1, ln 64 / ln 8
    tensor([[[1., 1., 2.]]])
    """

    version: ClassVar[int] = 2

    def __init__(self, *, train_length: int):
        super().__init__()
        require_logarithm("LogN", train_length)
        self.train_length = train_length

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return ((position + 1).log() / math.log(self.train_length)).clamp(min=1.0)[:, None]


class SSMax(LearnedTemperature):
    """The scaled product of query i with every key is multiplied by scale_h ln(i + 1), or by scale_h ln(i + 1) +
    bias_h.

    With n = i + 1 keys, softmax of s ln(n) z has the weights n^(s z_j) / Σ n^(s z): a logit that is larger than the
    others by a fixed amount keeps its weight while n grows. Each head of each layer learns its `scale`, and with
    `bias=True` its `bias` too. The scale is initialized so that the factor is 1 on average up to the training length, L
    / (ln 1 + ... + ln L), and the bias with 0. i is the query's position ID, whatever keys a mask or a position scheme
    leaves visible.

    Beyond the training length: the factor grows with the logarithm, so attention flattens less than with a constant
    one.

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


class MistralLarge4(LearnedTemperature):
    """The scaled product of query i with every key is multiplied by scale_h ln(i + 1) + bias_h.

    Each head of each layer learns both numbers. They are initialized with 0 and 1, so that the factor is 1. i is the
    query's position ID.

    Beyond the training length: the factor continues on the same logarithm.

    Source: Mistral AI 2026, the Mistral Large 4 model, which has this factor in every layer; no paper is known.
    Code: huggingface/transformers, models/mistral_large4 (`MistralLarge4TextSoftmaxScaling`).
    Differs: transformers rounds ln(i + 1), the scale and the bias to the model's dtype before the product. In bfloat16
    a logarithm near 10 is then off by up to 0.03. Here the factor is computed in float64.

    >>> large = MistralLarge4(num_heads=1)
    >>> _ = large.scale.data.fill_(2.0)
    >>> large.factor(torch.tensor([[0.0, 1.0, 3.0]])).detach()      # 1, 1 + 2 ln 2, 1 + 2 ln 4
    tensor([[[1.0000, 2.3863, 3.7726]]])
    """

    def __init__(self, *, num_heads: int):
        super().__init__(torch.zeros(num_heads), torch.ones(num_heads))


class Llama4(Temperature):
    """The scaled product of query i with every key is multiplied by 1 + strength · ln(1 + floor((i + 1) / step)).

    The factor is exactly 1 at the first `step` - 1 positions. i is the query's position ID. Nothing is learned.

    Beyond the training length: the factor grows with the logarithm, in steps.

    Source: Meta 2025, the Llama 4 models, which have this factor in the layers without rotation.
    Code: huggingface/transformers, models/llama4 (`attn_scale` is `strength`, `floor_scale` is `step`).
    Differs: transformers counts the tokens of the row instead of reading the position IDs. So the factors of a row that
    is padded on the left, or of packed documents, are those of later positions.

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


class Beam(Temperature):
    """The scaled product of query i with every key is multiplied by (1 + (i + 1) / length)^exponent.

    i is the query's position ID. Nothing is learned.

    Beyond the training length: the factor continues on the same curve.

    Source: Reflection 2026, the Beam model, which has this factor in the layers without rotation; no paper is known.
    Code: huggingface/transformers, models/beam (0.1 and 2048 are constants there).

    >>> Beam(exponent=0.5, length=1.0).factor(torch.tensor([[0.0, 2.0, 7.0]]))      # the square roots of 2, 4 and 9
    tensor([[[1.4142, 2.0000, 3.0000]]])
    """

    conformance_settings: ClassVar[dict[str, Any]] = {"length": 4.0}

    def __init__(self, *, exponent: float = 0.1, length: float = 2048.0):
        super().__init__()
        require_positive("Beam", exponent=exponent, or_zero=True)
        require_positive("Beam", length=length)
        if exponent > 1:
            raise ConfigError(f"Beam: exponent must be at most 1, got {exponent:g}")
        self.exponent, self.length = exponent, length

    def factor(self, position: Float[Tensor, "b i"]) -> Float[Tensor, "b 1 i"]:
        return ((1 + (position + 1) / self.length) ** self.exponent)[:, None]


class Inkling(Temperature):
    """Every logit of query i, including biases, is multiplied by 1 + strength · ln(max(1, (i + 1) / length)).

    The factor is exactly 1 at the first `length` positions. i is the query's position ID. Nothing is learned. The other
    temperatures multiply the product of query and key only, and not a bias.

    Beyond the training length: the factor grows with the logarithm.

    Source: Thinking Machines Lab 2026, the Inkling model, which has this factor in the layers without a window, beside
    a [banded bias](banded_bias.md); no paper is known.
    Code: huggingface/transformers, models/inkling (`log_scaling_alpha` is `strength`, `log_scaling_n_floor` is
    `length`).
    Differs: transformers counts the tokens of the row instead of reading the position IDs, so padding on the left and
    packed documents change its factors. Its default has no factor at all; the default of `length` here is ours.

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
