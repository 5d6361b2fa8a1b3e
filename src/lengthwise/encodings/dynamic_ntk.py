"""Dynamic NTK: NTK-aware scaling whose factor grows with the current length."""

from typing import ClassVar, Unpack

from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.encodings.base import require_positive_int, stepped_length
from lengthwise.encodings.ntk_aware import NTKAware
from lengthwise.encodings.rope import RoPEArguments
from lengthwise.forms import table_dtype


class DynamicNTK(NTKAware):
    """`NTKAware` with s = max(1, f n / L - (f - 1)), n the current length, L the training length, f = `factor` >= 1.

    With f = 1, s = max(1, n / L). Up to L it equals RoPE bit for bit. There is no state between calls, so earlier sequences
    do not affect the result. `scale_step` rounds n - L up to a multiple of itself. A KV cache is then computed again only
    once per step, and not at every token as in the published form (`scale_step=1`).

    Beyond the training length: every new token changes the angles of all tokens. So the result at each position depends on
    the length of the whole document (its highest position ID + 1).

    Source: emozilla 2023, "Dynamically Scaled RoPE further increases performance of long context LLaMA with zero fine-tuning";
    Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.3.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "dynamic" (f is its `factor`).
    Differs: the paper has f = 1. With f, the code has s = f n / L - (f - 1), so that s at n = f L is f² - f + 1 (57 for f = 8).
    The code does not rotate cached keys again when the base changes, and keeps the base of a long sequence for later,
    shorter ones.

    >>> ntk = DynamicNTK(head_dim=8, train_length=16)
    >>> ntk.frequencies(torch.tensor([16, 32]))[:, -1] / ntk.frequencies(torch.tensor(1))[-1]  # 1 / s
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    shift_invariant: ClassVar[bool] = False  # shifted position IDs end higher, which makes the document longer
    always_shown: ClassVar[tuple[str, ...]] = ()  # labels omit the default factor of 1

    def __init__(self, *, train_length: int, factor: float = 1.0, scale_step: int = 1, **rope: Unpack[RoPEArguments]):
        super().__init__(factor=factor, **rope)
        require_positive_int("DynamicNTK", scale_step=scale_step)
        self.train_length, self.scale_step = train_length, scale_step

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        return stepped_length(length, self.train_length, self.scale_step)

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        excess = (self.effective_length(length) - self.train_length).to(table_dtype(length.device))
        return self.scaled_frequencies(length, 1 + self.factor * excess / self.train_length)
