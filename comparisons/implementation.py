"""The base classes of all comparisons: an implementation gives one row of logits, and a small model around it.

A subclass computes both with another library ("theirs"). "Ours" are computed here by the corresponding encoding of
Lengthwise, with the same settings and the same weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from lengthwise.attention import KVCache, Mask, unsupported_reason, with_content
from lengthwise.attention.backends import reference
from lengthwise.config import Choice, ModelConfig
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import PositionEncoding
from lengthwise.forms import DenseBias
from lengthwise.models import Decoder
from lengthwise.span import Span

# The models of both sides: grouped queries, and a number of heads for which ALiBi has slopes besides its powers of two.
SHAPE = {"d_model": 96, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2, "head_dim": 16, "d_ff": 128}
VOCABULARY = 61
TRAIN_LENGTH = 32  # of the models


@dataclass(frozen=True)
class RowInputs:
    """The inputs of one row of logits: a query at position `query` and keys at positions `keys` [m], in `length`
    tokens.

    q [h, d] and k [h, m, d] are the same for both sides, and have the dtype of the question.
    """

    length: int
    query: int
    keys: Tensor
    q: Tensor
    k: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    def in_float64(self) -> "RowInputs":
        return replace(self, q=self.q.double(), k=self.k.double())

    @property
    def product(self) -> Tensor:
        """The products of the query and all keys [h, m], scaled by 1/sqrt(d), in float64."""
        return (self.q[:, None].double() @ self.k.double().mT)[:, 0] * self.q.shape[-1] ** -0.5


def row_explanations(*, float32: str = "", bfloat16: str = "") -> dict[str, str]:
    """Return the reasons why rows differ: in float32 at far positions, and in bfloat16."""
    rows = {float32: ("value at 32768", "value at 10^5", "value at 10^6"),
            bfloat16: ("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5")}  # fmt: skip
    return {question: reason for reason, questions in rows.items() if reason for question in questions}


def with_rest(weights: Tensor) -> Tensor:
    """Return the logarithms of weights that sum to at most 1, and of what is left, which counts as another key."""
    weights = weights.double()
    return torch.cat([weights, (1 - weights.sum(-1, keepdim=True)).clamp(min=0)], -1).log()


class Model(ABC):
    """A small causal language model in evaluation mode. Its questions map tokens [b, t] to logits [b, t,
    vocabulary].
    """

    @abstractmethod
    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of one forward pass."""

    @abstractmethod
    def extend(self, tokens: Tensor, start: int, end: int, cache: Any) -> tuple[Tensor, Any]:
        """Return the logits of the tokens from `start` to `end`, and the cache with them. It is None before
        the first.
        """

    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        """Return the logits of a forward pass over the first `prompt` tokens, and of decoding the others with the
        cache.
        """
        logits, cache = self.extend(tokens, 0, prompt, None)
        parts = [logits]
        for n in range(prompt, tokens.shape[1]):
            logits, cache = self.extend(tokens, n, n + 1, cache)
            parts.append(logits)
        return torch.cat(parts, 1)

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        """Return the logits of one forward pass, in which the first `padding[row]` tokens of a row are padding."""
        raise NotApplicable("its forward pass has no argument for padding")

    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the logits of rows that are packed documents of these lengths. Positions start at 0 in
        each document.
        """
        raise NotApplicable("its model does not support packed documents")

    def packed_as_called(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Return the logits of a call with these positions and no further options, if `packed` needs options."""
        raise NotApplicable("it has only one way to be called with packed documents")


class OurModel(Model):
    def __init__(self, decoder: Decoder):
        self.decoder = decoder.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(tokens)

    def extend(self, tokens: Tensor, start: int, end: int, cache: KVCache | None) -> tuple[Tensor, KVCache]:
        cache = cache or KVCache(self.decoder.config.num_layers)
        return self.decoder(tokens[:, start:end], cache=cache), cache

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        documents = torch.arange(tokens.shape[1]) >= torch.tensor(padding)[:, None]
        return self.decoder(tokens, documents=documents.long())

    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
        return self.decoder(tokens, documents=documents.expand(len(tokens), -1))

    packed_as_called = packed


