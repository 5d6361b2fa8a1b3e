"""The position modules of x-transformers, and its decoder with each of them."""

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
    TRAIN_LENGTH,
    VOCABULARY,
    Implementation,
    Model,
    NotApplicable,
    RowInputs,
)
from lengthwise.encodings import PI, T5, ALiBi, CoPE, FoX, NTKAware, PositionEncoding, RoPE, XPos
from lengthwise.models.conversion import t5_weight_from_table


class WrappedModel(Model):
    """A `TransformerWrapper`. With its cache, each step takes all tokens and computes the last one."""

    def __init__(self, model: Any):
        self.model = model.eval()

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    @torch.no_grad()
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        output, cache = self.model(tokens[:, :prompt], return_intermediates=True)
        logits = [output]
        for n in range(prompt, tokens.shape[1]):
            output, cache = self.model(tokens[:, : n + 1], return_intermediates=True, cache=cache)
            logits.append(output[:, -1:])
        return torch.cat(logits, 1)

    @torch.no_grad()
    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        return self.model(tokens, seq_start_pos=torch.tensor(padding))


class XTransformersImplementation(Implementation):
    library = "x-transformers"

    def __init__(self, name: str, choice: Choice, layers: dict[str, Any], explanations: dict[str, str] | None = None):
        super().__init__(name, choice)
        self.layers = layers
        self.explanations = explanations or {}  # type: ignore[misc]

    def model(self) -> Model:
        torch.manual_seed(0)
        layers = OutsideDecoder(
            dim=SHAPE["d_model"], depth=SHAPE["num_layers"], heads=SHAPE["num_heads"], attn_dim_head=SHAPE["head_dim"],
            verbose=False, **self.layers,
        )  # fmt: skip
        model = TransformerWrapper(
            num_tokens=VOCABULARY, max_seq_len=TRAIN_LENGTH, attn_layers=layers, use_abs_pos_emb=False
        )
        with torch.no_grad():  # with its initialization the positions would hardly matter
            for name, parameter in model.named_parameters():
                if "pos_emb" in name or "token_emb" in name or "relative_attention_bias" in name:
                    parameter.normal_()
                elif (
                    "to_forget_gates" in name and "bias" in name
                ):  # with its initial value of 5 hardly anything is forgotten
                    parameter.zero_()
        return WrappedModel(model)


class Rotary(XTransformersImplementation):
    """`RotaryEmbedding`, interleaved."""

    def __init__(self, name: str, choice: Choice, *, explanations: dict[str, str] | None = None, **options: Any):
        names = {"use_xpos": "rotary_xpos", "interpolation_factor": "rotary_interpolation_factor",
                 "base_rescale_factor": "rotary_base_rescale_factor"}  # fmt: skip
        layers = {"rotary_pos_emb": True, "rotary_emb_dim": SHAPE["head_dim"]}
        super().__init__(
            name,
            choice,
            {**layers, **{names[k]: v for k, v in options.items()}},
            {**ROTARY_EXPLANATIONS, **(explanations or {})},
        )
        self.options = options

    def row(self, inputs: RowInputs) -> Tensor:
        rotary = parts.RotaryEmbedding(self.head_dim, **self.options).to(inputs.dtype)
        angles, scale = rotary(torch.cat([inputs.keys, torch.tensor([inputs.query])]))
        gain_q, gain_k = (scale[:, -1:], scale[:, :-1] ** -1.0) if isinstance(scale, Tensor) else (scale, scale)
        q = parts.apply_rotary_pos_emb(inputs.q[None, :, None], angles[:, -1:], gain_q)
        k = parts.apply_rotary_pos_emb(inputs.k[None], angles[:, :-1], gain_k)
        return (q.double() @ k.double().mT)[0, :, 0] * self.head_dim**-0.5


class Alibi(XTransformersImplementation):
    """`AlibiPositionalBias`."""

    def __init__(self, *, bidirectional: bool = False):
        name = f"AlibiPositionalBias{', both ways' if bidirectional else ''}"
        super().__init__(name, choose(ALiBi, **({"bidirectional": True} if bidirectional else {})), {"alibi_pos_bias": True},
                         dict.fromkeys(("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"),
                                       "slopes are rounded to bfloat16, and so are their products with the distance"))  # fmt: skip
        self.bidirectional = bidirectional

    def row(self, inputs: RowInputs) -> Tensor:
        bias = parts.AlibiPositionalBias(self.heads).to(inputs.dtype)
        return product(inputs) + bias.forward_custom_pos(torch.tensor([inputs.query]), inputs.keys)[:, 0].double()

    def model(self) -> Model:
        if self.bidirectional:
            raise NotApplicable("an encoder does not predict tokens")
        return super().model()


