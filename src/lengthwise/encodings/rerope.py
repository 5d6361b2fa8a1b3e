"""ReRoPE: distances grow no further, or more slowly, outside a window."""

from typing import ClassVar, Unpack

import torch
from jaxtyping import Int, Num
from torch import Tensor

from lengthwise.encodings.distance_map import DistanceMap, distance, require_within
from lengthwise.encodings.rope import RoPEArguments, require_factor


class ReRoPE(DistanceMap):
    """RoPE at the distance i - j below `window`, and at W from there on; with a `factor`, at W + (i - j - W) / factor.

    i and j are the positions of query and key, and W is `window` (default: an eighth of the training length L). With a `factor` it
    is called Leaky ReRoPE. It needs no training. Within the window it is RoPE to the last bit. This window hides no key
    (`layer_window` does).

    Beyond the training length: without a `factor` no distance is larger than W. With one, distances reach L after
    W + (L - W) · factor tokens.

    Source: Su 2023, "Rectified Rotary Position Embeddings" (in Chinese), kexue.fm/archives/9708.
    Code: bojone/rerope, rerope_patch.py and leaky_rerope_patch.py (W = 512, L = 4096, factor 16).
    Differs: the code also multiplies queries by ln(i + 1) / ln L past the training length (`LogN`), which is not included here.

    >>> leaky = ReRoPE(head_dim=2, train_length=64, window=8, factor=4.0)
    >>> i, j = torch.tensor([[40.0]]), torch.tensor([[33.0, 32.0, 28.0, 0.0]])         # distances 7, 8, 12 and 40
    >>> positions = leaky.mapped(i)[1][0] - leaky.mapped(j)[1][1]
    >>> torch.where(leaky.region(i, j)[0] == 0, i - j, positions)
    tensor([[ 7.,  8.,  9., 16.]])
    """

    alternatives: ClassVar[dict[str, tuple[float, ...]]] = {"window": (1, 6), "factor": (4.0,)}

    def __init__(
        self,
        *,
        train_length: int,
        window: int | None = None,
        factor: float | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        window = max(1, train_length // 8) if window is None else window
        require_within("ReRoPE", train_length, window=window)
        if factor is not None:
            require_factor("ReRoPE", factor)
        self.window, self.factor = window, factor

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        if self.factor is None:
            return (positions, positions), (torch.full_like(positions, self.window), torch.zeros_like(positions))
        offset = self.window * (1 - 1 / self.factor)
        return (positions, positions), (positions / self.factor + offset, positions / self.factor)

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        return (distance(q, k) >= self.window).long()
