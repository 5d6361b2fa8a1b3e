"""Self-Extend: exact distances near the query, and positions in groups of tokens further away."""

from typing import ClassVar, Unpack

from jaxtyping import Int, Num
from torch import Tensor

from lengthwise.encodings.arguments import require_positive_int
from lengthwise.encodings.distance_map import DistanceMap, distance, require_within
from lengthwise.encodings.rope import RoPEArguments


class SelfExtend(DistanceMap):
    """RoPE at the distance i - j below `window`, and at floor(i / G) - floor(j / G) + W - floor(W / G) from there on.

    i and j are the positions of query and key, G is `group` and W is `window` (default: a quarter of the training length L). Tokens
    beyond the window share positions in groups of G; it hides no key (`layer_window` does). It needs no training. Within the
    window it is RoPE to the last bit. It depends on the positions themselves, because groups begin at multiples of G.

    Beyond the training length: up to G · (L - W + floor(W / G)) tokens, no distance is larger than in training.

    Source: Jin et al. 2024, "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning".
    Code: datamllab/LongLM, self_extend_patch/Llama.py (G = 8 and W = 1024).
    Differs: the code divides W / G without rounding, which gives fractions where G does not divide W. It omits W - W / G if the
    longest text of the batch has at most W tokens, so a result depends on the other texts; here it depends on no length.

    >>> extend = SelfExtend(head_dim=2, train_length=64, group=4, window=8)
    >>> i, j = torch.tensor([[40]]), torch.tensor([[33, 32, 31, 28, 0]])         # distances 7, 8, 9, 12 and 40
    >>> positions = extend.mapped(i)[1][0] - extend.mapped(j)[1][1]
    >>> torch.where(extend.region(i, j)[0] == 0, i - j, positions)
    tensor([[ 7,  8,  9,  9, 16]])
    """

    shift_invariant: ClassVar[bool] = False
    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"group": (3,), "window": (2, 6)}

    def __init__(self, *, train_length: int, group: int = 8, window: int | None = None, **rope: Unpack[RoPEArguments]):
        super().__init__(**rope)
        window = max(1, train_length // 4) if window is None else window
        require_positive_int("SelfExtend", group=group)
        require_within("SelfExtend", train_length, window=window)
        self.group, self.window = group, window

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        grouped = positions // self.group
        return (positions, positions), (grouped + (self.window - self.window // self.group), grouped)

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        return (distance(q, k) >= self.window).long()
