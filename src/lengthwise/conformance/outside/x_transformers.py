"""x-transformers: its position modules, and its decoder around them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from x_transformers import Decoder as OutsideDecoder
from x_transformers import TransformerWrapper
from x_transformers import x_transformers as parts

from lengthwise.config import Choice, choose
from lengthwise.conformance.outside.implementation import (
    SHAPE,
    TRAINED,
    VOCABULARY,
    Absent,
    Implementation,
    Model,
    Scene,
)
from lengthwise.encodings import PI, T5, ALiBi, CoPE, FoX, NTKAware, PositionEncoding, RoPE, XPos
from lengthwise.models.conversion import t5_weight_from_table


class Wrapped(Model):
    """A `TransformerWrapper`; with its cache, each step is given all tokens and reads the last."""

    def __init__(self, model: Any):
        self.model = model.eval()

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    @torch.no_grad()
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        said, cache = self.model(tokens[:, :prompt], return_intermediates=True)
        parts = [said]
        for n in range(prompt, tokens.shape[1]):
            said, cache = self.model(tokens[:, : n + 1], return_intermediates=True, cache=cache)
            parts.append(said[:, -1:])
        return torch.cat(parts, 1)

    @torch.no_grad()
    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        return self.model(tokens, seq_start_pos=torch.tensor(padding))


class Outside(Implementation):
    library = "x-transformers"

    def __init__(self, name: str, choice: Choice, layers: dict[str, Any], because: dict[str, str] | None = None):
        super().__init__(name, choice)
        self.layers = layers
        self.because = because or {}  # type: ignore[misc]

    def model(self) -> Model:
        torch.manual_seed(0)
        layers = OutsideDecoder(
            dim=SHAPE["d_model"], depth=SHAPE["num_layers"], heads=SHAPE["num_heads"], attn_dim_head=SHAPE["head_dim"],
            verbose=False, **self.layers,
        )  # fmt: skip
        made = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=TRAINED, attn_layers=layers, use_abs_pos_emb=False)
        with torch.no_grad():  # as drawn, logits are so small that no position would be seen
            for name, parameter in made.named_parameters():
                if "pos_emb" in name or "token_emb" in name or "relative_attention_bias" in name:
                    parameter.normal_()
                elif "to_forget_gates" in name and "bias" in name:  # at 5 hardly anything is forgotten
                    parameter.zero_()
        return Wrapped(made)


class Rotary(Outside):
    """`RotaryEmbedding`, interleaved."""

    def __init__(self, name: str, choice: Choice, *, because: dict[str, str] | None = None, **more: Any):
        names = {"use_xpos": "rotary_xpos", "interpolation_factor": "rotary_interpolation_factor",
                 "base_rescale_factor": "rotary_base_rescale_factor"}  # fmt: skip
        layers = {"rotary_pos_emb": True, "rotary_emb_dim": SHAPE["head_dim"]}
        super().__init__(
            name,
            choice,
            {**layers, **{names[k]: v for k, v in more.items()}},
            {**BECAUSE_ROTARY, **(because or {})},
        )
        self.more = more

    def row(self, scene: Scene) -> Tensor:
        rotary = parts.RotaryEmbedding(self.head_dim, **self.more).to(scene.dtype)
        angles, scale = rotary(torch.cat([scene.keys, torch.tensor([scene.query])]))
        one = not isinstance(scale, Tensor)
        gain_q, gain_k = (scale, scale) if one else (scale[:, -1:], scale[:, :-1] ** -1.0)
        q = parts.apply_rotary_pos_emb(scene.q[None, :, None], angles[:, -1:], gain_q)
        k = parts.apply_rotary_pos_emb(scene.k[None], angles[:, :-1], gain_k)
        return (q.double() @ k.double().mT)[0, :, 0] * self.head_dim**-0.5


class Alibi(Outside):
    """`AlibiPositionalBias`."""

    def __init__(self, *, bidirectional: bool = False):
        name = f"AlibiPositionalBias{', both ways' if bidirectional else ''}"
        super().__init__(name, choose(ALiBi, **({"bidirectional": True} if bidirectional else {})), {"alibi_pos_bias": True},
                         dict.fromkeys(("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"),
                                       "slopes are rounded to bfloat16, and their products with the distance again"))  # fmt: skip
        self.bidirectional = bidirectional

    def row(self, scene: Scene) -> Tensor:
        bias = parts.AlibiPositionalBias(self.heads).to(scene.dtype)
        return product(scene) + bias.forward_custom_pos(torch.tensor([scene.query]), scene.keys)[:, 0].double()

    def model(self) -> Model:
        if self.bidirectional:
            raise Absent("an encoder reads everything at once")
        return super().model()


class T5Bias(Outside):
    """`RelativePositionBias`."""

    def __init__(self, *, bidirectional: bool = False):
        name = f"RelativePositionBias{', both ways' if bidirectional else ''}"
        super().__init__(name, choose(T5, **({"bidirectional": True} if bidirectional else {})), {"rel_pos_bias": True})
        self.bidirectional = bidirectional

    def module(self) -> Any:
        torch.manual_seed(1)
        made = parts.RelativePositionBias(scale=1.0, causal=not self.bidirectional, heads=self.heads)
        with torch.no_grad():  # to three digits, so that bfloat16 has them too
            made.relative_attention_bias.weight.copy_(made.relative_attention_bias.weight.bfloat16().float())
        return made

    def give_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"weight": t5_weight_from_table(self.module().relative_attention_bias.weight)})

    def row(self, scene: Scene) -> Tensor:
        # It counts queries from the end, so the keys after the query are those of another call.
        module = self.module().to(scene.dtype)
        if not self.bidirectional:
            return product(scene) + module(1, scene.length)[:, 0, scene.keys].double()
        bucket = module._relative_position_bucket(scene.keys - scene.query, causal=False)
        return product(scene) + module.relative_attention_bias(bucket).T.double()

    def model(self) -> Model:
        if self.bidirectional:
            raise Absent("an encoder reads everything at once")
        return super().model()


class Contextual(Outside):
    """`CoPE`."""

    every_key = True

    def __init__(self) -> None:
        rounded = "gates and their sum are rounded to bfloat16: past a count of 32 it goes in quarters"
        super().__init__(
            "CoPE",
            choose(CoPE, max_position=64),
            {"attn_use_cope": True, "attn_cope_max_pos": 64},
            dict.fromkeys(("bfloat16 at 512", "bfloat16 at 32768"), rounded),
        )

    def module(self) -> Any:
        made = parts.CoPE(self.head_dim, self.heads, 64)
        with torch.no_grad():
            made.pos_emb.copy_(torch.randn(64, self.head_dim, generator=torch.Generator().manual_seed(1)) / 8)
            made.pos_emb.copy_(made.pos_emb.bfloat16().float())
        return made

    def give_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"e": self.module().pos_emb})

    def row(self, scene: Scene) -> Tensor:
        logits = product(scene).to(scene.dtype)[None, :, None]
        added: Tensor = self.module().to(scene.dtype)(scene.q[None, :, None], logits)
        return (logits.double() + added.double())[0, :, 0]


class Forgetting(Outside):
    """`DataDependentAlibi`, the forget gates of FoX."""

    every_key = True

    def __init__(self) -> None:
        rounded = "the logarithms of the gates are added up in bfloat16"
        cached = "with the cache it is given the last token alone, and no key has a bias"
        super().__init__(
            "DataDependentAlibi",
            choose(FoX),
            {"attn_data_dependent_alibi": True},
            {"bfloat16 at 512": rounded, "decoding within": cached, "decoding past": cached},
        )

    def module(self) -> Any:
        torch.manual_seed(1)
        made = parts.DataDependentAlibi(self.heads * self.head_dim, self.heads)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.copy_(parameter.bfloat16().float())
        return made

    def give_weights(self, encoding: PositionEncoding) -> None:
        linear = self.module().to_forget_gates[0]
        encoding.load_state_dict({"w": linear.weight, "b": linear.bias})

    def row(self, scene: Scene) -> Tensor:
        if scene.length > 4096:
            raise Absent("it makes all rows at once: too many numbers")
        return product(scene) + self.module().to(scene.dtype)(self.inputs(scene))[0, :, -1].double()


def product(scene: Scene) -> Tensor:
    return (scene.q[:, None].double() @ scene.k.double().mT)[:, 0] * scene.q.shape[-1] ** -0.5


BECAUSE_ROTARY: dict[str, str] = {
    **dict.fromkeys(
        ("value at 32768", "value at 10^5", "value at 10^6"),
        "angles in float32: position · frequency is off by up to about position · 6e-8 radians",
    ),
    **dict.fromkeys(
        ("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"),
        "frequencies and positions are rounded to bfloat16: past 256 neighbouring positions are one",
    ),
}

CANDIDATES: tuple[Callable[[], Implementation], ...] = (
    lambda: Rotary("RotaryEmbedding", choose(RoPE)),
    lambda: Rotary("RotaryEmbedding, interpolation", choose(PI, factor=4.0), interpolation_factor=4.0),
    lambda: Rotary("RotaryEmbedding, base rescaled", choose(NTKAware, factor=4.0), base_rescale_factor=4.0),
    lambda: Rotary("RotaryEmbedding, xpos", choose(XPos), use_xpos=True),
    Alibi,
    lambda: Alibi(bidirectional=True),
    T5Bias,
    lambda: T5Bias(bidirectional=True),
    Contextual,
    Forgetting,
)
