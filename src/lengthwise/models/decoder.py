"""A decoder-only Transformer in one file: GPT-like or Llama-like, with any position encoding or none.

Pre-norm blocks: x + attention(norm(x)), then x + mlp(norm(x)). The position encoding is the only thing in the model
that knows about positions.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.attention import KVCache, Mask, Plan, check_backend, plan, with_content
from lengthwise.choices import require_choice
from lengthwise.config import Choice, ConfigError, ModelConfig
from lengthwise.encodings.base import PositionEncoding
from lengthwise.forms import AttentionModifiers, KeyBias
from lengthwise.models.base import Model
from lengthwise.models.linear import Linear, swiglu
from lengthwise.positions import consecutive
from lengthwise.span import Span, ends, own_lengths, whole_numbers

Watch = Callable[[int, AttentionModifiers, Span, Mask, Tensor, Tensor, float], None]


class Block(nn.Module):
    """One layer: attention with `num_heads` query and `num_kv_heads` key heads, then the MLP."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        c = config
        self.heads, self.kv_heads, self.head_dim = c.num_heads, c.kv_heads, c.width_of_head
        self.scale = 1.0 if c.t5_scaling else self.head_dim**-0.5
        self.attention_norm, self.mlp_norm = norm(c), norm(c)
        self.qkv = Linear(c.d_model, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=c.bias)
        self.out = Linear(self.heads * self.head_dim, c.d_model, bias=c.bias)
        self.gated = c.mlp == "swiglu"
        self.up = Linear(c.d_model, c.hidden * (2 if self.gated else 1), bias=c.bias)
        self.down = Linear(c.hidden, c.d_model, bias=c.bias)
        activations: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu, "swiglu": F.silu}
        self.activation = activations[c.mlp]
        self.dropout = nn.Dropout(c.dropout)

    def qkv_heads(self, normed: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor, Tensor]:
        """q [b, h, t, d] and k, v [b, g, t, d] of the attention layer's input, which is normed."""
        sizes = [n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)]
        parts = self.qkv(normed).split(sizes, -1)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts)
        return q, k, v

    def mlp(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t c"]:
        h = self.up(self.mlp_norm(x))
        if self.gated:
            h = swiglu(h)
        else:
            h = self.activation(h)
        return self.down(h)

    def forward(self, x: Float[Tensor, "b t c"], attend: Any) -> Float[Tensor, "b t c"]:
        normed = self.attention_norm(x)
        out = attend(normed, *self.qkv_heads(normed), scale=self.scale)
        x = x + self.dropout(self.out(out.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(x))


def norm(config: ModelConfig) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.d_model, eps=1e-6)
    return nn.LayerNorm(config.d_model, bias=config.bias)


class _Took:
    """The backends that were taken, an attribute for each: only written, so that no compiled graph depends on them."""


class Decoder(Model):
    """Tokens [b, t] or vectors [b, t, input_width] in, logits [b, t, output_size] out.

    `encoding` is a choice (`choose(FIRE, hidden_layers=1)`); the model tells it `num_heads`, `head_dim`, `d_model` and
    `train_length`. A pattern of choices (`alternate(choose(RoPE), choose(NoPE))`) repeats over the layers.
    `config.share_encoding`: one module for all layers of a choice or one per layer (None: as the source has it); its
    modifiers are computed once per module and forward pass. `backend`: see `attention.plan`; `backends_used` records what
    "auto" took. Dropout acts on the embeddings and on what attention and MLP add, and nowhere else: not on attention weights,
    not inside the MLP, and not after the last norm.
    """

    def __init__(
        self,
        config: ModelConfig,
        encoding: Choice,
        *,
        vocab_size: int | None = None,
        input_width: int | None = None,
        output_size: int,
        train_length: int,
        backend: str = "auto",
    ):
        super().__init__()
        if config.mixer is not None:
            raise ConfigError("the config is a Mamba's; write Mamba(config, ...) for it")
        if (vocab_size is None) == (input_width is None):
            raise ConfigError("a decoder reads tokens or vectors: give either vocab_size or input_width")
        if config.tie_embeddings and vocab_size != output_size:
            raise ConfigError(f"tied embeddings need vocab_size {vocab_size} and output_size {output_size} to be equal")
        require_choice("a decoder's encoding", encoding)
        encoding.require_layers(config.num_layers)
        if type(train_length) is not int or train_length < 1:
            raise ConfigError(f"train_length is {train_length!r}; it has to be a whole number of tokens, at least 1")
        self.config, self.backend = config, check_backend(backend)
        self._took = _Took()
        self.read = (
            nn.Embedding(vocab_size, config.d_model)
            if vocab_size
            else nn.Linear(input_width or 0, config.d_model, bias=config.bias)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = norm(config)
        self.write = nn.Linear(config.d_model, output_size, bias=False)
        self._initialise()
        if config.tie_embeddings:
            self.write.weight = self.read.weight
        # Last, so that models of one seed start with the same weights whatever their encoding draws.
        self.encodings = nn.ModuleList()
        self.encoding_of_layer = self._encode(encoding, train_length)

    def _encode(self, encoding: Choice, train_length: int) -> list[int]:
        """Make the encodings; which of them each layer has."""
        c, of_layer = self.config, []
        context = {"num_heads": c.num_heads, "head_dim": c.width_of_head, "d_model": c.d_model}
        shared: dict[Choice, int] = {}
        for layer in range(c.num_layers):
            choice = encoding.layers[layer % len(encoding.layers)]
            make = cast(type[PositionEncoding], choice.make)
            share = make.shared_across_layers if c.share_encoding is None else c.share_encoding
            if choice in shared:
                of_layer.append(shared[choice])
                continue
            of_layer.append(len(self.encodings))
            self.encodings.append(choice.build(**context, train_length=train_length))
            if share or make.acts_on_embedding():
                shared[choice] = of_layer[-1]
        return of_layer

    def _initialise(self) -> None:
        """Tokens enter at unit scale, so that a sinusoidal table neither drowns them nor is drowned; every matrix keeps
        the scale of its input, and what the blocks add is divided by sqrt(2 num_layers)."""
        c = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                # Tied weights serve as the output matrix, and are scaled up again where they are read.
                nn.init.normal_(module.weight, std=c.d_model**-0.5 if c.tie_embeddings and not c.t5_scaling else 1.0)
        for block in self._blocks():
            if c.t5_scaling:  # logits are not divided by sqrt(head_dim): q is drawn smaller instead
                block.qkv.weight.data[: block.heads * block.head_dim].mul_(block.head_dim**-0.5)
            else:
                for last in (block.out, block.down):
                    last.weight.data.mul_((2 * c.num_layers) ** -0.5)

    @property
    def max_length(self) -> int | None:
        """Positions that the encoding can serve; None: any."""
        limits = [e.max_length for e in map(self._encoding, range(self.config.num_layers)) if e.max_length is not None]
        return min(limits, default=None)

    @property
    def backends_used(self) -> set[str]:
        return set(vars(self._took))

    def new_cache(self) -> KVCache:
        return KVCache(self.config.num_layers)

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _encoding(self, layer: int) -> PositionEncoding:
        return cast(PositionEncoding, self.encodings[self.encoding_of_layer[layer]])

    def forward(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        *,
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        cache: KVCache | None = None,
        watch: Watch | None = None,
    ) -> Float[Tensor, "b t o"]:
        """`positions`: what the tokens claim; when not given, 0, 1, 2, ... in each document, going on from the cache.
        `documents`: tokens see their own alone (left padding: a document of its own, say -1). With a `cache`, `inputs` are
        the tokens after those stored, and the cache is extended. `watch` is called in every layer with what its attention is
        called with: (layer, modifiers, span, mask, q, k, scale)."""
        self._require_inputs(inputs)
        tokens = inputs.shape[1]
        if tokens < 1:
            raise ConfigError("the input has no tokens; a sequence has at least one (start an empty one with <bos>)")
        positions = whole_numbers("positions", positions, len(inputs), tokens)
        documents = whole_numbers("documents", documents, len(inputs), tokens)
        if cache is None:
            return self._forward(inputs, positions, documents, None, watch)
        cache.require(self.config.num_layers, len(inputs), self._depends_on_length())
        before = cache.state()
        try:
            return self._forward(inputs, positions, documents, cache, watch)
        except BaseException:
            cache.back(before)  # as if it had not been tried
            raise

    def _forward(
        self,
        inputs: Tensor,
        positions: Tensor | None,
        documents: Tensor | None,
        cache: KVCache | None,
        watch: Watch | None,
    ) -> Tensor:
        past, tokens = cache.length if cache else 0, inputs.shape[1]
        span, mask = self._span(tokens, positions, documents, cache, inputs.device)
        if cache is not None and self._depends_on_length():
            cache.remember(inputs)
            if past and self._outdated(cache, past):
                inputs, documents = cast(Tensor, cache.inputs), cache.documents
                positions = None if cache.consecutive else cache.positions
                cache.restart()
                return self._forward(inputs, positions, documents, cache, watch)[:, -tokens:]
        x = self.read(inputs)
        if self.config.tie_embeddings and not self.config.t5_scaling:
            x = x * self.config.d_model**0.5
        x = self.dropout(self._encoding(0).embed(x, span.q))
        attentions: dict[int, _Attention] = {}
        for layer, block in enumerate(self._blocks()):
            which = self.encoding_of_layer[layer]
            if which not in attentions:
                attentions[which] = _Attention(self._encoding(layer), span, mask, self.backend, cache, watch)
            x = block(x, partial(attentions[which], layer))
        for attention in attentions.values():
            setattr(self._took, attention.used, True)
        x = self.norm(x)
        if self.config.tie_embeddings and self.config.t5_scaling:  # T5 scales the tied weights where they write
            x = x * self.config.d_model**-0.5
        return self.write(x)

    def _span(
        self,
        tokens: int,
        positions: Tensor | None,
        documents: Tensor | None,
        cache: KVCache | None,
        device: torch.device,
    ) -> tuple[Span, Mask]:
        past = cache.length if cache else 0
        plain = positions is None and documents is None
        # Counted from 0 in every document, positions are below the number of tokens: a graph need not look them up.
        known = plain or (positions is None and torch.compiler.is_compiling())
        if positions is None and documents is None:
            positions = torch.arange(tokens, device=device)[None]
            if cache and cache.positions is not None:
                positions = positions + (
                    cache.length if cache.consecutive else cache.positions.amax(1, keepdim=True) + 1
                )
        elif positions is None:
            assert documents is not None
            positions = consecutive(documents)
            if cache and cache.positions is not None and cache.documents is not None:
                same = documents[:, :, None] == cache.documents[:, None, :]
                positions = positions + (same * (cache.positions[:, None, :] + 1)).amax(-1)
        first, last = (0, (cache.furthest if cache else -1) + tokens) if known else ends(positions)
        keys: Tensor = positions
        plain_keys = plain
        if cache is not None:
            cache.extend(positions, documents, first=first, furthest=last, consecutive=plain)
            assert cache.positions is not None
            keys, plain_keys, first, last = cache.positions, cache.consecutive, cache.first, cache.furthest
            documents = cache.documents
        own = own_lengths(keys, documents) if self._depends_on_length() and not plain_keys else None
        own_q = None if own is None else own[:, -tokens:]
        return Span(positions, keys, last + 1, plain_keys, own_q, own, first), Mask(
            tokens, past + tokens, True, documents
        )

    def _depends_on_length(self) -> bool:
        return any(cast(PositionEncoding, encoding).depends_on_length() for encoding in self.encodings)

    def _outdated(self, cache: KVCache, past: int) -> bool:
        """Whether the first `past` tokens of the cache were read under another scale than that of the length now."""
        positions, documents = cast(Tensor, cache.positions), cache.documents
        if cache.consecutive:
            before, now = torch.tensor([past]), torch.tensor([cache.length])
        else:
            before = own_lengths(positions[:, :past], None if documents is None else documents[:, :past])
            now = own_lengths(positions, documents)[:, :past]
        encodings = [cast(PositionEncoding, encoding) for encoding in self.encodings]
        return any(
            bool((e.effective_length(before) != e.effective_length(now)).any())
            for e in encodings
            if e.depends_on_length()
        )


class _Attention:
    """Attention of the layers that share one encoding, in one forward pass; through the cache where there is one."""

    def __init__(
        self,
        encoding: PositionEncoding,
        span: Span,
        mask: Mask,
        backend: str,
        cache: KVCache | None,
        watch: Watch | None,
    ):
        self.encoding, self.span, self.mask, self.backend, self.cache = encoding, span, mask, backend, cache
        self.watch = watch
        self.modifiers = encoding.modifiers(span) if cache is None else cache.encodings.modifiers(encoding, span)
        self.modifiers = replace(self.modifiers, encoding=type(encoding).__name__)
        self.rotation = self.modifiers.rotation if cache is not None else None
        if any(isinstance(term, KeyBias) for term in self.modifiers.terms):
            self.rotation = None  # a term that reads keys reads them before they are rotated
        if self.rotation:  # keys go into the cache rotated
            self.modifiers = replace(self.modifiers, rotation=self.rotation.queries_only())
        self.plan: Plan | None = None
        self.used = ""

    def __call__(self, layer: int, x: Tensor, q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
        """`x`: the layer's input, which q, k and v are made from."""
        if self.cache is not None:
            if self.rotation:
                k = self.rotation.keys_from(self.cache.length - k.shape[2]).key(k)
            k, v = self.cache.update(layer, k, v)
        modifiers, attend = self.modifiers, self.plan
        if self.encoding.reads_content():
            features = self.encoding.features(x)
            if self.cache is not None:
                features = self.cache.keep(layer, features)
            modifiers, attend = with_content(modifiers, self.encoding, features, self.span, self.mask), None
        if self.watch is not None:
            self.watch(layer, modifiers, self.span, self.mask, q, k, scale)
        if attend is None:
            self.plan = attend = plan(modifiers, self.span, self.mask, q, backend=self.backend)
            self.used = attend.backend
        return attend(q, k, v, scale=scale)
