"""The position modules of x-transformers, and its decoder with each of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from x_transformers import Decoder as OutsideDecoder
from x_transformers import TransformerWrapper
from x_transformers import x_transformers as parts

from comparisons.implementation import (
    SHAPE,
    TRAIN_LENGTH,
    VOCABULARY,
    Implementation,
    Model,
    RowInputs,
    row_explanations,
)
from lengthwise.config import Choice, choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import PI, T5, ALiBi, CoPE, FoX, NTKAware, PositionEncoding, RoPE, XPos
from lengthwise.models.conversion import t5_weight_from_table


class WrappedModel(Model):
    """A `TransformerWrapper`. With its cache, each step takes all tokens and computes the last one."""

    def __init__(self, model: Any):
        self.model = model.eval()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens)

    def extend(self, tokens: Tensor, start: int, end: int, cache: Any) -> tuple[Tensor, Any]:
        logits, cache = self.model(tokens[:, :end], return_intermediates=True, cache=cache)
        return logits[:, start - end :], cache

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        return self.model(tokens, seq_start_pos=torch.tensor(padding))


class XTransformersImplementation(Implementation):
    library = "x-transformers"

    def __init__(self, name: str, choice: Choice, layers: dict[str, Any], explanations: dict[str, str] | None = None):
        super().__init__(name, choice, explanations)
        self.layers = layers

    def model(self) -> Model:
        if self.bidirectional:
            raise NotApplicable("an encoder does not predict tokens")
        torch.manual_seed(0)
        layers = OutsideDecoder(
            dim=SHAPE["d_model"], depth=SHAPE["num_layers"], heads=SHAPE["num_heads"], attn_dim_head=SHAPE["head_dim"],
            verbose=False, **self.layers,
        )  # fmt: skip
        model = TransformerWrapper(
            num_tokens=VOCABULARY, max_seq_len=TRAIN_LENGTH, attn_layers=layers, use_abs_pos_emb=False
        )
        for name, parameter in model.named_parameters():
            # With their initial values the positions would hardly matter, and hardly anything would be forgotten.
            if "pos_emb" in name or "token_emb" in name or "relative_attention_bias" in name:
                parameter.data.normal_()
            elif "to_forget_gates" in name and "bias" in name:
                parameter.data.zero_()
        return WrappedModel(model)


class Rotary(XTransformersImplementation):
    """`RotaryEmbedding`, interleaved."""

    def __init__(self, name: str, choice: Choice, **options: Any):
        names = {"use_xpos": "rotary_xpos", "interpolation_factor": "rotary_interpolation_factor",
                 "base_rescale_factor": "rotary_base_rescale_factor"}  # fmt: skip
        layers = {"rotary_pos_emb": True, "rotary_emb_dim": SHAPE["head_dim"]}
        super().__init__(name, choice, layers | {names[k]: v for k, v in options.items()}, ROTARY)
        self.options = options

    def row(self, inputs: RowInputs) -> Tensor:
        rotary = parts.RotaryEmbedding(self.head_dim, **self.options).to(inputs.dtype)
        angles, scale = rotary(torch.cat([inputs.keys, torch.tensor([inputs.query])]))
        gain_q, gain_k = (scale[:, -1:], scale[:, :-1] ** -1.0) if isinstance(scale, Tensor) else (scale, scale)
        q = parts.apply_rotary_pos_emb(inputs.q[None, :, None], angles[:, -1:], gain_q)
        k = parts.apply_rotary_pos_emb(inputs.k[None], angles[:, :-1], gain_k)
        return replace(inputs, q=q[0, :, 0], k=k[0]).product


class Alibi(XTransformersImplementation):
    """`AlibiPositionalBias`."""

    def row(self, inputs: RowInputs) -> Tensor:
        bias = parts.AlibiPositionalBias(self.heads).to(inputs.dtype)
        return inputs.product + bias.forward_custom_pos(torch.tensor([inputs.query]), inputs.keys)[:, 0].double()


class T5Bias(XTransformersImplementation):
    """`RelativePositionBias`."""

    def module(self) -> Any:
        torch.manual_seed(1)
        module = parts.RelativePositionBias(scale=1.0, causal=not self.bidirectional, heads=self.heads)
        return rounded_to_bfloat16(module)

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"weight": t5_weight_from_table(self.module().relative_attention_bias.weight)})

    def row(self, inputs: RowInputs) -> Tensor:
        # The module puts its queries at the end, so keys after the query need its buckets directly.
        module = self.module().to(inputs.dtype)
        if not self.bidirectional:
            return inputs.product + module(1, inputs.length)[:, 0, inputs.keys].double()
        bucket = module._relative_position_bucket(inputs.keys - inputs.query, causal=False)
        return inputs.product + module.relative_attention_bias(bucket).T.double()


class ContextualBias(XTransformersImplementation):
    """`CoPE`."""

    needs_every_key = True

    def module(self) -> Any:
        module = parts.CoPE(self.head_dim, self.heads, 64)
        module.pos_emb.data = torch.randn(64, self.head_dim, generator=torch.Generator().manual_seed(1)) / 8
        return rounded_to_bfloat16(module)

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"e": self.module().pos_emb})

    def row(self, inputs: RowInputs) -> Tensor:
        logits = inputs.product.to(inputs.dtype)[None, :, None]
        bias: Tensor = self.module().to(inputs.dtype)(inputs.q[None, :, None], logits)
        return (logits.double() + bias.double())[0, :, 0]


class ForgetGates(XTransformersImplementation):
    """`DataDependentAlibi`, which computes the forget gates of FoX."""

    needs_every_key = True

    def module(self) -> Any:
        torch.manual_seed(1)
        return rounded_to_bfloat16(parts.DataDependentAlibi(self.heads * self.head_dim, self.heads))

    def copy_weights(self, encoding: PositionEncoding) -> None:
        linear = self.module().to_forget_gates[0]
        encoding.load_state_dict({"w": linear.weight, "b": linear.bias})

    def row(self, inputs: RowInputs) -> Tensor:
        if inputs.length > 4096:
            raise NotApplicable("it computes all rows together, which takes too much memory")
        return inputs.product + self.module().to(inputs.dtype)(self.layer_inputs(inputs))[0, :, -1].double()


def rounded_to_bfloat16(module: Any) -> Any:
    """Return the module with weights that bfloat16 represents exactly."""
    for parameter in module.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return module


ROTARY = row_explanations(
    float32="angles are float32: position · frequency has an error of up to about position · 6e-8 radians",
    bfloat16="frequencies and positions are rounded to bfloat16: above 256, neighbouring positions become equal",
)
SLOPES = row_explanations(bfloat16="slopes are rounded to bfloat16, and so are their products with the distance")
GATES = row_explanations(
    bfloat16="gates and their sums are rounded to bfloat16: counts above 32 are multiples of a quarter"
)
FORGETTING = {
    **row_explanations(bfloat16="the logarithms of the gates are summed in bfloat16"),
    **dict.fromkeys(
        ("decoding within", "decoding past"),
        "with the cache it sees only the last token, so no key has a bias",
    ),
}

IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    lambda: Rotary("RotaryEmbedding", choose(RoPE)),
    lambda: Rotary("RotaryEmbedding, interpolation", choose(PI, factor=4.0), interpolation_factor=4.0),
    lambda: Rotary("RotaryEmbedding, base rescaled", choose(NTKAware, factor=4.0), base_rescale_factor=4.0),
    lambda: Rotary("RotaryEmbedding, xpos", choose(XPos), use_xpos=True),
    lambda: Alibi("AlibiPositionalBias", choose(ALiBi), {"alibi_pos_bias": True}, SLOPES),
    lambda: Alibi("AlibiPositionalBias, both ways", choose(ALiBi, bidirectional=True), {}, SLOPES),
    lambda: T5Bias("RelativePositionBias", choose(T5), {"rel_pos_bias": True}),
    lambda: T5Bias("RelativePositionBias, both ways", choose(T5, bidirectional=True), {}),
    lambda: ContextualBias(
        "CoPE", choose(CoPE, max_position=64), {"attn_use_cope": True, "attn_cope_max_pos": 64}, GATES
    ),
    lambda: ForgetGates("DataDependentAlibi", choose(FoX), {"attn_data_dependent_alibi": True}, FORGETTING),
)
