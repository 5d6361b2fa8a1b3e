"""The base class of models: from tokens or vectors to logits, and generation of tokens."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lengthwise.config import ConfigError, ModelConfig


class Model(nn.Module, ABC):
    """A causal model from tokens [b, t] or vectors [b, t, input_width] to logits [b, t, output_size].

    A subclass defines `forward(inputs, *, positions, documents, cache)`, as documented in `Decoder`.
    """

    config: ModelConfig
    label: str  # what the model is, for messages
    token_embedding: nn.Embedding | None  # for token IDs; None if the inputs are vectors
    input_projection: nn.Linear | None  # for vectors; None if the inputs are token IDs
    lm_head: nn.Linear
    recompute: bool = False  # in training, compute the blocks again in the backward pass instead of keeping results

    def run_block(self, block: nn.Module, *inputs: Any) -> Any:
        """Return a block's output. With `recompute`, its intermediate results are not kept for the backward pass."""
        if self.recompute and self.training and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    @property
    def max_length(self) -> int | None:
        """The number of positions that the model supports; None: any."""
        return None

    @property
    @abstractmethod
    def backends_used(self) -> set[str]:
        """The names of the backends that have mixed the tokens so far."""

    @abstractmethod
    def new_cache(self, capacity: int = 0) -> Any:
        """Return an empty cache for `forward(cache=)`, for one text or one batch of texts.

        `capacity`: the expected number of tokens. It saves memory, because a cache without room for more tokens is
        copied.
        """

    def embed_inputs(self, inputs: Tensor) -> Tensor:
        """Return the vectors [b, t, d_model] of the inputs, before scaling and position encoding."""
        embed = self.input_projection if self.token_embedding is None else self.token_embedding
        assert embed is not None
        return embed(inputs)

    def _require_inputs(self, inputs: Tensor) -> None:
        if self.token_embedding is not None:
            if inputs.ndim != 2 or inputs.is_floating_point() or inputs.is_complex() or inputs.dtype == torch.bool:
                raise ConfigError(f"inputs must be token IDs [b, t], got {inputs.dtype} {tuple(inputs.shape)}")
            # On other devices, reading the values would wait for the device.
            if inputs.device.type == "cpu" and inputs.numel() and not torch.compiler.is_compiling():
                low, high = (int(n) for n in torch.aminmax(inputs))
                last = self.token_embedding.num_embeddings - 1
                if low < 0 or high > last:
                    raise ConfigError(f"token IDs must be 0 to {last}, got {low if low < 0 else high}")
        elif self.input_projection is not None:
            width = self.input_projection.in_features
            if inputs.ndim != 3 or inputs.shape[2] != width or not inputs.is_floating_point():
                raise ConfigError(f"inputs must be vectors [b, t, {width}], got {inputs.dtype} {tuple(inputs.shape)}")
        if inputs.shape[1] < 1:
            raise ConfigError("inputs must have at least one token, got none; start an empty sequence with <bos>")

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "b t"],
        steps: int,
        *,
        documents: Int[Tensor, "b t"] | None = None,
        positions: Callable[[Tensor, Tensor | None], Tensor | None] | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        stop: int | None = None,
        cached: bool = True,
        prefill_chunk_size: int | None = None,
    ) -> Int[Tensor, "b n"]:
        """Return the next tokens [b, n], n <= steps: greedy at temperature 0, otherwise drawn with `generator`.

        Generation ends early when every row has produced `stop`; a row that has produced it repeats it. `documents` [b,
        t] marks left padding (see `forward`); generated tokens belong to the document of the last token.
        `positions(tokens, documents)` returns the position IDs of the tokens so far [b, n], and those of generated
        tokens as they come; an additional token must not change them. None, or no function: 0, 1, 2, ... in each
        document. `cached=False` runs the whole prefix at every step. `prefill_chunk_size`: the most prompt tokens in a
        forward pass with the cache, to need less memory for logits. None: the whole prompt.
        """
        if self.training:
            raise ConfigError("generate() needs the model in evaluation mode; call model.eval() first")
        if not (temperature == 0 or 1e-4 <= temperature < math.inf):
            raise ConfigError(f"temperature must be 0 (greedy), or finite and at least 0.0001, got {temperature}")
        if steps < 0:
            raise ConfigError(f"steps must be at least 0, got {steps}")
        if prefill_chunk_size is not None and (prefill_chunk_size < 1 or not cached):
            raise ConfigError(
                f"prefill_chunk_size must be at least 1, and needs cached=True, got {prefill_chunk_size} and {cached=}"
            )
        cache = self.new_cache() if cached else None
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        first, end = 0, tokens.shape[1]  # the tokens of the next forward pass
        prompt = end

        def forward(until: int) -> Tensor:
            """Return the logits of the last one of the tokens `first` ... `until` - 1."""
            new_documents = None if documents is None else documents[:, first:until]
            ids = None if positions is None else positions(tokens, documents)
            new_positions = {} if ids is None else {"positions": ids[:, first:until]}
            return self(tokens[:, first:until], documents=new_documents, cache=cache, **new_positions)[:, -1]

        while prefill_chunk_size is not None and steps and end - first > prefill_chunk_size:
            forward(first + prefill_chunk_size)
            first += prefill_chunk_size
        for _ in range(steps):
            logits = forward(end)
            if temperature:
                probabilities = (logits.float() / temperature).softmax(-1)
                next_token = torch.multinomial(probabilities, 1, generator=generator)
            else:
                next_token = logits.argmax(-1, keepdim=True)
            if stop is not None:
                next_token = next_token.masked_fill(ended[:, None], stop)
                ended |= next_token[:, 0] == stop
            tokens = torch.cat([tokens, next_token], 1)
            if documents is not None:
                documents = torch.cat([documents, documents[:, -1:]], 1)
            first, end = (end if cached else 0), end + 1
            if ended.all():
                break
        return tokens[:, prompt:]
