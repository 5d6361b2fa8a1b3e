"""The common shape of an implementation of another library: one row of logits, and a small model around it.

An adapter says how to get these two from theirs; ours come from the encoding that is its counterpart, with the same
settings and the same weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from lengthwise.attention import KVCache, Mask, unsupported_reason, with_content
from lengthwise.attention.backends import reference
from lengthwise.config import Choice, ModelConfig
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import DenseBias
from lengthwise.models import Decoder
from lengthwise.span import Span

# What the models of both sides look like: heads enough for slopes that are no powers of two, grouped queries.
SHAPE = {"d_model": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2, "head_dim": 16, "d_ff": 128}
VOCABULARY = 61
TRAINED = 32  # the length that the models are made for


class Absent(Exception):
    """This implementation has nothing that the question could be put to: says why."""


@dataclass(frozen=True)
class Scene:
    """One query at position `query` and keys at the positions `keys` [m] of a sequence of `length` tokens.

    q [h, d], k [h, m, d]: the same for both sides, in the dtype that is asked about.
    """

    length: int
    query: int
    keys: Tensor
    q: Tensor
    k: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    def wide(self) -> "Scene":
        return replace(self, q=self.q.double(), k=self.k.double())


class Model(ABC):
    """A small causal language model: logits are [b, t, vocabulary], of the tokens [b, t] in evaluation mode."""

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """All tokens at once."""

    @abstractmethod
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        """The first `prompt` tokens at once, the others one by one with the cache."""

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        """All tokens at once; the first `padding[row]` of a row are padding."""
        raise Absent("its forward has no padding")

    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """All tokens at once; a row is documents of these lengths, positions begin anew in each."""
        raise Absent("its model takes no documents in a row")

    def packed_as_called(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """The same, where a plain call with these positions is another one than `packed`."""
        raise Absent("there is one way to call it")


class Ours(Model):
    """Our decoder."""

    def __init__(self, decoder: Decoder):
        self.decoder = decoder.eval()

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(tokens)

    @torch.no_grad()
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        cache = KVCache(self.decoder.config.num_layers)
        parts = [self.decoder(tokens[:, :prompt], cache=cache)]
        parts += [self.decoder(tokens[:, n : n + 1], cache=cache) for n in range(prompt, tokens.shape[1])]
        return torch.cat(parts, 1)

    @torch.no_grad()
    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        own = torch.arange(tokens.shape[1]) >= torch.tensor(padding)[:, None]
        return self.decoder(tokens, documents=own.long())

    @torch.no_grad()
    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        return self.decoder(tokens, documents=documents.expand(len(tokens), -1))


class Implementation(ABC):
    """One implementation of another library and its counterpart here."""

    library: ClassVar[str]
    because: ClassVar[dict[str, str]] = {}  # question: why theirs departs from the formula, where it does
    every_key = False  # a pair's logit depends on what is between: no key can be left out
    bidirectional = False  # keys after the query too
    trained = 2048  # what its rows are made for

    def __init__(self, name: str, choice: Choice, *, heads: int = 12, head_dim: int = 64):
        self.name, self.choice, self.heads, self.head_dim = name, choice, heads, head_dim

    @property
    def label(self) -> str:
        """What is its counterpart here."""
        return self.choice.label

    @abstractmethod
    def row(self, scene: Scene) -> Tensor:
        """Theirs, cast to the dtype of the scene with `.to(dtype)`: [h, m] logits, with the scale 1/sqrt(d)."""

    def loaded_row(self, scene: Scene) -> Tensor:
        """Theirs, loaded in the dtype of the scene, where that is something else."""
        raise Absent("it has no way of its own to be loaded in a dtype")

    def model(self) -> Model:
        """Theirs, made for `TRAINED` tokens, with weights that are the same at every call; where a table of positions has to
        be as long as what is read, it is."""
        raise Absent("a part without a model around it")

    def limited(self) -> Model:
        """Theirs with nothing in it that is larger than `TRAINED`."""
        return self.model()

    def give_weights(self, encoding: PositionEncoding) -> None:
        """Give ours the weights that theirs has, where there are any."""
        assert not list(encoding.parameters()), f"{self.name}: the weights are theirs to give"

    def decoder(self) -> Decoder:
        """Our model: with the weights of theirs where `same_model`, otherwise drawn."""
        torch.manual_seed(0)
        config = ModelConfig.llama(**{**SHAPE, "num_kv_heads": SHAPE["num_heads"]})
        return Decoder(config, self.choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=TRAINED)

    same_model = False  # whether `decoder` has the weights of `model`

    @cached_property
    def encoding(self) -> PositionEncoding:
        torch.manual_seed(0)
        context = {"num_heads": self.heads, "head_dim": self.head_dim, "d_model": self.heads * self.head_dim}
        made: PositionEncoding = self.choice.build(**context, train_length=self.trained)
        self.give_weights(made)
        return made

    @torch.no_grad()
    def our_row(self, scene: Scene, *, rounded_bias: bool = False) -> Tensor:
        """Ours: [h, m]. In half precision what is rotated is rounded, and the rest is float32, as on a CPU; `rounded_bias`:
        what is added as a bias is rounded too, as the sdpa backend does it on a GPU."""
        at, keys = torch.tensor([[scene.query]]), scene.keys[None]
        span, scale = Span(at, keys, scene.length), self.head_dim**-0.5
        modifiers, mask = self.encoding.modifiers(span), Mask(1, len(scene.keys), causal=False)
        if self.encoding.reads_content():
            modifiers = with_content(modifiers, self.encoding, self.encoding.features(self.inputs(scene)), span, mask)
        q, k = scene.q[None, :, None], scene.k[None]
        if rounded_bias and modifiers.terms and not unsupported_reason("sdpa", modifiers, span):
            compute = torch.promote_types(q.dtype, torch.float32)
            whole = sum(reference.dense(term, q, k, span, scale).to(compute) for term in modifiers.terms)
            modifiers = replace(modifiers, terms=(DenseBias(whole.to(q.dtype)),))  # type: ignore[union-attr]
        return reference.logits(modifiers, q, k, span, mask.visible(q.device)[:, None], scale)[0, :, 0].double()

    def inputs(self, scene: Scene) -> Tensor:
        """What the attention layer reads, [1, length, d_model], for encodings that depend on content."""
        draw = torch.Generator().manual_seed(scene.length)
        return torch.randn(1, scene.length, self.heads * self.head_dim, generator=draw).bfloat16().to(scene.dtype)
