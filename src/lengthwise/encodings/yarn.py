"""YaRN: NTK-by-parts with a temperature that makes attention sharper."""

import math
from typing import Unpack

from jaxtyping import Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import require_positive
from lengthwise.encodings.ntk_by_parts import NTKByParts, RampArguments


class YaRN(NTKByParts):
    """`NTKByParts`, and rotated q and k are multiplied by m = g(s, mscale) / g(s, mscale_all_dim), s = `factor`.

    g(s, x) = 0.1 x ln s + 1, so by default m = 0.1 ln s + 1. The product <q, k> is multiplied by m², which is
    1 / temperature: more keys make softmax flatter, and m makes it sharper again. `attention_factor` sets m directly.
    s and m apply at every length, also up to L, so a model is trained or fine-tuned with them (`DynamicYaRN` needs
    neither).

    Beyond the training length: as with `NTKByParts`, up to s·L it reaches no angle that plain RoPE does not reach up to L.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.4.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "yarn"; deepseek-ai/DeepSeek-V3 (`mscale`, `mscale_all_dim`).
    Differs: DeepSeek's attention also multiplies its softmax scale by g(s, mscale_all_dim)², which affects the dimensions
    that are not rotated as well; here only m is applied. `mscale` takes effect on its own, as in DeepSeek's code;
    transformers uses it only if `mscale_all_dim` is given too and neither is 0. Without fine-tuning the model, the betas
    have to be tuned (issue 19 of jquesnelle/yarn).

    >>> yarn = YaRN(head_dim=8, train_length=64, factor=8.0)
    >>> yarn.gain(torch.tensor(1)), yarn.frequencies(torch.tensor(1))[-1] * 8  # 1 + 0.1 ln 8
    (1.2079441541679836, tensor(0.0010, dtype=torch.float64))
    """

    def __init__(
        self,
        *,
        factor: float = 4.0,
        attention_factor: float | None = None,
        mscale: float = 1.0,
        mscale_all_dim: float = 0.0,
        **ramp: Unpack[RampArguments],
    ):
        super().__init__(factor=factor, **ramp)
        name = type(self).__name__
        require_positive(name, or_zero=True, mscale=mscale, mscale_all_dim=mscale_all_dim)
        g, g_all_dim = (0.1 * x * math.log(factor) + 1 for x in (mscale, mscale_all_dim))
        self.attention_factor = g / g_all_dim
        if attention_factor is not None:
            require_positive(name, attention_factor=attention_factor)
            if (mscale, mscale_all_dim) != (1, 0):
                raise ConfigError(f"{name}: attention_factor replaces mscale and mscale_all_dim; pass one or the other")
            self.attention_factor = attention_factor

    def gain(self, length: Int[Tensor, "*n"]) -> float:
        return self.attention_factor
