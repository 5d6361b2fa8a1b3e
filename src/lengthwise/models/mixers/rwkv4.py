"""RWKV-4 (Peng et al. 2023): averages of values whose weights decay by channel, and channel mixing for the MLP."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models.linear import Linear
from lengthwise.models.mixers.base import MixerBlock, State, draw_weights, in_same_document
from lengthwise.models.mlp import norm

CHUNK = 32  # tokens; a chunk and the number of chunks are the numbers of steps that follow each other
EMPTY = -1e38  # logarithm of the scale of a state without tokens


class RWKV4(MixerBlock):
    """One layer: x + time_mixing(norm(x)), then x + channel_mixing(norm(x)).

    shift_μ(x)_t = μ ⊙ x_t + (1 − μ) ⊙ x_{t−1}        with a μ of its own for each of r, k, v, r' and k'
    r, k, v = W_r shift(x), W_k shift(x), W_v shift(x);        w = exp(time_decay), u = time_first, for each channel
    wkv_t   = (Σ_{i<t} e^(−(t−1−i) w + k_i) v_i + e^(u + k_t) v_t) / (Σ_{i<t} e^(−(t−1−i) w + k_i) + e^(u + k_t))
    time mixing: W_o (σ(r) ⊙ wkv);        channel mixing: σ(r') ⊙ W_v' relu(k')², r' = W_r' shift(x), k' = W_k' shift(x)

    The state is the numerator, the denominator and the logarithm of their common scale, and the last inputs of both
    shifts, all [b, d]. As in the authors' code, the scale is the largest exponent so far, so that no exponential
    overflows.

    Source: Peng et al. 2023, equations 11 to 18. Code: BlinkDL/RWKV-LM (RWKV-v4), from which the initial values of
    time_decay, time_first and μ are taken. Differs: the matrices begin as in the decoder, and no norm follows the
    embedding.
    """

    backend = "chunks"

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        d = config.d_model
        self.time_norm, self.channel_norm = norm(config), norm(config)
        self.receptance, self.key, self.value, self.out = (Linear(d, d, bias=False) for _ in range(4))
        self.channel_receptance = Linear(d, d, bias=False)
        self.channel_key = Linear(d, config.hidden, bias=False)
        self.channel_value = Linear(config.hidden, d, bias=False)
        draw_weights(self, (self.out, self.channel_value), config.num_layers)
        depth, channel = layer / max(config.num_layers - 1, 1), torch.arange(d) / d
        rest = 1 - layer / config.num_layers
        self.mix_k = nn.Parameter(channel**rest)
        self.mix_v = nn.Parameter(channel**rest + 0.3 * depth)
        self.mix_r = nn.Parameter(channel ** (0.5 * rest))
        self.channel_mix_k, self.channel_mix_r = nn.Parameter(channel**rest), nn.Parameter(channel**rest)
        self.time_decay = nn.Parameter(-5 + 8 * (torch.arange(d) / max(d - 1, 1)) ** (0.7 + 1.3 * depth))
        self.time_first = nn.Parameter(math.log(0.3) + 0.5 * ((torch.arange(d) + 1) % 3 - 1.0))

    def forward(
        self, x: Float[Tensor, "b t d"], state: State | None = None, documents: Int[Tensor, "b j"] | None = None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        mixed, of_time = self.mix(self.time_norm(x), None if state is None else state[:4], documents)
        x = x + self.dropout(mixed)
        normed = self.channel_norm(x)
        mixed = self.mix_channels(normed, None if state is None else state[4], documents)
        return x + self.dropout(mixed), (*of_time, normed[:, -1])

    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        """Return the time mixing of the normalized input, and its part of the state."""
        before = shifted(x, None if state is None else state[3], documents)
        r, k, v = (
            linear(torch.lerp(before, x, mix.to(x.dtype)))
            for linear, mix in ((self.receptance, self.mix_r), (self.key, self.mix_k), (self.value, self.mix_v))
        )
        with torch.autocast(x.device.type, enabled=False):
            dtype = torch.promote_types(torch.float32, x.dtype)
            k, v, decay, first = (tensor.to(dtype) for tensor in (k, v, self.time_decay.exp(), self.time_first))
            begins = None if documents is None else ~in_same_document(documents, 1)[:, -x.shape[1] :]
            mean, last = weighted_mean(k, v, decay, first, None if state is None else state[:3], begins)
        return self.out(torch.sigmoid(r) * mean.to(r.dtype)), (*last, x[:, -1])

    def mix_channels(
        self, x: Float[Tensor, "b t d"], last: Float[Tensor, "b d"] | None, documents: Int[Tensor, "b j"] | None
    ) -> Float[Tensor, "b t d"]:
        """Return the channel mixing of the normalized input. `last`: the input before the first token."""
        before = shifted(x, last, documents)
        k = self.channel_key(torch.lerp(before, x, self.channel_mix_k.to(x.dtype)))
        r = self.channel_receptance(torch.lerp(before, x, self.channel_mix_r.to(x.dtype)))
        return torch.sigmoid(r) * self.channel_value(torch.relu(k).square())


def shifted(
    x: Float[Tensor, "b t d"], last: Float[Tensor, "b d"] | None, documents: Int[Tensor, "b j"] | None
) -> Float[Tensor, "b t d"]:
    """Return the token before each one, 0 before the first of a document. `last`: the token before the first one."""
    last = torch.zeros_like(x[:, 0]) if last is None else last.to(x.dtype)
    before = torch.cat([last[:, None], x[:, :-1]], 1)
    return before if documents is None else before * in_same_document(documents, 1)[:, -x.shape[1] :, None]


def weighted_mean(
    k: Float[Tensor, "b t d"],
    v: Float[Tensor, "b t d"],
    decay: Float[Tensor, " d"],
    first: Float[Tensor, " d"],
    state: State | None,
    begins: Bool[Tensor, "b t"] | None,
) -> tuple[Float[Tensor, "b t d"], State]:
    """Return wkv of every token, and the state after the last one: numerator, denominator and the log of their scale.

    `begins`: which tokens are the first of a document.
    """
    outputs, tokens = [], k.shape[1]
    whole = tokens - tokens % CHUNK
    if state is None:
        state = (torch.zeros_like(k[:, 0]), torch.zeros_like(k[:, 0]), torch.full_like(k[:, 0], EMPTY))
    sums, scale = torch.stack(state[:2], 1), state[2]
    for start, end in ((0, whole), (whole, tokens)):
        if end > start:
            size = min(CHUNK, end - start)
            k_chunks, v_chunks = (x[:, start:end].unflatten(1, (-1, size)) for x in (k, v))
            fresh = None if begins is None else begins[:, start:end].unflatten(1, (-1, size))
            out, sums, scale = _chunks(k_chunks, v_chunks, decay, first, (sums, scale), fresh)
            outputs.append(out.flatten(1, 2))
    return torch.cat(outputs, 1), (*sums.unbind(1), scale)


def _chunks(
    k: Tensor, v: Tensor, decay: Tensor, first: Tensor, state: tuple[Tensor, Tensor], begins: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return wkv [b, n, c, d] of n chunks, and the sums [b, 2, d] and the scale [b, d] after the last one.

    Within all chunks at once, token after token, the sums of the chunk's own tokens are computed; then the sums before
    each chunk, chunk after chunk. Scales are logarithms. They cancel in the quotient, so they have no gradient.
    """
    size = k.shape[2]
    offset = torch.arange(size, device=k.device, dtype=k.dtype)[:, None] * decay  # [c, d]
    with torch.no_grad():
        scale, scales_before, scales_after = torch.full_like(k[:, :, 0], EMPTY), [], []
        for i, of_token in enumerate(k.unbind(2)):
            if begins is not None:
                scale = scale.masked_fill(begins[:, :, i, None], EMPTY)
            scales_before.append(scale)
            scale = torch.maximum(scale - decay, of_token)
            scales_after.append(scale)
        before, after = torch.stack(scales_before, 2), torch.stack(scales_after, 2)
    state_decay = (before - decay - after).exp()[:, :, :, None]
    weight = (k - after).exp()
    added = torch.stack([weight * v, weight], 3)  # [b, n, c, 2, d]
    sums = [torch.zeros_like(added[:, :, 0])]
    for token_decay, of_token in zip(state_decay.unbind(2), added.unbind(2), strict=True):
        sums.append(torch.addcmul(of_token, token_decay, sums[-1]))
    earlier_sums = torch.stack(sums[:-1], 2)
    carried, carried_scale, last, last_scale = _carry(sums[-1], scale, size * decay, state, begins)
    scale_of_carried = carried_scale[:, :, None] - offset
    if begins is not None:
        scale_of_carried = scale_of_carried.masked_fill(begins.cumsum(2)[..., None] > 0, EMPTY)
    bonus = first + k
    with torch.no_grad():
        largest = torch.maximum(torch.maximum(before, scale_of_carried), bonus)
    total = (before - largest).exp()[:, :, :, None] * earlier_sums
    total = total + (scale_of_carried - largest).exp()[:, :, :, None] * carried[:, :, None]
    weight = (bonus - largest).exp()
    return (total[:, :, :, 0] + weight * v) / (total[:, :, :, 1] + weight), last, last_scale


def _carry(
    sums: Tensor, scales: Tensor, decay: Tensor, state: tuple[Tensor, Tensor], begins: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sums and scales before each chunk [b, n, ...] and after the last, of the sums of each chunk's tokens."""
    total, scale = state
    before, before_scales = [], []
    for n, (of_chunk, of_scale) in enumerate(zip(sums.unbind(1), scales.unbind(1), strict=True)):
        before.append(total)
        before_scales.append(scale)
        decayed_scale = scale - decay
        if begins is not None:
            decayed_scale = decayed_scale.masked_fill(begins[:, n].any(1)[:, None], EMPTY)
        with torch.no_grad():
            largest = torch.maximum(decayed_scale, of_scale)
        total = (decayed_scale - largest).exp()[:, None] * total + (of_scale - largest).exp()[:, None] * of_chunk
        scale = largest
    return torch.stack(before, 1), torch.stack(before_scales, 1), total, scale
