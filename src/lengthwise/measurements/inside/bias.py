"""The bias of one query and every key, through the forms of each layer's encoding, and two numbers about it."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from lengthwise.encodings import PositionEncoding
from lengthwise.encodings.contract import modifiers_of
from lengthwise.forms import table_dtype
from lengthwise.models import Decoder
from lengthwise.span import Span


def bias_unsupported_reason(encoding: PositionEncoding) -> str | None:
    """Return why an encoding has no bias that depends on positions alone; None if it has one."""
    name = type(encoding).__name__
    if encoding.reads_content():
        return f"the bias of {name} is computed from the content of the tokens"
    modifiers = modifiers_of(encoding, Span.of(2, 1))
    if modifiers.logit_transform is not None:
        return f"{name} transforms the logits and does not only add to them"
    if any(term.has_bias for term in modifiers.terms):
        return None
    if modifiers.terms:
        return f"what {name} adds depends on the queries and keys"
    if modifiers.rotation is not None or modifiers.product is not None:
        return f"{name} rotates queries and keys and adds no bias"
    if encoding.acts_on_embedding():
        return f"{name} adds vectors to the embeddings and no bias to the logits"
    return f"{name} adds no bias"


@torch.no_grad()
def bias_of(encoding: PositionEncoding, query: int, heads: int, head_dim: int, scale: float) -> Float[Tensor, "h j"]:
    """Return the bias for the query at position `query` and the keys at 0 ... `query`, in nats, in `forms.table_dtype`.

    It is the sum of the terms for q = 0 and k = 0. Parts of terms that depend on q
    or k are not included: the products of keys with Transformer-XL's vector u, and of queries with Shaw's and
    Transformer-XL's vectors.
    """
    device = next(encoding.parameters(), torch.empty(0)).device
    span = Span.of(query + 1, 1, device)
    nothing = torch.zeros((), dtype=table_dtype(device), device=device)
    q, k = nothing.expand(1, heads, 1, head_dim), nothing.expand(1, heads, query + 1, head_dim)
    bias = nothing.expand(1, heads, 1, query + 1)
    for term in modifiers_of(encoding, span).terms:
        bias = bias + term.dense(q, k, span, scale)
    return bias[0, :, 0]


def layer_biases(model: Decoder, query: int) -> Float[Tensor, "l h j"]:
    """Return the bias of every layer, NaN for layers whose encoding has none; see `bias_of`."""
    config, layers = model.config, []
    by_encoding: dict[int, Tensor] = {}
    for layer, index in enumerate(model.encoding_of_layer):
        encoding = cast(PositionEncoding, model.encodings[index])
        if index not in by_encoding:  # all layers have the same scale
            scale = cast(float, model.blocks[layer].scale)
            if bias_unsupported_reason(encoding) is None:
                bias = bias_of(encoding, query, config.num_heads, config.head_width, scale)
            else:
                bias = torch.full((config.num_heads, query + 1), torch.nan)
            by_encoding[index] = bias.double().cpu()
        layers.append(by_encoding[index])
    return torch.stack(layers)


def relative_distance(bias: Float[Tensor, "*n j"]) -> Float[Tensor, "*n"]:
    """Return the mean distance under the weights softmax(bias), divided by i / 2, that of equal weights; i = j − 1
    is the query.

    >>> relative_distance(torch.zeros(5).double())
    tensor(1., dtype=torch.float64)
    """
    query = bias.shape[-1] - 1
    distance = torch.arange(query, -1, -1, dtype=bias.dtype, device=bias.device)
    return bias.softmax(-1) @ distance / (query / 2)


def variation(bias: Float[Tensor, "*n j"]) -> Float[Tensor, "*n"]:
    """Return the total variation distance of the weights softmax(bias) from equal weights: from 0 to i / (i + 1)."""
    weights = bias.softmax(-1)
    return (weights - 1 / bias.shape[-1]).abs().sum(-1) / 2
