"""Mamba-1 in one file: a model without attention and without positions, to compare Transformers with.

Blocks x + mixer(norm(x)). The mixer reads a token and its three predecessors through a short convolution, and all earlier
tokens through a state of fixed size. Each token determines how much the state decays and how much it adds to it.
Source: Gu & Dao 2023; parameters, their names and their initial values as in state-spaces/mamba.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.attention.cache import require_fitting_cache, select_rows
from lengthwise.config import ConfigError, ModelConfig
from lengthwise.models.base import Model
from lengthwise.models.linear import Linear
from lengthwise.models.scan import selective_scan
from lengthwise.span import token_integers

EXPAND, KERNEL, EPS = 2, 4, 1e-5
DT_MIN, DT_MAX = 1e-3, 0.1  # range of the initial time steps: how far a channel's state decays at a token


class MambaCache:
    """The state of every layer and the last three inputs of its convolution, after the tokens so far."""

    def __init__(self, num_layers: int):
        self.states: list[Float[Tensor, "b n e"] | None] = [None] * num_layers
        self.inputs: list[Float[Tensor, "b k e"] | None] = [None] * num_layers
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens processed

    def require(self, num_layers: int, rows: int, documents: bool) -> None:
        """Raise `ConfigError` unless this cache fits the model, the number of rows, and whether there are documents."""
        require_fitting_cache(self.states, num_layers, rows)
        if self.length and (self.documents is not None) != documents:
            raise ConfigError("documents must be passed at every step of a cache or at none")

    @property
    def rows(self) -> int:
        """The number of rows of the batch; 0 if the cache is empty."""
        return next((len(x) for x in self.states if x is not None), 0)

    def select_rows(self, rows: Int[Tensor, " n"]) -> None:
        """Keep the rows of the batch with these indices, in this order. A row may appear several times."""
        for layers in (self.states, self.inputs):
            layers[:] = [select_rows(x, rows) for x in layers]
        self.documents = select_rows(self.documents, rows)


class MambaBlock(nn.Module):
    """One layer, e = 2 d_model channels of n = state_size numbers each.

    a, z = in_proj(norm(x))                             x: [t, d_model]
    a    = silu(conv1d(a))                              depthwise, over 4 tokens
    dt, B, C = x_proj(a);   dt = softplus(dt_proj(dt))
    h_t  = exp(dt_t A) h_{t−1} + dt_t B_t a_t,  A = −exp(A_log)
    out  = out_proj((C_t · h_t + D a_t) silu(z))
    """

    not_decayed = ("A_log", "D")

    def __init__(self, config: ModelConfig):
        super().__init__()
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

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        state: Float[Tensor, "b n e"] | None = None,
        before: Float[Tensor, "b k e"] | None = None,
        documents: Int[Tensor, "b j"] | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b n e"], Float[Tensor, "b k e"]]:
        """Return what the block adds to x, and its state and the last inputs of its convolution for the next call.

        `before`: the last inputs of the convolution from the previous call.
        """
        a, z = self.in_proj(self.norm(x)).chunk(2, -1)
        before = a.new_zeros(len(a), KERNEL - 1, a.shape[2]) if before is None else before
        a = torch.cat([before, a], 1)
        before, a = a[:, -(KERNEL - 1) :], F.silu(self._convolve(a, documents))
        dt, B, C = self.x_proj(a).split(self.sizes, -1)
        dt = F.softplus(self.dt_proj(dt))
        # A state accumulates many small numbers, so it is never kept in less than float32.
        state_dtype = torch.promote_types(torch.float32, x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            dt, B, C, a = (part.to(state_dtype) for part in (dt, B, C, a))
            A = -self.A_log.to(state_dtype).exp().T.contiguous()
            state = A.new_zeros(len(a), *A.shape) if state is None else state
            y, state = selective_scan(dt, dt * a, A, B, C, state, _carries_state(documents, dt))
            y = (y + self.D.to(state_dtype) * a).to(z.dtype)
        return self.out_proj(y * F.silu(z)), state, before

    def _convolve(self, a: Float[Tensor, "b j e"], documents: Tensor | None) -> Float[Tensor, "b t e"]:
        """Convolve over the last 4 tokens of each token's document. `a` begins with the 3 tokens before the first."""
        t, weight = a.shape[1] - KERNEL + 1, self.conv1d.weight[:, 0].T
        assert self.conv1d.bias is not None
        out = torch.addcmul(self.conv1d.bias, a[:, KERNEL - 1 :], weight[-1])
        for lag in range(1, KERNEL):
            shifted = a[:, KERNEL - 1 - lag :][:, :t]
            if documents is not None:
                shifted = shifted * _in_same_document(documents, lag)[:, -t:, None]
            out = torch.addcmul(out, shifted, weight[-1 - lag])
        return out


