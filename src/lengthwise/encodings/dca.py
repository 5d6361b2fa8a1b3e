"""DCA: dual chunk attention, with positions that restart in every chunk of a long text."""

from typing import ClassVar, Unpack

import torch
from jaxtyping import Int, Num
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.distance_map import DistanceMap, require_within
from lengthwise.encodings.rope import RoPEArguments


class DCA(DistanceMap):
    """RoPE at the distance i' - j mod s, in chunks of s = c - w tokens, with c = `chunk` and w = `window`.

    i and j are the positions of query and key. i' is i mod s for keys of the query's chunk, min(i mod s + s, c) for those of the
    chunk before it, and c for older ones. So distances are exact within a chunk, and for the first w tokens of a chunk also
    to the chunk before it. By default c is 3/4 of the training length L, and w is a sixth of c. w hides no key (`layer_window`
    does). It needs no training.
    Within a chunk it is RoPE to the last bit. It depends on the positions themselves, because chunks begin at multiples of s.

    Beyond the training length: no distance is larger than c, at any length. Distances to keys in older chunks say where in its
    chunk a key is, but not in which chunk.

    Source: An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models".
    Code: HKUNLP/ChunkLlama; vllm, dual_chunk_flash_attn.py.
    Differs: for older chunks, i' in the code is min(2s - 1, c), which is less than c if w is at least c/2, and in the paper c - 1.
    For the chunk before, the paper has c - 1 as the largest i'. Its c is L; c = 3/4 L comes from the code. The code multiplies q
    and k by 0.05 ln(scale) + 1, a function of the longest text so far, so cached keys keep an older factor; here there is none. It
    computes a softmax for each chunk and adds them up with weights in bfloat16; here there is one softmax.

    >>> dca = DCA(head_dim=2, train_length=16)         # c = 12, window 2, s = 10
    >>> i, j = torch.tensor([[25]]), torch.tensor([[24, 19, 12, 3]])
    >>> positions = torch.stack([q[0] - k[1] for q, k in zip(dca.mapped(i), dca.mapped(j))])
    >>> positions.gather(0, dca.region(i, j))
    tensor([[[ 1,  3, 10,  9]]])
    """

    shift_invariant: ClassVar[bool] = False
    alternatives: ClassVar[dict[str, tuple[int, ...]]] = {"chunk": (6, 9), "window": (1, 5)}

    def __init__(
        self,
        *,
        train_length: int,
        chunk: int | None = None,
        window: int | None = None,
        **rope: Unpack[RoPEArguments],
    ):
        super().__init__(**rope)
        chunk = max(2, 3 * train_length // 4) if chunk is None else chunk
        require_within("DCA", train_length, chunk=chunk)
        window = max(1, chunk // 6) if window is None else window
        require_within("DCA", train_length, window=window)
        if window >= chunk:
            raise ConfigError(
                f"DCA: window must be smaller than chunk, because positions restart every chunk - window tokens, got {window} "
                f"and {chunk}"
            )
        self.chunk, self.stride = chunk, chunk - window

    def mapped(self, positions: Num[Tensor, "b t"]) -> tuple[tuple[Tensor, Tensor], ...]:
        in_chunk = positions % self.stride
        previous = (in_chunk + self.stride).clamp(max=self.chunk)
        return (positions, positions), (previous, in_chunk), (torch.full_like(positions, self.chunk), in_chunk)

    def region(self, q: Num[Tensor, "b i"], k: Num[Tensor, "b j"]) -> Int[Tensor, "b i j"]:
        chunks = q[:, :, None] // self.stride - k[:, None] // self.stride
        return chunks.clamp(0, 2).long()
