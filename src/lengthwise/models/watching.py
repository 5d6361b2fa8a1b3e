"""What the attention of a model looks at, layer by layer and head by head."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lengthwise.attention import Mask, Statistics, measure
from lengthwise.config import ConfigError
from lengthwise.forms import AttentionModifiers
from lengthwise.models.base import Model
from lengthwise.models.decoder import Decoder
from lengthwise.span import Span


def attending(model: Model) -> Decoder:
    """The model, which has attention to look at. `ConfigError` for one that has none."""
    if not isinstance(model, Decoder):
        raise ConfigError(f"a {type(model).__name__} has no attention to look at; take a Transformer")
    return model


@torch.no_grad()
def statistics(
    model: Model,
    inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"],
    *,
    positions: Int[Tensor, "#b t"] | None = None,
    documents: Int[Tensor, "#b t"] | None = None,
    queries: Bool[Tensor, "#b t"] | None = None,
    edges: Sequence[int] | None = None,
    first: int = 4,
    last: int = 16,
) -> list[Statistics]:
    """Of every layer, in their order, what its attention looks at for an input: one `Statistics` each, [b, h].

    `inputs`, `positions` and `documents` as the model takes them; `queries`, `edges`, `first` and `last` as
    `attention.statistics` does. No matrix of queries and keys is made, so that lengths far beyond training are no harder
    than reading them.

    >>> layers = statistics(model, tokens, documents=documents, queries=documents >= 0)  # padding, -1, left out
    >>> layers[2].first[:, 5]  # of each row: the mass on the first 4 keys in layer 2, head 5
    """
    model = attending(model)
    if model.training:
        raise ConfigError("statistics() needs the model in evaluation mode; call model.eval() first")
    layers: list[Statistics] = []

    def watch(
        layer: int, modifiers: AttentionModifiers, span: Span, mask: Mask, q: Tensor, k: Tensor, scale: float
    ) -> None:
        asked = {"queries": queries, "edges": edges, "first": first, "last": last}
        layers.append(measure(modifiers, span, mask, q, k, scale=scale, **asked))  # type: ignore[arg-type]

    model(inputs, positions=positions, documents=documents, watch=watch)
    return layers


def by_head(layers: Sequence[Statistics]) -> list[dict[str, Any]]:
    """The numbers of each layer and head, means over the rows of the batch: plain, as a table or a file takes them.

    `layer`, `head`, `entropy` and `most_entropy` (nats), `first`, `last` (shares), `histogram` (a share for each of the
    `bins`); see `Statistics`.
    """
    rows = []
    for layer, found in enumerate(layers):
        numbers = {name: getattr(found, name).mean(0).tolist() for name in ("entropy", "first", "last", "histogram")}
        most = found.most_entropy.mean().item()
        for head in range(found.entropy.shape[1]):
            of_head = {name: values[head] for name, values in numbers.items()}
            rows.append({"layer": layer, "head": head, "most_entropy": most, **of_head, "bins": found.bins})
    return rows
