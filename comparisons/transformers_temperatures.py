"""Hugging Face transformers, temperatures and sinks: Llama 4, Ministral 3, Mistral Large 4, Beam, Inkling, gpt-oss."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor
from transformers.models.beam import modeling_beam
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.inkling import modeling_inkling
from transformers.models.ministral3 import modeling_ministral3
from transformers.models.mistral_large4 import modeling_mistral_large4

from comparisons.implementation import (
    SHAPE,
    TRAIN_LENGTH,
    Implementation,
    Model,
    RowInputs,
    row_explanations,
    with_rest,
)
from comparisons.transformers_base import CausalModel, TransformersImplementation, config_arguments
from comparisons.transformers_rotary import Llama, model_arguments
from lengthwise.attention.backends import reference
from lengthwise.config import Choice, alternate, choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import (
    BandedBias,
    Beam,
    Combined,
    Inkling,
    Llama4,
    Ministral,
    MistralLarge4,
    NoPE,
    PositionEncoding,
    RoPE,
    Sinks,
)
from lengthwise.forms import SinkLogit
from lengthwise.span import Span

_COUNTS = "it counts the tokens of the row instead of reading the position IDs"
_SEPARATED = (
    "documents are separated by their positions only with use_cache=False; by default they attend to each other"
)
_COUNTED = {"left padding": _COUNTS, "packed": _COUNTS, "packed, as called": f"{_SEPARATED}, and {_COUNTS}"}


class Ministral3(Llama):
    """A Llama whose queries are multiplied by Llama 4's factor in every layer."""

    architecture = "Ministral 3"

    def __init__(self) -> None:
        super().__init__()
        self.name = "Ministral 3, temperature"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": 10_000.0, "llama_4_scaling_beta": 0.1,
                "original_max_position_embeddings": TRAIN_LENGTH}  # fmt: skip

    def counterpart(self, train_length: int, head_dim: int) -> Choice:
        rope = super().counterpart(train_length, head_dim)
        return choose(RoPE, **dict(rope.settings), temperature=choose(Ministral, step=train_length))

    def row(self, inputs: RowInputs) -> Tensor:
        gain = modeling_ministral3.get_llama_4_attn_scale(torch.tensor([[inputs.query]]), 0.1, self.train_length)
        return super().row(replace(inputs, q=inputs.q * gain[0, 0].to(inputs.dtype)))

    def loaded_row(self, inputs: RowInputs) -> Tensor:
        raise NotApplicable("loading it in a dtype is the same as casting it, but for the angles, which are Llama's")

    def causal_model(self) -> Any:
        torch.manual_seed(0)
        settings = {**self.model_config(), "head_dim": SHAPE["head_dim"], "rope_parameters": self.parameters}
        return transformers.Ministral3ForCausalLM(transformers.Ministral3Config(**settings))


class Llama4Layers(TransformersImplementation):
    """Every second layer rotates, and the others have a temperature."""

    def __init__(self) -> None:
        super().__init__("Llama 4, temperature", choose(NoPE, temperature=choose(Llama4, step=8)), _COUNTED)

    @property
    def label(self) -> str:
        return alternate(choose(RoPE), self.choice).label

    def row(self, inputs: RowInputs) -> Tensor:
        raise NotApplicable("its factor is computed inside the attention layer, which counts the tokens of the row")

    def decoder(self) -> Any:
        ours, self.choice = self.choice, alternate(choose(RoPE), self.choice)
        try:
            return super().decoder()
        finally:
            self.choice = ours

    def model(self) -> Model:
        torch.manual_seed(0)
        settings = model_arguments({"rope_type": "default", "rope_theta": 10_000.0})
        config = transformers.Llama4TextConfig(
            **settings, num_key_value_heads=SHAPE["num_kv_heads"], head_dim=SHAPE["head_dim"], moe_layers=[],
            intermediate_size_mlp=SHAPE["d_ff"], use_qk_norm=False, no_rope_layers=[1, 0], floor_scale=8,
            attention_chunk_size=1024, attn_scale=1.0,
        )  # fmt: skip
        return CausalModel(transformers.Llama4ForCausalLM(config))


class BeamFactor(TransformersImplementation):
    """Layers without rotation have a factor."""

    def __init__(self) -> None:
        super().__init__("Beam, temperature", choose(Beam))

    def row(self, inputs: RowInputs) -> Tensor:
        gain = modeling_beam.compute_attention_scaling(torch.tensor([[inputs.query]]))
        return replace(inputs, q=inputs.q * gain[0, 0].to(inputs.dtype)).product


class LargeFactor(TransformersImplementation):
    """A learned scale and bias of each head."""

    def __init__(self) -> None:
        rounding = row_explanations(
            bfloat16="ln(position + 1) is rounded to bfloat16 before it is multiplied by the scale"
        )
        super().__init__("Mistral Large 4, temperature", choose(MistralLarge4), rounding)

    @cached_property
    def module(self) -> Any:
        module = modeling_mistral_large4.MistralLarge4TextSoftmaxScaling(self.heads)
        with torch.no_grad():  # numbers that bfloat16 represents exactly
            module.scale.copy_(torch.arange(self.heads) / 16 + 0.125)
            module.bias.copy_(1 - torch.arange(self.heads) / 16)
        return module

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict(self.module.state_dict())

    def row(self, inputs: RowInputs) -> Tensor:
        q = self.module.to(inputs.dtype)(inputs.q[None, :, None], torch.tensor([[inputs.query]]), head_dim_first=True)
        return replace(inputs, q=q[0, :, 0].detach()).product


