"""Dynamic YaRN: YaRN whose factor follows the current length, and plain RoPE up to the training length."""

from typing import ClassVar, Unpack

from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.encodings.base import require_positive_int, stepped_length
from lengthwise.encodings.ntk_by_parts import NTKByParts, RampArguments
from lengthwise.forms import table_dtype


class DynamicYaRN(NTKByParts):
    """YaRN with s = max(1, n / L), n the current length: frequencies θ_p (ρ_p / s + 1 - ρ_p), q and k times 0.1 ln s + 1.

    ρ is that of `NTKByParts` and L is the training length. Up to L this is RoPE. There is no state between calls, so earlier
    sequences do not affect the result. `scale_step` rounds n - L up to a multiple of itself (1: as published), and a KV
    cache stays valid within a step.

    Beyond the training length: the angles of all tokens change with each n. So an early token's logits differ between a short
    sequence and a long one that begins in the same way.

    Source: Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", sections 3.3 (dynamic
    scaling) and 3.4.
    Code: jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding.
    Differs: after a long sequence, the published code keeps the largest s that it saw, also for shorter sequences.

    >>> DynamicYaRN(head_dim=8, train_length=64).frequencies(torch.tensor([64, 256]))
    tensor([[1.0000e+00, 1.0000e-01, 1.0000e-02, 1.0000e-03],
            [1.0000e+00, 6.2500e-02, 2.5000e-03, 2.5000e-04]], dtype=torch.float64)
    """

    shift_invariant: ClassVar[bool] = False  # shifted position IDs end higher, which makes the document longer

    def __init__(self, *, scale_step: int = 1, **ramp: Unpack[RampArguments]):
        super().__init__(factor=1.0, **ramp)
        require_positive_int(type(self).__name__, scale_step=scale_step)
        self.scale_step = scale_step

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        return stepped_length(length, self.train_length, self.scale_step)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return self.interpolated_frequencies(length, self._scale(length))

    def gain(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*n 1"]:
        return 0.1 * self._scale(length).log() + 1

    def _scale(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*n 1"]:
        return (self.effective_length(length).to(table_dtype(length.device)) / self.train_length)[..., None]
