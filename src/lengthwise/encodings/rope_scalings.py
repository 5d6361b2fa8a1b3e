"""Scalings of RoPE for texts that are longer than those of training.

PI: RoPE at positions divided by a factor.
NTKAware: RoPE with a larger base, which keeps fast pairs and interpolates slow ones.
DynamicNTK: NTK-aware scaling whose factor grows with the current length.
LongRoPE: RoPE with a divisor for each pair's frequency: one list up to the training length, and one past it.
"""

import math
from typing import Any, ClassVar, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.arguments import require_positive, require_positive_int
from lengthwise.encodings.base import stepped_length
from lengthwise.encodings.rope import RoPE, RoPEArguments, require_factor
from lengthwise.forms import table_dtype
from lengthwise.values import shown


class PI(RoPE):
    """Position Interpolation: RoPE whose pair p is rotated by position · θ_p / s radians, θ_p = base^(-2p/r), s =
    `factor` >= 1.

    All pairs are scaled alike. Neighbouring tokens are s times closer in angle than with RoPE, so a model that was
    trained with RoPE needs some fine-tuning. A model that is trained with the factor from the start never sees unscaled
    angles.

    Beyond the training length: angles stay within the range of RoPE's training length up to s times that length. Beyond
    it, slow pairs reach new angles, as in RoPE.

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


class NTKAware(RoPE):
    """RoPE with base' = base · s^(r/(r-2)), r rotary dimensions, s = `factor` >= 1.

    Pair p is rotated by position · θ_p · s^(-2p/(r-2)) radians, θ_p = base^(-2p/r). The first pair keeps its frequency
    and the last has exactly θ_p / s, which `PI` applies to all pairs. A single pair (r = 2) would be both first and
    last, so no such base exists. The method is meant for use without fine-tuning.

    Beyond the training length: the pairs between first and last reach angles never seen in training before s times that
    length. So the model works for less than s times the training length, and s has to be chosen larger.

    Source: bloc97 2023, "NTK-Aware Scaled RoPE allows LLaMA models to have extended (8k+) context size"; Peng et al.
    2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.1.
    Code: jquesnelle/yarn.

    >>> NTKAware(head_dim=8, factor=4.0).frequencies(torch.tensor(1))  # the last is 0.001 / 4
    tensor([1.0000e+00, 6.2996e-02, 3.9685e-03, 2.5000e-04], dtype=torch.float64)
    """

    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(self, *, factor: float = 4.0, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        name = type(self).__name__
        require_factor(name, factor)
        if self.rotary_dims == 2:
            raise ConfigError(
                f"{name}: at least 4 dimensions must be rotated, got 2 (one pair), where the base's exponent r/(r-2) "
                "is undefined; make head_dim or rotary_fraction larger"
            )
        self.factor = factor

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        factor = torch.tensor(self.factor, dtype=table_dtype(length.device), device=length.device)
        return self.scaled_frequencies(length, factor)

    def scaled_frequencies(self, length: Int[Tensor, "*n"], factor: Float[Tensor, "*n"]) -> Float[Tensor, "*n pairs"]:
        """Return θ_p · s^(-2p/(r-2)) for each factor s."""
        theta = super().frequencies(length)
        exponent = torch.linspace(0, 1, len(theta), dtype=theta.dtype, device=theta.device)  # 2p/(r-2)
        return theta * factor.to(theta.dtype)[..., None] ** -exponent


class DynamicNTK(NTKAware):
    """`NTKAware` with s = max(1, f n / L - (f - 1)), n the current length, L the training length, f = `factor` >= 1.

    With f = 1, s = max(1, n / L). Up to L it equals RoPE bit for bit. There is no state between calls, so earlier
    sequences do not affect the result. `scale_step` rounds n - L up to a multiple of itself. A KV cache is then
    computed again only once per step, and not at every token as in the published form (`scale_step=1`).

    Beyond the training length: every new token changes the angles of all tokens. So the result at each position depends
    on the length of the whole document (its highest position ID + 1).

    Source: emozilla 2023, "Dynamically Scaled RoPE further increases performance of long context LLaMA with zero
    fine-tuning"; Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models", section 3.3.
    Code: jquesnelle/yarn; Hugging Face transformers, `rope_type` "dynamic" (f is its `factor`).
    Differs: the paper has f = 1. With f, the code has s = f n / L - (f - 1), so that s at n = f L is f² - f + 1 (57 for
    f = 8). The code does not rotate cached keys again when the base changes, and keeps the base of a long sequence for
    later, shorter ones.

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


