"""A forward pass that keeps apart what comes from words and what comes from positions.

The vector of a token is the sum of two parts, x = w + p: the embedding of the word and the vector of the position.
Every operation is linear once some numbers are held at the values that they have for the whole x:

- A norm: its variance (or mean square). Subtracting the mean and multiplying by the weight are linear.
- A linear map: nothing.
- Attention: its weights.
- An MLP: for GELU and ReLU the ratio of output and input of each unit, for SwiGLU the gate.

Constants, which are the biases of norms and linear maps, belong to the word's part, because they exist without
positions. So the two parts always add up to the model's own vectors. In the first layer, only the variance of the
norm is held. In upper layers the held attention weights and gates were themselves computed from both parts; there
the split attributes the content of a vector, and not the reasons why the model put it there.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lengthwise.attention import Mask
from lengthwise.encodings import PositionEncoding
from lengthwise.encodings.contract import embedded, modifiers_of
from lengthwise.forms import table_dtype
from lengthwise.measurements.inside.attention import block_rows
from lengthwise.measurements.logit_parts import PARTS
from lengthwise.models import Decoder
from lengthwise.models.decoder import Block
from lengthwise.models.linear import swiglu
from lengthwise.span import Span


class Split(NamedTuple):
    """A tensor as the sum of a word's part and a position's part."""

    word: Tensor
    position: Tensor

    @property
    def total(self) -> Tensor:
        return self.word + self.position

    def map(self, function: Callable[[Tensor], Tensor]) -> "Split":
        """Apply a linear function without constants to both parts."""
        return Split(function(self.word), function(self.position))


OnLogits = Callable[[int, slice, Float[Tensor, "p b h i j"]], None]


def split_unsupported_reason(encoding: PositionEncoding, d_model: int) -> str | None:
    """Return why the logits of a model with this encoding cannot be split; None if they can be.

    Encodings that act on embeddings do not alternate with others over layers, so the model has no other one.
    """
    name = type(encoding).__name__
    if not encoding.acts_on_embedding():
        return f"{name} adds no vectors to the embeddings"
    x, zeros = torch.ones(1, 1, d_model), torch.zeros(1, 1, d_model)
    ids = torch.zeros(1, 1, dtype=torch.long)
    if not torch.allclose(embedded(encoding, x, ids), x + embedded(encoding, zeros, ids), rtol=1e-4, atol=1e-5):
        return f"what {name} does to an embedding is more than adding a vector"
    modifiers = modifiers_of(encoding, Span.of(2))
    parts = (
        modifiers.rotation,
        modifiers.logit_transform,
        modifiers.gain,
        modifiers.sink,
        modifiers.product,
        *modifiers.terms,
        *modifiers.values,
    )
    if encoding.reads_content() or any(part is not None for part in parts):
        return f"{name} also changes the attention of each layer"
    return None


@torch.no_grad()
def split_logits(model: Decoder, inputs: Tensor, positions: Int[Tensor, "#b t"] | None, on_logits: OnLogits) -> Split:
    """Run the model on `inputs` and return its last vectors [b, t, c], before the final norm.

    Call `on_logits(layer, queries, parts)` for blocks of queries in every layer. `parts` are the four parts of the
    scaled logits, in the order of `PARTS`, for the keys 0 ... queries.stop - 1. All numbers have the dtype
    `forms.table_dtype`.
    """
    dtype = table_dtype(inputs.device)
    word = model.embed_inputs(inputs)
    if model.config.tie_embeddings and not model.config.t5_scaling:
        word = word * model.config.d_model**0.5
    ids = torch.arange(inputs.shape[1], device=inputs.device)[None] if positions is None else positions
    first = cast(PositionEncoding, model.encodings[model.encoding_of_layer[0]])
    x = Split(word, embedded(first, torch.zeros_like(word), ids)).map(lambda part: part.to(dtype))
    for layer, block in enumerate(cast(list[Block], list(model.blocks))):
        attention = _attention(layer, block, _norm(block.attention_norm, x), on_logits)
        x = _plus(x, _linear(block.out, attention))
        x = _plus(x, _mlp(block, _norm(block.mlp_norm, x)))
    return x


def _plus(a: Split, b: Split) -> Split:
    return Split(a.word + b.word, a.position + b.position)


def _norm(norm: nn.Module, x: Split) -> Split:
    """Return the parts of the norm of x. Its variance, or its mean square, is that of the whole x."""
    total = x.total
    if isinstance(norm, nn.LayerNorm):
        centred = x.map(lambda part: part - part.mean(-1, keepdim=True))
        spread, bias = total.var(-1, correction=0, keepdim=True), norm.bias
    elif isinstance(norm, nn.RMSNorm):
        centred, spread, bias = x, total.square().mean(-1, keepdim=True), None
    else:
        raise AssertionError(f"not a norm of a decoder: {norm}")
    scale = norm.weight.to(total.dtype) * (spread + cast(float, norm.eps)).rsqrt()
    parts = centred.map(lambda part: part * scale)
    return parts if bias is None else Split(parts.word + bias.to(total.dtype), parts.position)


def _linear(linear: nn.Linear, x: Split) -> Split:
    weight = linear.weight.to(x.word.dtype)
    parts = x.map(lambda part: F.linear(part, weight))
    return parts if linear.bias is None else Split(parts.word + linear.bias.to(weight.dtype), parts.position)


def _mlp(block: Block, x: Split) -> Split:
    hidden = _linear(block.up, x)
    total = hidden.total
    if block.activation is swiglu:
        gate, _ = total.chunk(2, -1)
        active = hidden.map(lambda part: F.silu(gate) * part.chunk(2, -1)[1])
    else:
        ratio = torch.where(total == 0, 0.0, block.activation(total) / torch.where(total == 0, 1.0, total))
        active = hidden.map(lambda part: part * ratio)
    return _linear(block.down, active)


def _attention(layer: int, block: Block, x: Split, on_logits: OnLogits) -> Split:
    """Return the parts of the attention output [b, t, h · d]. The attention weights are those of the whole logits."""
    sizes = [n * block.head_dim for n in (block.heads, block.kv_heads, block.kv_heads)]
    projected = _linear(block.qkv, x)
    group = block.heads // block.kv_heads

    def heads(part: Tensor) -> list[Tensor]:
        q, k, v = (one.unflatten(-1, (-1, block.head_dim)).transpose(1, 2) for one in part.split(sizes, -1))
        return [q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)]

    (q_word, k_word, v_word), (q_position, k_position, v_position) = map(heads, projected)
    if block.q_norm is not None and block.k_norm is not None:
        q, k = _norm(block.q_norm, Split(q_word, q_position)), _norm(block.k_norm, Split(k_word, k_position))
        q_word, q_position, k_word, k_position = q.word, q.position, k.word, k.position
    tokens = q_word.shape[2]
    mask, device = Mask(tokens, tokens), q_word.device
    rows = block_rows(device, len(q_word) * block.heads * tokens * 8)
    outputs: list[Split] = []
    for _, queries, keys in mask.query_blocks(rows):
        products = [q[:, :, queries] @ k[:, :, keys].mT for q in (q_word, q_position) for k in (k_word, k_position)]
        parts = torch.stack(products) * block.scale
        on_logits(layer, queries, parts)
        visible = mask.visible(device, queries, keys)[:, None]
        weights = parts.sum(0).masked_fill(~visible, -torch.inf).softmax(-1)
        outputs.append(Split(weights @ v_word[:, :, keys], weights @ v_position[:, :, keys]))
    words, of_positions = zip(*outputs, strict=True)
    return Split(torch.cat(words, 2), torch.cat(of_positions, 2)).map(lambda part: part.transpose(1, 2).flatten(2))


# ---- sums over test examples --------------------------------------------------------------------------------------


class PartSums:
    """Sums over queries and their visible keys, for each head of one layer.

    `products` [h, 4]: of each part with the logit. `squares` [h, 4]: of each part. `logit_squares` [h]: of the
    logit. All are minus their means over the query's keys. `pairs`: the number of pairs.
    """

    def __init__(self, heads: int):
        self.products = torch.zeros(heads, len(PARTS), dtype=torch.float64)
        self.squares = torch.zeros_like(self.products)
        self.logit_squares = torch.zeros(heads, dtype=torch.float64)
        self.pairs = 0

    def add(self, parts: Float[Tensor, "p b h i j"], queries: slice, selected: Bool[Tensor, "b i"]) -> None:
        """Add a block of queries. `selected`: the queries that count."""
        index = torch.arange(queries.start, queries.stop, device=parts.device)
        visible = torch.arange(parts.shape[-1], device=parts.device) <= index[:, None]
        counts = (visible & selected[:, :, None])[:, None]
        means = (parts * visible).sum(-1, keepdim=True) / (index[:, None] + 1)
        parts = (parts - means) * counts
        logits = parts.sum(0)
        self.products += torch.einsum("pbhij,bhij->hp", parts, logits).double().cpu()
        self.squares += parts.square().sum((1, 3, 4)).T.double().cpu()
        self.logit_squares += logits.square().sum((0, 2, 3)).double().cpu()
        self.pairs += int(counts.sum())

    @property
    def shares(self) -> Float[Tensor, "h p"]:
        """Return the share of each part; NaN for a head whose logits are the same for all keys."""
        return self.products / self.logit_squares[:, None]

    @property
    def deviations(self) -> Float[Tensor, "h p"]:
        """Return the root mean square of each part, in nats."""
        return (self.squares / self.pairs).sqrt()

    @property
    def logit_deviations(self) -> Float[Tensor, " h"]:
        return (self.logit_squares / self.pairs).sqrt()
