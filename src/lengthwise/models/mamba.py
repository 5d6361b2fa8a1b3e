"""Mamba-1 in one file: what Transformers are compared with, a model without attention and without positions.

Blocks x + mixer(norm(x)). The mixer reads a token and its three predecessors through a short convolution, and everything before
through a state of fixed size, which each token decays and adds to as much as it itself decides.
Source: Gu & Dao 2023; parameters, their names and their first values as state-spaces/mamba has them.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ConfigError, ModelConfig
from lengthwise.models.base import Model
from lengthwise.models.linear import Linear
from lengthwise.models.scan import selective_scan
from lengthwise.span import whole_numbers

EXPAND, KERNEL, EPS = 2, 4, 1e-5
SHORTEST, LONGEST = 1e-3, 0.1  # time steps at first: how far a channel's state decays at a token


class MambaCache:
    """What a Mamba keeps of the tokens so far: of each layer a state, and the last three inputs of the convolution."""

    def __init__(self, num_layers: int):
        self.states: list[Float[Tensor, "b n e"] | None] = [None] * num_layers
        self.inputs: list[Float[Tensor, "b k e"] | None] = [None] * num_layers
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens read

    def require(self, num_layers: int, rows: int, documents: bool) -> None:
        """Raise `ConfigError` where this is not the cache of such a model and batch."""
        if len(self.states) != num_layers:
            raise ConfigError(f"the cache was made for {len(self.states)} layers, and the model has {num_layers}")
        if not self.length:
            return
        held = next((len(state) for state in self.states if state is not None), rows)
        if held != rows:
            raise ConfigError(
                f"the cache holds {held} rows, and the input has {rows}; go on with the rows that it began with"
            )
        if (self.documents is not None) != documents:
            raise ConfigError("the cache began with documents or without: give them at every step or never")


class MambaBlock(nn.Module):
    """One layer, e = 2 d_model channels of n = state_size numbers each.

    a, z = in_proj(norm(x))                             x: [t, d_model]
    a    = silu(conv1d(a))                              each channel by itself, over 4 tokens
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
        self._initialise(config.num_layers)

    @torch.no_grad()
    def _initialise(self, num_layers: int) -> None:
        e, n = self.A_log.shape
        self.A_log.copy_(torch.arange(1, n + 1).log().expand(e, n))
        nn.init.uniform_(self.dt_proj.weight, -(self.sizes[0] ** -0.5), self.sizes[0] ** -0.5)
        dt = torch.empty(e).uniform_(math.log(SHORTEST), math.log(LONGEST)).exp()
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt
        self.out_proj.weight.div_(math.sqrt(num_layers))

    def forward(
        self,
        x: Float[Tensor, "b t d"],
        state: Float[Tensor, "b n e"] | None = None,
        before: Float[Tensor, "b k e"] | None = None,
        documents: Int[Tensor, "b j"] | None = None,
    ) -> tuple[Float[Tensor, "b t d"], Float[Tensor, "b n e"], Float[Tensor, "b k e"]]:
        """What the block adds to x; its state and the last inputs of its convolution, for the tokens that follow."""
        a, z = self.in_proj(self.norm(x)).chunk(2, -1)
        before = a.new_zeros(len(a), KERNEL - 1, a.shape[2]) if before is None else before
        a = torch.cat([before, a], 1)
        before, a = a[:, -(KERNEL - 1) :], F.silu(self._convolve(a, documents))
        dt, B, C = self.x_proj(a).split(self.sizes, -1)
        dt = F.softplus(self.dt_proj(dt))
        # A state gathers many small numbers: never in less than float32.
        wide = torch.promote_types(torch.float32, x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            dt, B, C, a = (part.to(wide) for part in (dt, B, C, a))
            A = -self.A_log.to(wide).exp().T.contiguous()
            state = A.new_zeros(len(a), *A.shape) if state is None else state
            y, state = selective_scan(dt, dt * a, A, B, C, state, _keep(documents, dt))
            y = (y + self.D.to(wide) * a).to(z.dtype)
        return self.out_proj(y * F.silu(z)), state, before

    def _convolve(self, a: Float[Tensor, "b j e"], documents: Tensor | None) -> Float[Tensor, "b t e"]:
        """Over the last 4 tokens of each token's document; `a` begins with the 3 tokens before the first."""
        t, weight = a.shape[1] - KERNEL + 1, self.conv1d.weight[:, 0].T
        assert self.conv1d.bias is not None
        out = torch.addcmul(self.conv1d.bias, a[:, KERNEL - 1 :], weight[-1])
        for back in range(1, KERNEL):
            part = a[:, KERNEL - 1 - back :][:, :t]
            if documents is not None:
                part = part * _same(documents, back)[:, -t:, None]
            out = torch.addcmul(out, part, weight[-1 - back])
        return out


def _same(documents: Int[Tensor, "b j"], back: int) -> Tensor:
    """Whether the token so many places before is of the same document."""
    there = documents[:, back:] == documents[:, : documents.shape[1] - back]
    return F.pad(there, (min(back, documents.shape[1]), 0))


def _keep(documents: Tensor | None, like: Float[Tensor, "b t e"]) -> Tensor | None:
    """0 where a document begins: its first token sees no state."""
    return None if documents is None else _same(documents, 1)[:, -like.shape[1] :].to(like.dtype)


class Mamba(Model):
    """Tokens [b, t] or vectors [b, t, input_width] in, logits [b, t, output_size] out, as `Decoder` has them.

    `config`: `ModelConfig.mamba(...)`. It reads no positions. Where it begins a document, in a batch of several or after left
    padding, its state is empty. Dropout acts on the embeddings and on what each block adds.
    """

    def __init__(
        self, config: ModelConfig, *, vocab_size: int | None = None, input_width: int | None = None, output_size: int
    ):
        super().__init__()
        if config.mixer != "mamba":
            raise ConfigError("a Mamba takes the settings of one; write ModelConfig.mamba(d_model=256, num_layers=32)")
        if (vocab_size is None) == (input_width is None):
            raise ConfigError("a Mamba reads tokens or vectors: give either vocab_size or input_width")
        self.config, d = config, config.d_model
        self.read = nn.Embedding(vocab_size, d) if vocab_size else nn.Linear(input_width or 0, d, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(MambaBlock(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(d, eps=EPS)
        self.write = nn.Linear(d, output_size, bias=False)
        for module in (self.read, self.write):  # as the decoder has them
            nn.init.normal_(
                module.weight, std=1.0 if module is self.read and vocab_size else module.weight.shape[1] ** -0.5
            )

    @property
    def backends_used(self) -> set[str]:
        return {"scan"}

    def new_cache(self) -> MambaCache:
        return MambaCache(self.config.num_layers)

    def forward(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        *,
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        cache: MambaCache | None = None,
    ) -> Float[Tensor, "b t o"]:
        """`documents`: tokens see their own alone (left padding: a document of its own, say -1); the tokens of one follow each
        other. With a `cache`, `inputs` are the tokens after those read, and the cache goes on to the last of them."""
        self._require_inputs(inputs)
        if inputs.shape[1] < 1:
            raise ConfigError("the input has no tokens; a sequence has at least one (start an empty one with <bos>)")
        if positions is not None:
            raise ConfigError("positions are given, and a Mamba reads none; leave them out")
        documents = whole_numbers("documents", documents, len(inputs), inputs.shape[1])
        if cache is not None:
            cache.require(self.config.num_layers, len(inputs), documents is not None)
        if documents is not None:
            documents = documents.expand(len(inputs), -1)
            if cache is not None and cache.documents is not None:
                documents = torch.cat([cache.documents, documents], 1)
            _require_together(documents)
        x, states, befores = self.dropout(self.read(inputs)), [], []
        for n, block in enumerate(self.blocks):
            added, state, before = block(x, cache and cache.states[n], cache and cache.inputs[n], documents)
            x = x + self.dropout(added)
            states.append(state)
            befores.append(before)
        if cache is not None:
            # Copies: a part of a tensor keeps all of it in memory.
            cache.states, cache.inputs, cache.documents = states, [before.clone() for before in befores], documents
            cache.length += inputs.shape[1]
        return self.write(self.norm(x))


def _require_together(documents: Int[Tensor, "b j"]) -> None:
    """Raise `ConfigError` where a document goes on after another: the state of the first part is gone by then."""
    begins = (documents[:, 1:] != documents[:, :-1]).sum(1)
    ordered = documents.sort(1).values
    different = (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    if bool((begins != different).any()):
        row = int((begins != different).nonzero()[0])
        raise ConfigError(
            f"row {row} comes back to a document after another one, and a Mamba reads each in one piece; put its tokens together"
        )
