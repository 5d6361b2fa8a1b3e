"""The protocol of mixers: what takes the place of attention in one layer, with a state for decoding."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models.mlp import WithMLP, norm

State = tuple[Tensor, ...]


class MixerBlock(nn.Module, ABC):
    """One layer of a model without attention: a mixer and what surrounds it, such as norms and an MLP.

    `layer` counts from 0. `train_length` is the training length in tokens. `backend` names how the tokens are mixed;
    the scores of a run are stored with it.

    The state is everything that later tokens need of earlier ones. It is a tuple of tensors whose first axis is the
    batch. None is the state before the first token. `documents` [b, j] has the document IDs of all tokens so far, those
    of earlier calls first; None: one document. A token sees only its own document, whose tokens are contiguous.
    """

    backend: str

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "b t d"], state: State | None = None, documents: Int[Tensor, "b j"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """Return the output of the layer, and its state after the last token."""

    @staticmethod
    def final_norm(config: ModelConfig) -> nn.Module:
        """Return the norm after the last layer."""
        return norm(config)


class MixerWithMLP(WithMLP, MixerBlock):
    """A layer like that of a pre-norm Transformer: x + mix(norm(x)), then x + mlp(mlp_norm(x)).

    A subclass creates its layers, then calls `finish`, and defines `mix`.
    """

    outputs: tuple[str, ...] = ("out", "down")  # the linear maps whose results are added to x

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        self.norm, self.mlp_norm = norm(config), norm(config)

    def finish(self, config: ModelConfig) -> None:
        """Create the MLP and draw the initial weights of all linear maps so far."""
        self.add_mlp(config)
        draw_weights(self, [getattr(self, name) for name in self.outputs], config.num_layers)

    @abstractmethod
    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """Return the output of the mixer for the normalized input, and its state."""

    def forward(
        self, x: Float[Tensor, "b t d"], state: State | None = None, documents: Int[Tensor, "b j"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        mixed, state = self.mix(self.norm(x), state, documents)
        x = x + self.dropout(mixed)
        return x + self.dropout(self.mlp(x)), state


def draw_weights(block: nn.Module, outputs: Iterable[nn.Linear], num_layers: int) -> None:
    """Draw the weights of a block's linear maps as the decoder does. `outputs`: those whose results are added to x."""
    for module in block.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for output in outputs:
        output.weight.data.mul_((2 * num_layers) ** -0.5)


def in_same_document(documents: Int[Tensor, "b j"], lag: int) -> Tensor:
    """Return whether the token `lag` tokens before each token belongs to the same document [b, j]."""
    same = documents[:, lag:] == documents[:, : documents.shape[1] - lag]
    return F.pad(same, (min(lag, documents.shape[1]), 0))


def short_convolution(
    x: Float[Tensor, "b j e"],
    weight: Float[Tensor, "e k"],
    bias: Float[Tensor, " e"],
    documents: Int[Tensor, "b i"] | None,
) -> Float[Tensor, "b t e"]:
    """Return sums of the last k tokens of each token's document, weighted by channel; the last weight is the token's.

    `x` begins with the k − 1 tokens before the first one, so j = t + k − 1.
    """
    kernel = weight.shape[1]
    t, weights = x.shape[1] - kernel + 1, weight.T
    out = torch.addcmul(bias, x[:, kernel - 1 :], weights[-1])
    for lag in range(1, kernel):
        shifted = x[:, kernel - 1 - lag :][:, :t]
        if documents is not None:
            shifted = shifted * in_same_document(documents, lag)[:, -t:, None]
        out = torch.addcmul(out, shifted, weights[-1 - lag])
    return out
