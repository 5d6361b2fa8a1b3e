"""RetNet (Sun et al. 2023): retention, which is linear attention with a decay for each head, rotations and a gate."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError, ModelConfig
from lengthwise.models.linear import Linear
from lengthwise.models.mixers.base import MixerWithMLP, State
from lengthwise.models.mixers.chunks import chunkwise

BASE = 10000.0


class RetNet(MixerWithMLP):
    """One layer. Heads h = 0, 1, ... have keys of k = d_model / num_heads numbers and values of 2k.

    γ_h = 1 − 2^(−5−h)
    q_t, k_t: pairs (2i, 2i+1) rotated by the angles t · 10000^(−i / (k/2 − 1)), i = 0 ... k/2 − 1
    S_t = γ_h S_{t−1} + k_t v_tᵀ / √k,        out_t = S_tᵀ q_t
    y   = W_O (swish(W_G x) ⊙ GroupNorm(out)), a group for each head

    The logits are not normalized: GroupNorm removes the scale of the row of a head, up to its epsilon of 1e-5. The
    rotation is that of xPos without its decay. The state is S [b, h, k, 2k], rotated so that the next token has the
    position 0; no position is stored. The MLP has the width 2 d_model, so a layer has about as many weights as one of a
    Transformer.

    Source: Sun et al. 2023, equations 5 to 8. Code: microsoft/torchscale. Differs: their code divides rows of the decay
    matrix by the square root of their sum, and rows of logits by the larger of 1 and the size of their sum. Its group
    norm divides by the root mean square and has no weights; here it is the paper's, with the mean subtracted, and with
    weights and biases.
    """

    backend = "chunks"

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        d, self.heads = config.d_model, config.num_heads
        if d // self.heads % 2:
            raise ConfigError(
                f"d_model / num_heads must be even for RetNet, which rotates pairs, got {d} / {self.heads}"
            )
        self.sizes = [d, d, 2 * d, 2 * d]
        self.qkvg = Linear(d, sum(self.sizes), bias=False)
        self.group_norm = nn.GroupNorm(self.heads, 2 * d)
        self.out = Linear(2 * d, d, bias=False)
        self.finish(config)

    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        *qkv, gate = self.qkvg(x).split(self.sizes, -1)
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(torch.float32, x.dtype)
            q, k, v = (projection.unflatten(-1, (self.heads, -1)).transpose(1, 2).to(dtype) for projection in qkv)
            # Only differences of positions matter, so they begin with 0 in every call and in no document.
            turns = _turns(torch.arange(x.shape[1] + 1, device=x.device), k.shape[-1], dtype)
            out, last = chunkwise(
                _rotate(q, turns[:-1]),
                _rotate(k, turns[:-1]) * k.shape[-1] ** -0.5,
                v,
                decay=1 - 2.0 ** (-5 - torch.arange(self.heads, device=x.device, dtype=dtype)),
                state=None if state is None else state[0],
                documents=documents,
            )
            last = _rotate(last.transpose(-1, -2), turns[-1].conj()).transpose(-1, -2)
            normed = self.group_norm(out.transpose(1, 2).flatten(2).flatten(0, 1)).unflatten(0, x.shape[:2])
        return self.out(F.silu(gate) * normed.to(gate.dtype)), (last,)


def _turns(positions: Int[Tensor, " t"], dims: int, dtype: torch.dtype) -> Tensor:
    """Return the rotations of the pairs at each position as complex numbers [t, dims / 2]."""
    theta = BASE ** -torch.linspace(0, 1, dims // 2, device=positions.device, dtype=torch.float64)
    angles = positions[:, None] * theta
    return torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))


def _rotate(x: Float[Tensor, "*b k"], turns: Tensor) -> Float[Tensor, "*b k"]:
    """Return x with its pairs (2i, 2i+1) rotated."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns).flatten(-2)