def _in_same_document(documents: Int[Tensor, "b j"], lag: int) -> Tensor:
    """Whether the token `lag` tokens before each token belongs to the same document."""
    same = documents[:, lag:] == documents[:, : documents.shape[1] - lag]
    return F.pad(same, (min(lag, documents.shape[1]), 0))


def _carries_state(documents: Tensor | None, like: Float[Tensor, "b t e"]) -> Tensor | None:
    """Return 0 for the first token of each document, which starts with an empty state, and 1 for all others."""
    return None if documents is None else _in_same_document(documents, 1)[:, -like.shape[1] :].to(like.dtype)


class Mamba(Model):
    """A Mamba from tokens [b, t] or vectors [b, t, input_width] to logits [b, t, output_size], like `Decoder`.

    `config`: `ModelConfig.mamba(...)`. It takes no positions. Its state is empty at the start of every document, for packed
    documents and after left padding. Dropout is applied to the embeddings and to the output of each block.
    """

    def __init__(
        self, config: ModelConfig, *, vocab_size: int | None = None, input_width: int | None = None, output_size: int
    ):
        super().__init__()
        if config.mixer != "mamba":
            raise ConfigError("config must be a Mamba's; write ModelConfig.mamba(d_model=256, num_layers=32)")
        if (vocab_size is None) == (input_width is None):
            raise ConfigError("a Mamba takes tokens or vectors; pass either vocab_size or input_width")
        self.config, d = config, config.d_model
        self.token_embedding = nn.Embedding(vocab_size, d) if vocab_size else None
        self.input_projection = None if vocab_size else nn.Linear(input_width or 0, d, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(MambaBlock(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(d, eps=EPS)
        self.lm_head = nn.Linear(d, output_size, bias=False)
        # The same scales as in the decoder.
        if self.token_embedding is not None:
            nn.init.normal_(self.token_embedding.weight, std=1.0)
        for module in (self.input_projection, self.lm_head):
            if module is not None:
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    @property
    def backends_used(self) -> set[str]:
        return {"scan"}

    def new_cache(self, capacity: int = 0) -> MambaCache:
        return MambaCache(self.config.num_layers)

    def forward(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        *,
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        cache: MambaCache | None = None,
    ) -> Float[Tensor, "b t o"]:
        """Return the logits.

        `documents`: a token sees only its own document (left padding is a document of its own, for example -1), and the tokens
        of a document must be contiguous. With a `cache`, `inputs` are the tokens after those processed so far, and the cache
        is updated.
        """
        self._require_inputs(inputs)
        if positions is not None:
            raise ConfigError("a Mamba takes no positions; leave them out")
        documents = token_integers("documents", documents, len(inputs), inputs.shape[1])
        if cache is not None:
            cache.require(self.config.num_layers, len(inputs), documents is not None)
        if documents is not None:
            documents = documents.expand(len(inputs), -1)
            if cache is not None and cache.documents is not None:
                documents = torch.cat([cache.documents, documents], 1)
            _require_contiguous_documents(documents)
        x, states, befores = self.dropout(self.embed_inputs(inputs)), [], []
        for n, block in enumerate(self.blocks):
            added, state, before = self.run_block(
                block, x, cache and cache.states[n], cache and cache.inputs[n], documents
            )
            x = x + self.dropout(added)
            states.append(state)
            befores.append(before)
        if cache is not None:
            # Clones, because a view would keep the whole tensor in memory.
            cache.states, cache.inputs, cache.documents = states, [before.clone() for before in befores], documents
            cache.length += inputs.shape[1]
        return self.lm_head(self.norm(x))


def _require_contiguous_documents(documents: Int[Tensor, "b j"]) -> None:
    """Raise `ConfigError` if a document continues after another one, because its state is lost by then."""
    begins = (documents[:, 1:] != documents[:, :-1]).sum(1)
    ordered = documents.sort(1).values
    different = (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    if bool((begins != different).any()):
        row = int((begins != different).nonzero()[0])
        raise ConfigError(
            f"the tokens of each document must be contiguous for a Mamba; in row {row} a document continues after another one"
        )
