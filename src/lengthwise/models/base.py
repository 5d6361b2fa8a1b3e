"""What every model has: tokens or vectors in, logits out, the next tokens one by one."""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lengthwise.config import ConfigError, ModelConfig


class Model(nn.Module, ABC):
    """Tokens [b, t] or vectors [b, t, input_width] in, logits [b, t, output_size] out; every token sees those before it.

    A subclass has `forward(inputs, *, positions, documents, cache)`, as `Decoder` describes it.
    """

    config: ModelConfig
    read: nn.Embedding | nn.Linear

    @property
    def max_length(self) -> int | None:
        """Positions that the model can serve; None: any."""
        return None

    @property
    @abstractmethod
    def backends_used(self) -> set[str]:
        """What computed the mixing of tokens so far."""

    @abstractmethod
    def new_cache(self) -> Any:
        """An empty cache for `forward(cache=)`: for one text, or one batch of texts."""

    def _require_inputs(self, inputs: Tensor) -> None:
        reads = self.read
        if isinstance(reads, nn.Embedding):
            if inputs.ndim != 2 or inputs.is_floating_point() or inputs.is_complex() or inputs.dtype == torch.bool:
                raise ConfigError(f"the input is {inputs.dtype} {tuple(inputs.shape)}; it has to be token ids [b, t]")
            # Elsewhere it would have to be waited for.
            if inputs.device.type == "cpu" and inputs.numel() and not torch.compiler.is_compiling():
                low, high = (int(n) for n in torch.aminmax(inputs))
                if low < 0 or high >= reads.num_embeddings:
                    wrong = low if low < 0 else high
                    raise ConfigError(f"there is no token {wrong}; the model knows 0 to {reads.num_embeddings - 1}")
        elif inputs.ndim != 3 or inputs.shape[2] != reads.weight.shape[1] or not inputs.is_floating_point():
            width = reads.weight.shape[1]
            raise ConfigError(
                f"the input is {inputs.dtype} {tuple(inputs.shape)}; it has to be vectors [b, t, {width}]"
            )

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "b t"],
        steps: int,
        *,
        documents: Int[Tensor, "b t"] | None = None,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        stop: int | None = None,
        cached: bool = True,
    ) -> Int[Tensor, "b n"]:
        """The next tokens, n <= steps: greedy at temperature 0, otherwise drawn with `generator`. Ends early when every row
        has produced `stop`; a row repeats `stop` after its first. `documents` [b, t] marks left padding (see `forward`); what
        is generated belongs to the document of the last token. `cached=False` runs the whole prefix at every step."""
        if self.training:
            raise ConfigError("generate() needs the model in evaluation mode; call model.eval() first")
        if not (temperature == 0 or 1e-4 <= temperature < math.inf):
            raise ConfigError(f"temperature is {temperature}; it has to be 0 (greedy), or from 0.0001 up and finite")
        if steps < 0:
            raise ConfigError(f"steps is {steps}; it has to be 0 or more")
        cache = self.new_cache() if cached else None
        ended = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
        new, made, ids = tokens, tokens[:, :0], documents
        for _ in range(steps):
            logits = self(new, documents=ids, cache=cache)[:, -1]
            if temperature:
                chance = (logits.float() / temperature).softmax(-1)
                following = torch.multinomial(chance, 1, generator=generator)
            else:
                following = logits.argmax(-1, keepdim=True)
            if stop is not None:
                following = following.masked_fill(ended[:, None], stop)
                ended |= following[:, 0] == stop
            made = torch.cat([made, following], 1)
            if ended.all():
                break
            new = following if cached else torch.cat([new, following], 1)
            if ids is not None:
                ids = ids[:, -1:] if cached else torch.cat([ids, ids[:, -1:]], 1)
        return made
