"""A model without softmax attention: embedding, blocks with one of the mixers, norm and output matrix."""

from importlib import import_module
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.attention.cache import require_fitting_cache, select_rows
from lengthwise.config import Choice, ConfigError, ModelConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import NoPE
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import embedded
from lengthwise.models.base import Model
from lengthwise.models.mixers.base import MixerBlock, State
from lengthwise.positions import consecutive
from lengthwise.span import token_integers


def block_class(mixer: str) -> type[MixerBlock]:
    """Return the class of a mixer's blocks. Its module is named like the mixer, and the class like the label."""
    module = import_module(f"lengthwise.models.mixers.{mixer}")
    return cast(type[MixerBlock], getattr(module, MIXERS[mixer].label))


class MixerCache:
    """The states of all layers after the tokens so far, and the document IDs of these tokens."""

    def __init__(self, num_layers: int):
        self.states: list[State | None] = [None] * num_layers
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens processed

    def require(self, num_layers: int, rows: int, documents: bool) -> None:
        """Raise `ConfigError` unless this cache fits the model, the number of rows, and whether there are documents."""
        require_fitting_cache([None if state is None else state[0] for state in self.states], num_layers, rows)
        if self.length and (self.documents is not None) != documents:
            raise ConfigError("documents must be passed at every step of a cache or at none")

    @property
    def rows(self) -> int:
        """The number of rows of the batch; 0 if the cache is empty."""
        return next((len(state[0]) for state in self.states if state is not None), 0)

    def select_rows(self, rows: Int[Tensor, " n"]) -> None:
        """Keep the rows of the batch with these indices, in this order. A row may appear several times."""
        self.states = [state and tuple(x.index_select(0, rows.to(x.device)) for x in state) for state in self.states]
        self.documents = select_rows(self.documents, rows)


class MixerModel(Model):
    """A model without attention, from tokens or vectors to logits, as `Decoder`.

    `config.mixer` names the mixer of its blocks. `encoding`: one that the mixer accepts (`config/mixers.py`); it acts
    on the embeddings, or does nothing. The state is empty at the start of every document, for packed documents and
    after left padding. Dropout is applied to the embeddings and to what each block adds.
    """

    def __init__(
        self,
        config: ModelConfig,
        encoding: Choice | None = None,
        *,
        vocab_size: int | None = None,
        input_width: int | None = None,
        output_size: int,
        train_length: int,
    ):
        super().__init__()
        if config.mixer is None:
            raise ConfigError(
                f"config must have a mixer, one of {', '.join(MIXERS)}; use Decoder(config, ...) for attention"
            )
        if (vocab_size is None) == (input_width is None):
            raise ConfigError("a model takes tokens or vectors; pass either vocab_size or input_width")
        self.config, d = config, config.d_model
        self.label, make = MIXERS[config.mixer].label, block_class(config.mixer)
        self.token_embedding = nn.Embedding(vocab_size, d) if vocab_size else None
        self.input_projection = None if vocab_size else nn.Linear(input_width or 0, d, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(make(config, layer, train_length) for layer in range(config.num_layers))
        self.norm = make.final_norm(config)
        self.lm_head = nn.Linear(d, output_size, bias=False)
        # The same scales as in the decoder.
        if self.token_embedding is not None:
            nn.init.normal_(self.token_embedding.weight, std=1.0)
        for module in (self.input_projection, self.lm_head):
            if module is not None:
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        choice = choose(NoPE) if encoding is None else encoding
        self.encodings = nn.ModuleList([choice.build(d_model=d, train_length=train_length)])

    @property
    def encoding(self) -> PositionEncoding:
        return cast(PositionEncoding, self.encodings[0])

    @property
    def max_length(self) -> int | None:
        return self.encoding.max_length

    @property
    def backends_used(self) -> set[str]:
        return {cast(MixerBlock, self.blocks[0]).backend}

    def new_cache(self, capacity: int = 0) -> MixerCache:
        return MixerCache(self.config.num_layers)

    def forward(
        self,
        inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
        *,
        positions: Int[Tensor, "#b t"] | None = None,
        documents: Int[Tensor, "#b t"] | None = None,
        cache: MixerCache | None = None,
    ) -> Float[Tensor, "b t o"]:
        """Return the logits.

        `positions`: the position IDs, for encodings that act on the embeddings. Default: 0, 1, 2, ... in each document.
        `documents`: a token sees only its own document (left padding is a document of its own, for example -1), and the
        tokens of a document must be contiguous. With a `cache`, `inputs` are the tokens after those processed so far,
        and the cache is updated.
        """
        self._require_inputs(inputs)
        rows, tokens = inputs.shape[:2]
        if positions is not None and not self.encoding.acts_on_embedding():
            raise ConfigError(f"{self.label} takes no positions; leave them out")
        positions = token_integers("positions", positions, rows, tokens)
        documents = token_integers("documents", documents, rows, tokens)
        if cache is not None:
            cache.require(self.config.num_layers, rows, documents is not None)
        if documents is not None:
            documents = documents.expand(rows, -1)
            if cache is not None and cache.documents is not None:
                documents = torch.cat([cache.documents, documents], 1)
            _require_contiguous_documents(documents)
        x = self.embed_inputs(inputs)
        if self.encoding.acts_on_embedding():
            if positions is None:
                past = cache.length if cache is not None else 0
                counted = torch.arange(past + tokens, device=x.device)[None]
                positions = (counted if documents is None else consecutive(documents))[:, -tokens:]
            x = embedded(self.encoding, x, positions)
        x, states = self.dropout(x), []
        for n, block in enumerate(self.blocks):
            x, state = self.run_block(block, x, cache and cache.states[n], documents)
            states.append(state)
        if cache is not None:
            # Clones, because a view would keep the whole tensor in memory.
            cache.states = [
                tuple(tensor.clone() if tensor._is_view() else tensor for tensor in state) for state in states
            ]
            cache.documents = documents
            cache.length += tokens
        return self.lm_head(self.norm(x))


def _require_contiguous_documents(documents: Int[Tensor, "b j"]) -> None:
    """Raise `ConfigError` if a document continues after another one, because its state is lost by then."""
    begins = (documents[:, 1:] != documents[:, :-1]).sum(1)
    ordered = documents.sort(1).values
    different = (ordered[:, 1:] != ordered[:, :-1]).sum(1)
    if bool((begins != different).any()):
        row = int((begins != different).nonzero()[0])
        raise ConfigError(
            "the tokens of each document must be contiguous for a model without attention; in row "
            f"{row} a document continues after another one"
        )
