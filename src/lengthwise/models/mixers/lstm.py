"""LSTM (Hochreiter & Schmidhuber 1997) in the block of a Transformer, in place of attention."""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lengthwise.config import ModelConfig
from lengthwise.models.mixers.base import MixerWithMLP, State
from lengthwise.models.mixers.segments import segments


class LSTM(MixerWithMLP):
    """One layer, with d_model hidden units.

    i, f, g, o = W_ih x_t + W_hh h_{t−1} + b
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g),        h_t = σ(o) ⊙ tanh(c_t)

    The output of the mixer is h, without an output matrix. The state is h and c [b, d]. The bias of f begins at 1, so
    that the cell keeps its content at first (Gers et al. 2000; Jozefowicz et al. 2015). Each step needs the step before
    it, so training cannot be parallel over the tokens.

    Source: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000. Code: `torch.nn.LSTM`.
    """

    backend = "lstm"
    outputs = ("down",)

    def __init__(self, config: ModelConfig, layer: int, train_length: int):
        super().__init__(config, layer, train_length)
        d = config.d_model
        self.lstm = nn.LSTM(d, d, batch_first=True)
        biases = dict(self.lstm.named_parameters())
        with torch.no_grad():  # torch adds two biases, and orders the gates i, f, g, o
            biases["bias_ih_l0"][d : 2 * d] = 1.0
            biases["bias_hh_l0"][d : 2 * d] = 0.0
        self.finish(config)

    def mix(
        self, x: Float[Tensor, "b t d"], state: State | None, documents: Int[Tensor, "b j"] | None
    ) -> tuple[Float[Tensor, "b t d"], State]:
        with torch.autocast(x.device.type, enabled=False):
            out, last = self._run(x.to(next(self.lstm.parameters()).dtype), state, documents)
        return out.to(x.dtype), last

    def _run(self, x: Tensor, state: State | None, documents: Tensor | None) -> tuple[Tensor, State]:
        if documents is None:
            out, (h, c) = self.lstm(x, None if state is None else tuple(tensor[None] for tensor in state))
            return out, (h[0], c[0])
        out, last_h, last_c = torch.zeros_like(x), torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
        for group in segments(documents, x.shape[1]):
            inputs = group.take(x)
            start = tuple(group.start_state(tensor, inputs[:, 0])[None] for tensor in state or (None, None))
            packed = pack_padded_sequence(inputs, group.lengths.cpu(), batch_first=True, enforce_sorted=False)
            result, (h, c) = self.lstm(packed, start)
            out = group.put(out, pad_packed_sequence(result, batch_first=True)[0])
            rows = group.rows[group.last]
            last_h = last_h.index_put((rows,), h[0][group.last])
            last_c = last_c.index_put((rows,), c[0][group.last])
        return out, cast(State, (last_h, last_c))