class Implementation(ABC):
    """One implementation of another library and its counterpart here."""

    library: ClassVar[str]
    needs_every_key = False  # the logit of a pair depends on the tokens between them
    has_our_architecture = False  # whether `decoder` can have the weights of `model`
    train_length, heads, head_dim = 2048, 12, 64  # of the rows

    def __init__(self, name: str, choice: Choice, explanations: dict[str, str] | None = None):
        self.name, self.choice = name, choice
        self.bidirectional = dict(choice.settings).get("bidirectional", False)
        self.explanations = explanations or {}  # question: why theirs departs from the formula

    @property
    def label(self) -> str:
        """The corresponding encoding of ours, with its settings."""
        return self.choice.label

    @property
    def encodings(self) -> set[str]:
        """The names of our encodings that are compared."""
        return {part.name for layer in self.choice.layers for part in layer.parts}

    @abstractmethod
    def row(self, inputs: RowInputs) -> Tensor:
        """Return their logits [h, m], scaled by 1/sqrt(d), with modules that were cast to the inputs' dtype by
        `.to(dtype)`.
        """

    def loaded_row(self, inputs: RowInputs) -> Tensor:
        """Return their logits with modules that were loaded in the inputs' dtype, if that differs from casting."""
        raise NotApplicable("loading it in a dtype is the same as casting it")

    def model(self) -> Model:
        """Return their model for `TRAIN_LENGTH` tokens, with the same weights at every call.

        If it needs a table of positions, the table is long enough for every question but "runs past".
        """
        raise NotApplicable("it is a module without a model")

    def short_model(self) -> Model:
        """Return their model with tables of at most `TRAIN_LENGTH` positions."""
        return self.model()

    def copy_weights(self, encoding: PositionEncoding) -> None:
        """Copy the weights of theirs into our encoding, if it has any."""
        assert not list(encoding.parameters()), f"{self.name} has parameters, so it must define copy_weights"

    def decoder(self) -> Decoder:
        """Return our model: with the weights of `model` if `has_our_architecture`, otherwise with random weights."""
        torch.manual_seed(0)
        config = ModelConfig.llama(**{**SHAPE, "num_kv_heads": SHAPE["num_heads"]})
        return Decoder(config, self.choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=TRAIN_LENGTH)

    @cached_property
    def encoding(self) -> PositionEncoding:
        torch.manual_seed(0)
        sizes = {"num_heads": self.heads, "head_dim": self.head_dim, "d_model": self.heads * self.head_dim}
        encoding = self.choice.build(**sizes, train_length=self.train_length)
        self.copy_weights(encoding)
        return encoding

    def our_row(self, inputs: RowInputs, *, rounded_bias: bool = False) -> Tensor:
        """Return our logits [h, m].

        In half precision rotated queries and keys are rounded, and everything else is float32, as on a CPU.
        `rounded_bias`: biases are rounded too, as by the sdpa backend on a GPU.
        """
        query, keys = torch.tensor([[inputs.query]]), inputs.keys[None]
        span, scale = Span(query, keys, inputs.length), self.head_dim**-0.5
        modifiers, mask = self.encoding.modifiers(span), Mask(1, len(inputs.keys), causal=False)
        if self.encoding.reads_content():
            features = self.encoding.features(self.layer_inputs(inputs))
            modifiers = with_content(modifiers, self.encoding, features, span, mask)
        q, k = inputs.q[None, :, None], inputs.k[None]
        if rounded_bias and modifiers.terms and not unsupported_reason("sdpa", modifiers, span):
            compute = torch.promote_types(q.dtype, torch.float32)
            bias = sum(term.dense(q, k, span, scale).to(compute) for term in modifiers.terms)
            modifiers = replace(modifiers, terms=(DenseBias(bias.to(q.dtype)),))
        return reference.logits(modifiers, q, k, span, mask.visible(q.device)[:, None], scale)[0, :, 0].double()

    def layer_inputs(self, inputs: RowInputs) -> Tensor:
        """Return the input of the attention layer [1, length, d_model], for encodings that depend on the content."""
        generator = torch.Generator().manual_seed(inputs.length)
        x = torch.randn(1, inputs.length, self.heads * self.head_dim, generator=generator)
        return x.bfloat16().to(inputs.dtype)


class Ours:
    """Our side of a comparison, with those methods of an implementation that the questions call."""

    def __init__(self, implementation: Implementation, *, rounded_bias: bool = False):
        self.implementation, self.rounded_bias = implementation, rounded_bias

    def row(self, inputs: RowInputs) -> Tensor:
        return self.implementation.our_row(inputs, rounded_bias=self.rounded_bias)

    loaded_row = row

    def model(self) -> Model:
        return OurModel(self.implementation.decoder())

    short_model = model
