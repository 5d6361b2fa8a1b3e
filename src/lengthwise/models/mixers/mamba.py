"""Mamba-1 (Gu & Dao 2023): a selective scan behind a short convolution, in a block without an MLP.

The block is x + mixer(norm(x)). The mixer reads a token and its three predecessors through a short convolution, and all
earlier tokens through a state of fixed size. Each token determines how much the state decays and how much it adds.

Source: Gu & Dao 2023; parameters, their names and their initial values as in state-spaces/mamba.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models.linear import Linear
from lengthwise.models.mixers.base import MixerBlock, State, in_same_document, short_convolution
from lengthwise.models.mixers.scan import selective_scan

EXPAND, KERNEL, EPS = 2, 4, 1e-5
DT_MIN, DT_MAX = 1e-3, 0.1  # range of the initial time steps: how far a channel's state decays at a token


class Mamba(MixerBlock):
    """One layer, e = 2 d_model channels of n = state_size numbers each.

    a, z = in_proj(norm(x))                             x: [t, d_model]
    a    = silu(conv1d(a))                              depthwise, over 4 tokens
    dt, B, C = x_proj(a);   dt = softplus(dt_proj(dt))
    h_t  = exp(dt_t A) h_{t−1} + dt_t B_t a_t,  A = −exp(A_log)
    out  = x + out_proj((C_t · h_t + D a_t) silu(z))

    The state is h [b, n, e], and the last 3 inputs of the convolution [b, 3, e].
    """

    backend = "scan"
    not_decayed = ("A_log", "D")

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        d, e, n = config.d_model, EXPAND * config.d_model, config.state_size or 16
        self.sizes = [math.ceil(d / 16), n, n]
        self.norm = nn.RMSNorm(d, eps=EPS)
        self.in_proj = Linear(d, 2 * e, bias=False)
        self.conv1d = nn.Conv1d(e, e, KERNEL, groups=e)
        self.x_proj = Linear(e, sum(self.sizes), bias=False)
        self.dt_proj = Linear(self.sizes[0], e)
        self.A_log = nn.Parameter(torch.empty(e, n))
        self.D = nn.Parameter(torch.ones(e))
        self.out_proj = Linear(e, d, bias=False)
        self._initialize(config.num_layers)

    @torch.no_grad()
    def _initialize(self, num_layers: int) -> None:
        e, n = self.A_log.shape
        self.A_log.copy_(torch.arange(1, n + 1).log().expand(e, n))
        nn.init.uniform_(self.dt_proj.weight, -(self.sizes[0] ** -0.5), self.sizes[0] ** -0.5)
        dt = torch.empty(e).uniform_(math.log(DT_MIN), math.log(DT_MAX)).exp()
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # its softplus is dt
        self.out_proj.weight.div_(math.sqrt(num_layers))

    @staticmethod
    def final_norm(config: ModelConfig) -> nn.Module:
        return nn.RMSNorm(config.d_model, eps=EPS)

    def forward(
        self, x: Float[Tensor, "b t d"], state: State | None = None, documents: Int[Tensor, "b j"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        a, z = self.in_proj(self.norm(x)).chunk(2, -1)
        h, before = state if state is not None else (None, a.new_zeros(len(a), KERNEL - 1, a.shape[2]))
        a = torch.cat([before, a], 1)
        before = a[:, -(KERNEL - 1) :]
        assert self.conv1d.bias is not None
        a = F.silu(short_convolution(a, self.conv1d.weight[:, 0], self.conv1d.bias, documents))
        dt, B, C = self.x_proj(a).split(self.sizes, -1)
        dt = F.softplus(self.dt_proj(dt))
        # A state accumulates many small numbers, so it is never kept in less than float32.
        state_dtype = torch.promote_types(torch.float32, x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            dt, B, C, a = (tensor.to(state_dtype) for tensor in (dt, B, C, a))
            A = -self.A_log.to(state_dtype).exp().T.contiguous()
            h = A.new_zeros(len(a), *A.shape) if h is None else h
            y, h = selective_scan(dt, dt * a, A, B, C, h, _carries_state(documents, dt))
            y = (y + self.D.to(state_dtype) * a).to(z.dtype)
        return x + self.dropout(self.out_proj(y * F.silu(z))), (h, before)


def _carries_state(documents: Tensor | None, like: Float[Tensor, "b t e"]) -> Tensor | None:
    """Return 0 for the first token of each document, which starts with an empty state, and 1 for all others."""
    return None if documents is None else in_same_document(documents, 1)[:, -like.shape[1] :].to(like.dtype)
