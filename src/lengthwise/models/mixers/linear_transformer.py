"""Linear Transformer (Katharopoulos et al. 2020): products of positive features in place of the softmax."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ModelConfig
from lengthwise.models.linear import Linear
from lengthwise.models.mixers.base import MixerWithMLP, State
from lengthwise.models.mixers.chunks import chunkwise


class LinearTransformer(MixerWithMLP):
    """One layer, for each head with φ(x) = elu(x) + 1.

    S_t = S_{t−1} + φ(k_t) v_tᵀ,        z_t = z_{t−1} + φ(k_t),        out_t = S_tᵀ φ(q_t) / (z_t · φ(q_t))

    The heads are concatenated and multiplied by an output matrix, as in attention. The state is S with z as its last
    column [b, h, d, d + 1]. It takes NoPE, and encodings that are added to the embeddings, as in the paper; rotations
    of q and k would be rotations before φ, for which the paper defines nothing.

    Source: Katharopoulos et al. 2020, equations 7, 9, 18 to 20. Code: idiap/fast-transformers. Differs: their code adds
    1e-6 to the denominator; here it is the formula's.
    """

    backend = "chunks"

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        self.heads = config.num_heads
        self.qkv = Linear(config.d_model, 3 * config.d_model, bias=config.bias)
        self.out = Linear(config.d_model, config.d_model, bias=config.bias)
        self.finish(config)

    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # [b, h, 3, t, d]
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = qkv.to(torch.promote_types(torch.float32, qkv.dtype)).unbind(2)
            out, last = chunkwise(
                F.elu(q) + 1,
                F.elu(k) + 1,
                F.pad(v, (0, 1), value=1.0),
                decay=q.new_ones(self.heads),
                state=None if state is None else state[0],
                documents=documents,
            )
            out = out[..., :-1] / out[..., -1:]
        return self.out(out.transpose(1, 2).flatten(2).to(x.dtype)), (last,)