class LongRoPE(RoPE):
    """Pair p is rotated by θ_p / λ_p radians per position, θ_p = base^(-2p/r); λ is `short_factor` up to L,
    `long_factor` past it.

    The current length selects the list for all tokens alike. L is the training length, and s = `factor` is the target
    length divided by L. At every length, rotated q and k are multiplied by m = sqrt(1 + ln s / ln L), or by
    `attention_factor`. For s = 1, m is 1.

    A list has one number for each of the P pairs. Published lists were searched for one model each (by perplexity, with
    an evolutionary search), so none fits all models. The default None means 1 for every pair in `short_factor`. In
    `long_factor` it means s^(p / (P - 1)) for p = 0 ... P - 1, from 1 for the fastest pair to s for the slowest, which
    is NTK-aware scaling by s.

    Beyond the training length: at L + 1 the angles of all tokens change (Phi-3 empties its KV cache there). From then
    on nothing changes, and pairs with λ_p = s reach no new angle up to s·L.

    Source: Ding et al. 2024, "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens"; m is only in the code.
    Code: microsoft/LongRoPE; Hugging Face transformers, `rope_type` "longrope" (Phi-3, Phi-4-mini).
    Differs: the paper also leaves the first tokens unscaled (its n̂); the Phi models and this class do not.

    >>> long = LongRoPE(head_dim=8, train_length=64, factor=8.0)
    >>> long.frequencies(torch.tensor([64, 65]))
    tensor([[1.0000e+00, 1.0000e-01, 1.0000e-02, 1.0000e-03],
            [1.0000e+00, 5.0000e-02, 2.5000e-03, 1.2500e-04]], dtype=torch.float64)
    >>> long.gain(torch.tensor(65))  # sqrt(1 + 1/2)
    1.224744871391589
    """

    shift_invariant: ClassVar[bool] = False  # shifted position IDs end higher, which makes the document longer
    # Lists for the 8 pairs of the conformance suite.
    alternatives: ClassVar[dict[str, tuple[Any, ...]]] = {
        "short_factor": ((1.0, 1.0, 1.0, 1.05, 1.1, 1.2, 1.5, 2.0),),
        "long_factor": ((1.0, 1.1, 1.5, 2.0, 4.0, 8.0, 9.5, 12.0),),
    }
    always_shown: ClassVar[tuple[str, ...]] = ("factor",)

    def __init__(
        self,
        *,
        train_length: int,
        factor: float = 4.0,
        short_factor: tuple[float, ...] | None = None,
        long_factor: tuple[float, ...] | None = None,
        attention_factor: float | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        name, pairs = type(self).__name__, self.rotary_dims // 2
        require_factor(name, factor)
        ntk = tuple(factor ** (p / max(pairs - 1, 1)) for p in range(pairs))
        self.short_factor = _divisors(name, "short_factor", short_factor, (1.0,) * pairs)
        self.long_factor = _divisors(name, "long_factor", long_factor, ntk)
        if attention_factor is not None:
            require_positive(name, attention_factor=attention_factor)
        elif factor == 1:
            attention_factor = 1.0
        elif train_length == 1:
            raise ConfigError(
                f"{name}: train_length must be at least 2, because sqrt(1 + ln s / ln L) is infinite for L = 1, got 1; "
                "or give attention_factor"
            )
        else:
            attention_factor = math.sqrt(1 + math.log(factor) / math.log(train_length))
        self.train_length, self.factor, self.attention_factor = train_length, factor, attention_factor

    @classmethod
    def nominal(cls, settings: dict[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
        # The number of pairs is unknown before the model is; until then only the numbers of a list are checked.
        for what in ("short_factor", "long_factor"):
            _divisors(cls.__name__, what, settings[what], default=settings[what] or ())
        return super().nominal({**settings, "short_factor": None, "long_factor": None})

    def effective_length(self, length: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        return self.train_length + (length > self.train_length).to(length.dtype)  # L + 1 for all lengths past L

    def frequencies(self, length: Int[Tensor, "*n"]) -> Float[Tensor, "*#n pairs"]:
        theta = super().frequencies(length)
        short, long = (theta / theta.new_tensor(divisors) for divisors in (self.short_factor, self.long_factor))
        return torch.where((self.effective_length(length) > self.train_length)[..., None], long, short)

    def gain(self, length: Int[Tensor, "*n"]) -> float:
        return self.attention_factor


def _divisors(name: str, what: str, divisors: Any, default: tuple[float, ...]) -> tuple[float, ...]:
    """Return `divisors`, or `default` if they are None.

    Raise `ConfigError` unless they are positive numbers, as many as `default` has.
    """
    if divisors is None:
        return default
    if not divisors:
        raise ConfigError(f"{name}: {what} must be a list of numbers, one for each pair, got {shown(divisors)}")
    require_positive(name, **{f"{what}[{n}]": divisor for n, divisor in enumerate(divisors)})
    if len(divisors) != (pairs := len(default)):
        raise ConfigError(
            f"{name}: {what} must have {pairs} numbers, one for each of the {pairs} pairs of {2 * pairs} rotated "
            f"dimensions, got {len(divisors)}"
        )
    return tuple(divisors)