class T5Bias(XTransformersImplementation):
    """`RelativePositionBias`."""

    def __init__(self, *, bidirectional: bool = False):
        name = f"RelativePositionBias{', both ways' if bidirectional else ''}"
        super().__init__(name, choose(T5, **({"bidirectional": True} if bidirectional else {})), {"rel_pos_bias": True})
        self.bidirectional = bidirectional

    def module(self) -> Any:
        torch.manual_seed(1)
        module = parts.RelativePositionBias(scale=1.0, causal=not self.bidirectional, heads=self.heads)
        with torch.no_grad():  # weights that bfloat16 represents exactly
            module.relative_attention_bias.weight.copy_(module.relative_attention_bias.weight.bfloat16().float())
        return module

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"weight": t5_weight_from_table(self.module().relative_attention_bias.weight)})

    def row(self, inputs: RowInputs) -> Tensor:
        # The module puts its queries at the end, so keys after the query need its buckets directly.
        module = self.module().to(inputs.dtype)
        if not self.bidirectional:
            return product(inputs) + module(1, inputs.length)[:, 0, inputs.keys].double()
        bucket = module._relative_position_bucket(inputs.keys - inputs.query, causal=False)
        return product(inputs) + module.relative_attention_bias(bucket).T.double()

    def model(self) -> Model:
        if self.bidirectional:
            raise NotApplicable("an encoder does not predict tokens")
        return super().model()


class ContextualBias(XTransformersImplementation):
    """`CoPE`."""

    needs_every_key = True

    def __init__(self) -> None:
        rounded = "gates and their sums are rounded to bfloat16: counts above 32 are multiples of a quarter"
        super().__init__(
            "CoPE",
            choose(CoPE, max_position=64),
            {"attn_use_cope": True, "attn_cope_max_pos": 64},
            dict.fromkeys(("bfloat16 at 512", "bfloat16 at 32768"), rounded),
        )

    def module(self) -> Any:
        module = parts.CoPE(self.head_dim, self.heads, 64)
        with torch.no_grad():
            module.pos_emb.copy_(torch.randn(64, self.head_dim, generator=torch.Generator().manual_seed(1)) / 8)
            module.pos_emb.copy_(module.pos_emb.bfloat16().float())
        return module

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"e": self.module().pos_emb})

    def row(self, inputs: RowInputs) -> Tensor:
        logits = product(inputs).to(inputs.dtype)[None, :, None]
        bias: Tensor = self.module().to(inputs.dtype)(inputs.q[None, :, None], logits)
        return (logits.double() + bias.double())[0, :, 0]


class ForgetGates(XTransformersImplementation):
    """`DataDependentAlibi`, which computes the forget gates of FoX."""

    needs_every_key = True

    def __init__(self) -> None:
        rounded = "the logarithms of the gates are summed in bfloat16"
        cached = "with the cache it sees only the last token, so no key has a bias"
        super().__init__(
            "DataDependentAlibi",
            choose(FoX),
            {"attn_data_dependent_alibi": True},
            {"bfloat16 at 512": rounded, "decoding within": cached, "decoding past": cached},
        )

    def module(self) -> Any:
        torch.manual_seed(1)
        module = parts.DataDependentAlibi(self.heads * self.head_dim, self.heads)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(parameter.bfloat16().float())
        return module

    def copy_weights(self, encoding: PositionEncoding) -> None:
        linear = self.module().to_forget_gates[0]
        encoding.load_state_dict({"w": linear.weight, "b": linear.bias})

    def row(self, inputs: RowInputs) -> Tensor:
        if inputs.length > 4096:
            raise NotApplicable("it computes all rows together, which takes too much memory")
        return product(inputs) + self.module().to(inputs.dtype)(self.layer_inputs(inputs))[0, :, -1].double()


def product(inputs: RowInputs) -> Tensor:
    return (inputs.q[:, None].double() @ inputs.k.double().mT)[:, 0] * inputs.q.shape[-1] ** -0.5


ROTARY_EXPLANATIONS: dict[str, str] = {
    **dict.fromkeys(
        ("value at 32768", "value at 10^5", "value at 10^6"),
        "angles are float32: position · frequency has an error of up to about position · 6e-8 radians",
    ),
    **dict.fromkeys(
        ("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"),
        "frequencies and positions are rounded to bfloat16: above 256, neighbouring positions become equal",
    ),
}

IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    lambda: Rotary("RotaryEmbedding", choose(RoPE)),
    lambda: Rotary("RotaryEmbedding, interpolation", choose(PI, factor=4.0), interpolation_factor=4.0),
    lambda: Rotary("RotaryEmbedding, base rescaled", choose(NTKAware, factor=4.0), base_rescale_factor=4.0),
    lambda: Rotary("RotaryEmbedding, xpos", choose(XPos), use_xpos=True),
    Alibi,
    lambda: Alibi(bidirectional=True),
    T5Bias,
    lambda: T5Bias(bidirectional=True),
    ContextualBias,
    ForgetGates,
)
