"""STRING: the largest distances of training are dropped, and well-trained ones take their place."""

from typing import ClassVar, Unpack

from jaxtyping import Int, Num
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.distance_map import DistanceMap, distance, require_within
from lengthwise.encodings.rope import RoPEArguments
from lengthwise.values import require_integer, shown


class STRING(DistanceMap):
    """RoPE at the distance i - j below S, and at i - j - S + W from there on, S = `shift`, W = `local`.

    i and j are the positions of query and key. S is by default 0.33 of the training length L, rounded down, and W is 128, but at
    most S / 2. It needs no training. In training, few pairs of tokens are nearly L apart, so the largest distances are hardly
    trained. Up to L tokens, those from L - S + W to L - 1 are not used. Pairs closer than S have the product of RoPE to the last
    bit.

    Beyond the training length: up to L + S - W tokens, no distance is larger than in training.

    Source: An et al. 2024, "Why Does the Effective Context Length of LLMs Fall Short?".
    Code: HKUNLP/STRING, string_for_llama.py (`shifted_offset` and `small_local_value`).
    Differs: where the code reads a whole text, it adds up two softmaxes that both contain the key at distance S, so this key
    counts twice; when it decodes, the key counts once, as here. It also multiplies q and k by 0.1 ln 2 + 1, at any length; here
    there is no factor.

    >>> string = STRING(head_dim=2, train_length=12, shift=4, local=2)
    >>> i, j = torch.tensor([[11]]), torch.tensor([[8, 7, 6, 0]])         # distances 3, 4, 5 and 11
    >>> positions = string.mapped(i)[1][0] - string.mapped(j)[1][1]
    >>> torch.where(string.region(i, j)[0] == 0, i - j, positions)
    tensor([[3, 2, 3, 9]])
    """

    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"shift": (2, 8), "local": (0, 1)}

    def __init__(
        self,
        *,
        train_length: int,
        shift: int | None = None,
        local: int | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        shift = max(1, train_length * 33 // 100) if shift is None else shift
        require_within("STRING", train_length, shift=shift)
        local = min(128, shift // 2) if local is None else local
        require_integer("STRING", 0, local=local)
        if local > shift:
            raise ConfigError(f"STRING: local must be at most shift, {shift}, got {shown(local)}")
        self.shift, self.local = shift, local

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        return (positions, positions), (positions + (self.local - self.shift), positions)

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        return (distance(q, k) >= self.shift).long()