class InklingLogits(TransformersImplementation):
    """A banded bias, and a factor of all logits."""

    needs_every_key = True

    def __init__(self) -> None:
        choice = choose(BandedBias, temperature=choose(Inkling, length=float(self.train_length)))
        reasons = (
            row_explanations(bfloat16="the bias and its product with the factor are rounded to bfloat16") | _COUNTED
        )
        reasons["packed"] = f"its short convolutions read the previous document, and {_COUNTS}"
        super().__init__("Inkling, bias and temperature", choice, reasons)

    @cached_property
    def weights(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(3)
        shapes = (self.heads, 16, self.heads * self.head_dim), (16, 1024)
        w, p = (torch.randn(shape, generator=generator) for shape in shapes)
        return (w * w.shape[2] ** -0.5).bfloat16(), p.bfloat16()

    def copy_weights(self, encoding: PositionEncoding) -> None:
        assert isinstance(encoding, Combined)
        w, p = self.weights
        encoding.base.load_state_dict({"W": w, "P": p})

    def row(self, inputs: RowInputs) -> Tensor:
        w, p = (weight.to(inputs.dtype) for weight in self.weights)
        relative = F.linear(self.layer_inputs(inputs)[:, -1:], w.flatten(0, 1)).unflatten(-1, (self.heads, -1))
        module = modeling_inkling.InklingRelativeLogits(*p.shape)
        module.proj.data = p
        query = torch.tensor([inputs.query])
        bias = module(relative, query, inputs.keys)
        # As in InklingAttention.forward, which has no function for it.
        tau = 1.0 + 0.1 * torch.log(((query + 1).float() / self.train_length).clamp(min=1.0))
        q = (inputs.q.float() * tau).to(inputs.dtype)
        return replace(inputs, q=q).product + (bias.float() * tau).to(inputs.dtype)[0, :, 0].detach().double()

    def model(self) -> Model:
        torch.manual_seed(0)
        heads = {"num_attention_heads": SHAPE["num_heads"], "num_key_value_heads": SHAPE["num_kv_heads"]}
        config = transformers.InklingTextConfig(
            **config_arguments({"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"], **heads}),
            head_dim=SHAPE["head_dim"], d_rel=4, rel_extent=24, log_scaling_n_floor=8, log_scaling_alpha=1.0,
            layer_types=["hybrid"] * SHAPE["num_layers"], mlp_layer_types=["dense"] * SHAPE["num_layers"],
            intermediate_size=SHAPE["d_ff"], logits_mup_width_multiplier=1.0,
        )  # fmt: skip
        return CausalModel(transformers.InklingForCausalLM(config))


class GptOssSinks(TransformersImplementation):
    """Sinks, as a column that is dropped after the softmax."""

    def __init__(self) -> None:
        reasons = row_explanations(bfloat16="the softmax is computed in the dtype of the model, so weights have 8 bits")
        unseparated = "its masks ignore the position IDs, so documents attend to each other"
        super().__init__(
            "gpt-oss, sinks", choose(Sinks), reasons | dict.fromkeys(("packed", "packed, as called"), unseparated)
        )

    @cached_property
    def logits(self) -> Tensor:
        return torch.arange(self.heads) / 4 - 1  # numbers that bfloat16 represents exactly

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"logit": self.logits})

    def row(self, inputs: RowInputs) -> Tensor:
        """Return the logarithms of the weights of the keys, and of the sink's."""
        module = SimpleNamespace(sinks=self.logits.to(inputs.dtype), num_key_value_groups=1, training=False)
        q, k = inputs.q[None, :, None], inputs.k[None]
        _, weights = modeling_gpt_oss.eager_attention_forward(module, q, k, k, None, self.head_dim**-0.5)
        return with_rest(weights[0, :, 0])

    def our_row(self, inputs: RowInputs, *, rounded_bias: bool = False) -> Tensor:
        logits = super().our_row(inputs)[None, :, None]
        sink = self.encoding.modifiers(Span.of(1)).sink
        assert isinstance(sink, SinkLogit)
        return with_rest(reference.softmax(logits, sink)[0, :, 0].detach())

    def model(self) -> Model:
        torch.manual_seed(0)
        settings = model_arguments({"rope_type": "default", "rope_theta": 10_000.0})
        config = transformers.GptOssConfig(
            **settings, num_key_value_heads=SHAPE["num_kv_heads"], head_dim=SHAPE["head_dim"], num_local_experts=2,
            num_experts_per_tok=1, sliding_window=16,
        )  # fmt: skip
        return CausalModel(transformers.GptOssForCausalLM(config))


IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    Llama4Layers,
    Ministral3,
    BeamFactor,
    LargeFactor,
    InklingLogits,
    GptOssSinks,
)
