"""A decoder-only Transformer in one file, configured like GPT, Llama or T5, with any position encoding or none.

Pre-norm blocks: x + attention(norm(x)), then x + mlp(norm(x)). Only the position encoding depends on positions.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.attention import KVCache, Mask, Plan, check_backend, plan, with_content
from lengthwise.config import Choice, ConfigError, ModelConfig
from lengthwise.config.choices import require_choice
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.combined import Combinations, layer_modules
from lengthwise.encodings.contract import effective_length_of, embedded, features_of, modifiers_of
from lengthwise.forms import AttentionModifiers
from lengthwise.models.base import Model
from lengthwise.models.linear import Linear
from lengthwise.models.mlp import WithMLP, norm
from lengthwise.positions import consecutive
from lengthwise.span import PairBlock, Span, document_lengths, lowest_and_highest, token_integers, token_positions

Watch = Callable[[int, AttentionModifiers, Span, Mask, Tensor, Tensor, float], None]


class Block(WithMLP):
    """One layer: attention with `num_heads` query heads and `num_kv_heads` key heads, then the MLP."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        c = config
        self.heads, self.kv_heads, self.head_dim = c.num_heads, c.kv_heads, c.head_width
        self.scale = 1.0 if c.t5_scaling else self.head_dim**-0.5
        self.attention_norm, self.mlp_norm = norm(c), norm(c)
        self.q_norm, self.k_norm = (nn.RMSNorm(self.head_dim, eps=1e-6) if c.qk_norm else None for _ in range(2))
        self.qkv = Linear(c.d_model, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=c.bias)
        self.out = Linear(self.heads * self.head_dim, c.d_model, bias=c.bias)
        self.add_mlp(c)
        self.dropout = nn.Dropout(c.dropout)

    def qkv_heads(self, normed: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return q [b, h, t, d] and k, v [b, g, t, d] of the attention layer's normalized input."""
        sizes = [n * self.head_dim for n in (self.heads, self.kv_heads, self.kv_heads)]
        projections = self.qkv(normed).split(sizes, -1)
        q, k, v = (projection.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for projection in projections)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        return q, k, v

    def forward(self, x: Float[Tensor, "b t c"], attend: Any) -> Float[Tensor, "b t c"]:
        normed = self.attention_norm(x)
        out = attend(normed, *self.qkv_heads(normed), scale=self.scale)
        x = x + self.dropout(self.out(out.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(x))


class _BackendsUsed:
    """The names of the backends used so far, as attributes, which a graph writes without depending on them."""


class Decoder(Model):
    """A Transformer from tokens [b, t] or vectors [b, t, input_width] to logits [b, t, output_size].

    `encoding` is a choice (`choose(FIRE, hidden_layers=1)`); the model passes `num_heads`, `head_dim`, `d_model` and
    `train_length` to it. A pattern of choices (`alternate(choose(RoPE), choose(NoPE))`) repeats over the layers.
    `config.share_encoding`: one module for all layers of a choice, or one per layer (None: as in the encoding's
    source). A choice may give its layers a window, a temperature and sinks (`config.layers`), whose modules are in
    `encodings` too. The modifiers are computed once per module and forward pass. `backend`: see `attention.plan`;
    `backends_used` records which backends "auto" selected. Dropout is applied to the embeddings and to the outputs of
    attention and MLP. It is not applied to attention weights, inside the MLP, or after the last norm.
    """

    label = "a Transformer"

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
            raise ConfigError(
                f"config must be a Transformer's, got {MIXERS[config.mixer].label}'s; use MixerModel(config, ...)"
            )
        if (vocab_size is None) == (input_width is None):
            raise ConfigError("a decoder takes tokens or vectors; pass either vocab_size or input_width")
        if config.tie_embeddings and vocab_size != output_size:
            raise ConfigError(
                f"vocab_size and output_size must be equal with tied embeddings, got {vocab_size} and {output_size}"
            )
        require_choice("a decoder's encoding", encoding)
        encoding.require_layers(config.num_layers)
        if type(train_length) is not int or train_length < 1:
            raise ConfigError(f"train_length must be a whole number of tokens, at least 1, got {train_length!r}")
        self.config, self.backend = config, check_backend(backend)
        self._backends_used = _BackendsUsed()
        self.token_embedding = nn.Embedding(vocab_size, config.d_model) if vocab_size else None
        self.input_projection = None if vocab_size else nn.Linear(input_width or 0, config.d_model, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = norm(config)
        self.lm_head = nn.Linear(config.d_model, output_size, bias=False)
        self._initialize()
        if config.tie_embeddings:
            assert self.token_embedding is not None
            self.lm_head.weight = self.token_embedding.weight
        # Last, so that models of one seed start with the same weights whatever random numbers their encoding draws.
        sizes = {"num_heads": config.num_heads, "head_dim": config.head_width, "d_model": config.d_model}
        context = {**sizes, "train_length": train_length}
        modules, self.module_indices = layer_modules(encoding, config.num_layers, config.share_encoding, context)
        self.encodings, self._combinations = nn.ModuleList(modules), Combinations()
        self.windows = [encoding.layers[n % len(encoding.layers)].layer.window for n in range(config.num_layers)]

    @property
    def encoding_of_layer(self) -> list[int]:
        """The index of each layer's encoding in `encodings`, without its temperature and sinks."""
        return [indices[0] for indices in self.module_indices]

    def _initialize(self) -> None:
        """Draw the initial weights.

        Token embeddings have unit scale, so that they and a sinusoidal table that is added have similar sizes. Every
        matrix keeps the scale of its input. What the blocks add is divided by sqrt(2 num_layers).
        """
        c = self.config
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                # Tied weights are also the output matrix; the embeddings are scaled up again in the forward pass.
                nn.init.normal_(module.weight, std=c.d_model**-0.5 if c.tie_embeddings and not c.t5_scaling else 1.0)
        for block in self._blocks():
            if c.t5_scaling:  # attention logits are not divided by sqrt(head_dim); q starts smaller instead
                block.qkv.weight.data[: block.heads * block.head_dim].mul_(block.head_dim**-0.5)
            else:
                for output in (block.out, block.down):
                    output.weight.data.mul_((2 * c.num_layers) ** -0.5)

    @property
    def max_length(self) -> int | None:
        """The number of positions that the encodings support; None: any."""
        return min((e.max_length for e in self.encoding_modules() if e.max_length is not None), default=None)

    @property
    def backends_used(self) -> set[str]:
        return set(vars(self._backends_used))

    def new_cache(self, capacity: int = 0) -> KVCache:
        return KVCache(self.config.num_layers, capacity)

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def encoding_modules(self) -> list[PositionEncoding]:
        """Return the encodings, one or one for each layer that has its own."""
        return cast(list[PositionEncoding], list(self.encodings))

    def _encoding(self, layer: int) -> PositionEncoding:
        return self._combinations.of(self.module_indices[layer], self.encoding_modules())

    def forward(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        *,
        positions: Int[Tensor, "#b t *axes"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        cache: KVCache | None = None,
        watch: Watch | None = None,
    ) -> Float[Tensor, "b t o"]:
        """Return the logits.

        `positions`: the position IDs, with several axes for encodings that have them. Default: 0, 1, 2, ... in each
        document, continued from the cache: a token follows the highest position of its row or document. `documents`:
        the document IDs; a token attends only to its own document (left padding is a document of its own, for example
        -1). With a `cache`, `inputs` are the tokens after the cached ones, and the cache is extended. `watch(layer,
        modifiers, span, mask, q, k, scale)` is called in every layer with the arguments of its attention.
        """
        self._require_inputs(inputs)
        tokens = inputs.shape[1]
        positions, axes = token_positions("positions", positions, len(inputs), tokens)
        documents = token_integers("documents", documents, len(inputs), tokens)
        if cache is None:
            return self._forward(inputs, positions, axes, documents, None, watch)
        cache.require(self.config.num_layers, len(inputs), self._depends_on_length())
        before = cache.state()
        try:
            return self._forward(inputs, positions, axes, documents, cache, watch)
        except BaseException:
            cache.restore(before)
            raise

    def _forward(
        self,
        inputs: Tensor,
        positions: Tensor | None,
        axes: Tensor | None,
        documents: Tensor | None,
        cache: KVCache | None,
        watch: Watch | None,
    ) -> Tensor:
        past, tokens = cache.length if cache else 0, inputs.shape[1]
        span, mask = self._span(tokens, positions, axes, documents, cache, inputs.device)
        if cache is not None and self._depends_on_length():
            cache.remember(inputs)
            if past and self._scale_changed(cache, past):
                inputs, documents = cast(Tensor, cache.inputs), cache.documents
                positions, axes = None if cache.consecutive else cache.positions, cache.axes
                cache.restart()
                return self._forward(inputs, positions, axes, documents, cache, watch)[:, -tokens:]
        x = self.embed_inputs(inputs)
        if self.config.tie_embeddings and not self.config.t5_scaling:
            x = x * self.config.d_model**0.5
        x = self.dropout(embedded(self._encoding(0), x, span.q))
        attentions: dict[tuple[tuple[int, ...], int | None], _Attention] = {}
        for layer, block in enumerate(self._blocks()):
            indices, window = self.module_indices[layer], self.windows[layer]
            if (indices, window) not in attentions:
                attentions[indices, window] = _Attention(
                    self._encoding(layer), span, mask, window, self.backend, cache, watch
                )
            x = self.run_block(block, x, partial(attentions[indices, window], layer))
        for attention in attentions.values():
            setattr(self._backends_used, attention.backend_used, True)
        x = self.norm(x)
        if self.config.tie_embeddings and self.config.t5_scaling:  # T5 scales tied weights at the output
            x = x * self.config.d_model**-0.5
        return self.lm_head(x)

    def _span(
        self,
        tokens: int,
        positions: Tensor | None,
        axes: Tensor | None,
        documents: Tensor | None,
        cache: KVCache | None,
        device: torch.device,
    ) -> tuple[Span, Mask]:
        """Return the span and the mask of all layers. A cache is extended by the positions and documents."""
        past = cache.length if cache else 0
        consecutive_positions = positions is None and documents is None
        # Default positions are below the number of tokens, so a compiled graph need not read them.
        bounds_known = consecutive_positions or (positions is None and torch.compiler.is_compiling())
        if positions is None and documents is None:
            positions = torch.arange(tokens, device=device)[None]
            if cache and cache.positions is not None:
                start = cache.length if cache.consecutive else cache.positions.amax(1, keepdim=True) + 1
                positions = positions + start
        elif positions is None:
            assert documents is not None
            positions = consecutive(documents)
            if cache and cache.positions is not None and cache.documents is not None:
                same = documents[:, :, None] == cache.documents[:, None, :]
                positions = positions + (same * (cache.positions[:, None, :] + 1)).amax(-1)
        first, last = 0, (cache.highest if cache else -1) + tokens
        if not bounds_known:
            first, last = lowest_and_highest(positions if axes is None else axes)
        keys, axes_k, consecutive_keys = positions, axes, consecutive_positions
        if cache is not None:
            cache.extend(positions, documents, axes=axes, first=first, highest=last, consecutive=consecutive_positions)
            axes_k = cache.axes
            axes = None if axes_k is None else axes_k[:, -tokens:]
            assert cache.positions is not None
            keys, consecutive_keys, first, last = cache.positions, cache.consecutive, cache.first, cache.highest
            documents = cache.documents
        length_k = document_lengths(keys, documents) if self._depends_on_length() and not consecutive_keys else None
        length_q = None if length_k is None else length_k[:, -tokens:]
        span = Span(positions, keys, last + 1, consecutive_keys, length_q, length_k, first, axes, axes_k)
        return span, Mask(tokens, past + tokens, True, documents)

    def _depends_on_length(self) -> bool:
        return any(encoding.depends_on_length() for encoding in self.encoding_modules())

    def _scale_changed(self, cache: KVCache, past: int) -> bool:
        """Whether the first `past` tokens of the cache were processed under another scale than the current one."""
        positions, documents = cast(Tensor, cache.positions), cache.documents
        if cache.consecutive:
            before, now = torch.tensor([past]), torch.tensor([cache.length])
        else:
            before = document_lengths(positions[:, :past], None if documents is None else documents[:, :past])
            now = document_lengths(positions, documents)[:, :past]
        return any(
            bool((effective_length_of(e, before) != effective_length_of(e, now)).any())
            for e in self.encoding_modules()
            if e.depends_on_length()
        )


def _last_keys(span: Span, mask: Mask, window: int) -> tuple[Span, Mask]:
    """Return the span and the mask of a layer with a window: with only the keys that some query of the mask sees."""
    keys = min(mask.keys, mask.queries + window - 1)
    if keys == mask.keys:  # a window of at least as many keys changes nothing
        hides = torch.compiler.is_compiling() or window < keys
        return span, replace(mask, window=window) if hides else mask
    first = span.length - keys if span.consecutive else span.first
    documents = None if mask.documents is None else mask.documents[:, -keys:]
    span = replace(span.select(PairBlock(keys=slice(mask.keys - keys, None))), first=first)
    return span, replace(mask, keys=keys, documents=documents, window=window)


class _Attention:
    """The attention of all layers that share an encoding and a window, for one forward pass."""

    def __init__(
        self,
        encoding: PositionEncoding,
        span: Span,
        mask: Mask,
        window: int | None,
        backend: str,
        cache: KVCache | None,
        watch: Watch | None,
    ):
        self.encoding, self.window, self.backend, self.cache, self.watch = encoding, window, backend, cache, watch
        self.whole = span, mask
        self.span, self.mask = span, mask = (span, mask) if window is None else _last_keys(span, mask, window)
        self.modifiers = modifiers_of(encoding, span) if cache is None else cache.encodings.modifiers(encoding, span)
        rotates_keys = cache is not None and self.modifiers.caches_rotated_keys
        self.rotation = self.modifiers.rotation if rotates_keys else None
        if self.rotation and cache is not None:
            self.new_keys = self.rotation.keys_from(mask.keys - mask.queries)
            self.modifiers = replace(self.modifiers, rotation=self.rotation.queries_only())
        self.plan: Plan | None = None
        self.backend_used = ""

    def __call__(self, layer: int, x: Tensor, q: Tensor, k: Tensor, v: Tensor, *, scale: float) -> Tensor:
        """Return the attention output [b, h, t, d]. `x`: the layer's input, from which q, k and v are computed."""
        if self.cache is not None:
            if self.rotation:
                k = self.new_keys.rotate_key(k)
            k, v = self.cache.update(layer, k, v, self.window)
        modifiers, attend = self.modifiers, self.plan
        if self.encoding.reads_content():
            features = features_of(self.encoding, x)
            if self.cache is not None:
                window = self.window if self.encoding.content_is_local else None
                features = self.cache.update_features(layer, features, window)
            modifiers, attend = self._with_content(modifiers, features), None
        if self.watch is not None:
            self.watch(layer, modifiers, self.span, self.mask, q, k, scale)
        if attend is None:
            self.plan = attend = plan(modifiers, self.span, self.mask, q, backend=self.backend)
            self.backend_used = attend.backend
        return attend(q, k, v, scale=scale)

    def _with_content(self, modifiers: AttentionModifiers, features: Tensor) -> AttentionModifiers:
        """Return the modifiers with what the encoding computes from the features of all tokens, or of the last ones."""
        span, mask = self.whole
        if features.shape[1] == self.mask.keys:
            return with_content(modifiers, self.encoding, features, self.span, self.mask)
        content = with_content(AttentionModifiers(), self.encoding, features, span, mask)
        content = content.select(PairBlock(keys=slice(mask.keys - self.mask.keys, None)))
        return replace(
            modifiers,
            terms=(*modifiers.terms, *content.terms),
            rotation=modifiers.rotation if content.rotation is None else content.rotation,
            product=modifiers.product if content.product is None else content.product,
        )
