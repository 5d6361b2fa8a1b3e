"""Statistics of the attention weights of a model, for each layer and head."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention import Bins, Mask, Statistics, measure
from lengthwise.config import ConfigError
from lengthwise.forms import AttentionModifiers
from lengthwise.models.base import Model
from lengthwise.models.decoder import Decoder
from lengthwise.span import Span


def require_decoder(model: Model) -> Decoder:
    """Return the model; raise `ConfigError` if it has no attention."""
    if not isinstance(model, Decoder):
        raise ConfigError(f"the model must be a Transformer, got {model.label}, which has no attention")
    return model


@torch.no_grad()
def statistics(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    *,
    positions: Int[Tensor, "#b t *axes"] | None = None,
    documents: Int[Tensor, "#b t"] | None = None,
    queries: Bool[Tensor, "#b t"] | None = None,
    edges: Sequence[int] | None = None,
    first: int = 4,
    last: int = 16,
) -> list[Statistics]:
    """Return the statistics of the attention of every layer for an input: one `Statistics` per layer, [b, h].

    `inputs`, `positions` and `documents` are those of the model; `queries` is that of `attention.statistics`, and
    `edges`, `first` and `last` are those of `attention.Bins`. No matrix of queries and keys is computed, so lengths far
    beyond training fit into memory.

    >>> layers = statistics(model, tokens, documents=documents, queries=documents >= 0)  # without padding, -1
    >>> layers[2].first[:, 5]  # for each row: the mass on the first 4 keys in layer 2, head 5
    """
    model = require_decoder(model)
    if model.training:
        raise ConfigError("statistics() needs the model in evaluation mode; call model.eval() first")
    layers: list[Statistics] = []
    bins = Bins(edges, first, last)

    def watch(
        layer: int, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float
    ) -> None:
        layers.append(measure(modifiers, span, mask, q, k, scale=scale, queries=queries, bins=bins))

    model(inputs, positions=positions, documents=documents, watch=watch)
    return layers
