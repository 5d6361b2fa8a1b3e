"""The block sizes of the Triton kernels: output, and gradients of keys, of queries and of distances.

Blocks of distances are square.

Those of half precision with 64 and 128 dims were chosen by the time of each kernel, of 13 sizes each, on an H200 with
NoPE, KERPLE and FIRE at 8,192 tokens. The others, and those of keys for segments with 128 dims, were not timed: they
were chosen so that the loops of most tiles need almost no local memory on sm_90 (benchmarks/gpu_code.py).
"""

import torch

from lengthwise.attention.fused.gpu.call import Blocks
from lengthwise.attention.fused.gpu.tiles import BiasForm

Sizes = tuple[Blocks, Blocks, Blocks, Blocks]

_HALF: dict[int, dict[BiasForm, Sizes]] = {
    64: {
        "none": (Blocks(64, 128, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 3)),
        "table": (Blocks(64, 128, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 3)),
        "segments": (Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 1), Blocks(64, 64, 4, 1), Blocks(64, 64, 4, 2)),
    },
    128: {
        "none": (Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 1)),
        "table": (Blocks(64, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 3)),
        "segments": (Blocks(64, 64, 4, 2), Blocks(32, 64, 4, 2), Blocks(64, 32, 4, 2), Blocks(64, 64, 4, 1)),
    },
    256: {
        "none": (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 1), Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2)),
        "table": (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 1), Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 2)),
        "segments": (Blocks(64, 32, 8, 2), Blocks(32, 32, 8, 1), Blocks(16, 64, 8, 2), Blocks(64, 64, 8, 1)),
    },
}
_SINGLE: dict[int, Sizes] = {
    64: (Blocks(32, 32, 4, 1), Blocks(16, 32, 8, 1), Blocks(32, 32, 8, 1), Blocks(16, 16, 4, 1)),
    128: (Blocks(32, 32, 8, 1), Blocks(16, 32, 8, 1), Blocks(32, 32, 8, 1), Blocks(16, 16, 4, 1)),
    256: (Blocks(16, 32, 8, 1), Blocks(16, 16, 8, 1), Blocks(16, 16, 8, 1), Blocks(16, 16, 8, 1)),
}
_SINGLE_SEGMENTS = {**_SINGLE, 128: (_SINGLE[128][0], Blocks(16, 16, 8, 1), *_SINGLE[128][2:])}


def blocks(dtype: torch.dtype, padded_dim: int, form: BiasForm) -> Sizes:
    """Return the block sizes for a dtype, a head dim padded to a power of two, and the form of the bias."""
    dim = max(padded_dim, 64)
    if dtype == torch.float32:
        return _SINGLE_SEGMENTS[dim] if form == "segments" else _SINGLE[dim]
    return _HALF[dim][form]
