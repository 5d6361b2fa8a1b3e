"""PI: RoPE at positions divided by a factor."""

from typing import ClassVar, Unpack

from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor


class PI(RoPE):
    """Position Interpolation: RoPE whose pair p is rotated by position · θ_p / s radians, θ_p = base^(-2p/r), s = `factor` >= 1.

    All pairs are scaled alike. Neighbouring tokens are s times closer in angle than with RoPE, so a model that was trained
    with RoPE needs some fine-tuning. A model that is trained with the factor from the start never sees unscaled angles.

    Beyond the training length: angles stay within the range of RoPE's training length up to s times that length. Beyond it,
    slow pairs reach new angles, as in RoPE.

    Source: Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation".
    Code: Hugging Face transformers, `rope_type` "linear"; jquesnelle/yarn.
    Differs: some authors define s as training length / target length; here it is target length / training length, as in
    YaRN.

    >>> PI(head_dim=8, factor=4.0).frequencies(torch.tensor(1))
    tensor([0.2500, 0.0250, 0.0025, 0.0003], dtype=torch.float64)
    """

    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(self, *, factor: float = 4.0, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        require_factor("PI", factor)
        self.factor = factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        return super().frequencies(length) / self.factor
