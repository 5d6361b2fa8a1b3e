"""Span: where the queries and keys of one attention call stand.

Letters, for the whole project: `b` batch, `h` heads, `i` queries, `j` keys, `n` distances, `d` head dim, `c` model width.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """The positions of one attention call.

    A *position* is what a token claims, an *index* where it lies in the tensor: packed documents restart positions, a
    KV cache makes queries fewer than keys, a layout may leave gaps. All are numbers here. The batch axis is 1 where
    every row of the batch has the same positions.

    `length`: every position is below it; the only length an encoding may look at (a plain int, so that nothing waits
    for the device). `consecutive`: keys stand at 0 ... length-1 and queries are the last of them; known, not looked up.
    """

    q: Int[Tensor, "b i"]
    k: Int[Tensor, "b j"]
    length: int
    consecutive: bool = False

    @classmethod
    def of(cls, keys: int, queries: int | None = None, device: torch.device | str | None = None) -> "Span":
        """Keys at 0 ... keys-1; queries are the last `queries` of them (all, when not given)."""
        k = torch.arange(keys, device=device)[None]
        return cls(k[:, keys - (keys if queries is None else queries) :], k, keys, consecutive=True)

    def distance(self) -> Int[Tensor, "b i j"]:
        """Query position - key position: at least 0 looking back."""
        return self.q[:, :, None] - self.k[:, None, :]
