"""Hyena (Poli et al. 2023): gates between long convolutions, whose filters are a function of the distance."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lengthwise.config import ModelConfig
from lengthwise.models.linear import Linear
from lengthwise.models.mixers.base import MixerWithMLP, State, short_convolution
from lengthwise.models.mixers.segments import segments

ORDER, KERNEL = 2, 3
BANDS, WIDTH, FREQUENCY = 16, 64, 10.0  # of the network of the filters
SLOW, FAST, TARGET, SHIFT = 1.5, 0.3, 1e-2, 0.05  # of its window


class Filters(nn.Module):
    """The filters h_n(t) = (exp(−α_c t / (L − 1)) + 0.05) · FFN(features(t))_{n,c}, for n = 1, 2 and each channel c.

    `length` is L, the training length. The features of t are t / (L − 1), and cos and −sin of 2π f t / L for 16
    frequencies f from 1e-4 to 15. The FFN has three layers of 64 units with the activation sin(frequency · x), whose
    frequencies begin at 10 and are learned. α_c = ln(100) / s with 1 / s evenly spaced, from s = 1.5 to s = 0.3
    training lengths.

    Beyond L the formula continues: the first feature grows and the window falls as before, and the waves have the
    period L.
    """

    def __init__(self, channels: int, length: int):
        super().__init__()
        self.channels, self.length = channels, length
        widths = [2 * BANDS + 1, WIDTH, WIDTH, WIDTH]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.frequencies = nn.Parameter(torch.full((3, WIDTH), FREQUENCY))
        self.last = nn.Linear(WIDTH, ORDER * channels, bias=False)
        with torch.no_grad():  # so that each filter has a norm of about 1, since the mean of sin² is 1/2
            size = self.window(length, torch.zeros(1)).square().sum(0).repeat(ORDER)
            self.last.weight.normal_().div_((WIDTH / 2 * size).sqrt()[:, None])
        for module in (*self.layers, self.last):
            module.not_decayed = ("weight",)
        self.not_decayed = ("frequencies",)

    def forward(self, length: int) -> Float[Tensor, "n c t"]:
        """Return the filters at the distances 0 ... `length` − 1."""
        like = self.last.weight
        t = torch.arange(length, device=like.device, dtype=torch.float64)[:, None]
        f = torch.linspace(1e-4, BANDS - 1, BANDS, device=like.device, dtype=torch.float64)
        angle = 2 * math.pi / self.length * t * f
        x = torch.cat([t / max(self.length - 1, 1), angle.cos(), -angle.sin()], 1).to(like.dtype)
        for layer, frequency in zip(self.layers, self.frequencies, strict=True):
            x = torch.sin(frequency * layer(x))
        values = self.last(x).unflatten(1, (ORDER, -1)) * self.window(length, like)[:, None]
        return values.permute(1, 2, 0).contiguous()

    def window(self, length: int, like: Tensor) -> Float[Tensor, "t c"]:
        t = torch.arange(length, device=like.device, dtype=torch.float64)[:, None] / max(self.length - 1, 1)
        rate = torch.linspace(1 / SLOW, 1 / FAST, self.channels, device=like.device, dtype=torch.float64)
        return ((math.log(TARGET) * rate * t).exp() + SHIFT).to(like.dtype)


class Hyena(MixerWithMLP):
    """One layer of order 2.

    v, x_1, x_2 = depthwise convolutions over 3 tokens of W_in x
    z_1 = x_1 ⊙ (h_1 ∗ v + D_1 v),        z_2 = x_2 ⊙ (h_2 ∗ z_1 + D_2 z_1),        out = W_out z_2

    (h ∗ z)_t = Σ_{s≤t} h(t − s) z_s by FFT, in O(T log T). The filters are those of `Filters`, which says what they are
    beyond the training length. The state is v and z_1 of all tokens [b, d, j], and the last 2 inputs of the short
    convolutions: a step of decoding takes time linear in the number of tokens.

    Source: Poli et al. 2023, definition 3.1 and algorithms 1 to 3. Code: HazyResearch/safari. Differs: their code, at
    order 2, has one long convolution, x_2 ⊙ (h ∗ (x_1 ⊙ v)), and learns the features of the distance with a small rate.
    There the filters end at the maximal length.
    """

    backend = "fft"
    not_decayed = ("D",)

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        d = config.d_model
        self.in_proj = Linear(d, (ORDER + 1) * d, bias=config.bias)
        self.out = Linear(d, d, bias=config.bias)
        self.finish(config)
        self.short = nn.Conv1d((ORDER + 1) * d, (ORDER + 1) * d, KERNEL, groups=(ORDER + 1) * d)
        self.D = nn.Parameter(torch.randn(ORDER, d))
        self.filters = Filters(d, train_length)

    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        projected, tokens = self.in_proj(x), x.shape[1]
        *histories, before = (None, None, None) if state is None else state
        if before is None:
            before = projected.new_zeros(len(x), KERNEL - 1, projected.shape[2])
        projected = torch.cat([before.to(projected.dtype), projected], 1)
        with torch.autocast(x.device.type, enabled=False):
            dtype = self.D.dtype
            assert self.short.bias is not None
            short = short_convolution(projected.to(dtype), self.short.weight[:, 0], self.short.bias, documents)
            z, *gates = short.transpose(1, 2).contiguous().chunk(ORDER + 1, 1)  # [b, d, t]
            filters, inputs = self.filters(tokens + (0 if histories[0] is None else histories[0].shape[2])), []
            for gate, h, D, history in zip(gates, filters, self.D, histories, strict=True):
                inputs.append(z if history is None else torch.cat([history, z], 2))
                z = gate * torch.addcmul(_convolve(inputs[-1], h, tokens, documents), D[:, None], z)
        return self.out(z.transpose(1, 2).to(x.dtype)), (*inputs, projected[:, 1 - KERNEL :])


def _convolve(
    z: Float[Tensor, "b d j"], h: Float[Tensor, "d j"], tokens: int, documents: Int[Tensor, "b j"] | None
) -> Float[Tensor, "b d t"]:
    """Return the causal convolution of the last `tokens` tokens with those before them in their documents."""
    if tokens == 1:
        if documents is not None:
            z = z * (documents == documents[:, -1:])[:, None]
        return (z * h.flip(1)).sum(2, keepdim=True)
    if documents is None:
        return _fft_convolve(z, h)[..., -tokens:]
    rows = z.transpose(1, 2)
    out = torch.zeros_like(rows)
    for group in segments(documents, z.shape[2]):
        inputs = group.take(rows).transpose(1, 2)
        out = group.put(out, _fft_convolve(inputs, h[:, : inputs.shape[2]]).transpose(1, 2))
    return out.transpose(1, 2)[..., -tokens:]


def _fft_convolve(z: Float[Tensor, "b d j"], h: Float[Tensor, "d j"]) -> Float[Tensor, "b d j"]:
    """Return Σ_{s≤t} h(t − s) z_s. With padding to twice the length, nothing wraps around."""
    tokens = z.shape[2]
    size = 1 << (2 * tokens - 1).bit_length()
    size = size * 3 // 4 if size * 3 // 4 >= 2 * tokens - 1 else size
    return torch.fft.irfft(torch.fft.rfft(z, size) * torch.fft.rfft(h, size), size)[..., :tokens]
