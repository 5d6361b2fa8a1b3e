"""Hugging Face transformers, biases: BLOOM and MPT (ALiBi), and T5."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from comparisons.implementation import (
    SHAPE,
    TRAIN_LENGTH,
    VOCABULARY,
    Implementation,
    Model,
    RowInputs,
    row_explanations,
)
from comparisons.transformers_base import CausalModel, TransformersImplementation, config_arguments
from lengthwise.config import choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import T5, ALiBi, PositionEncoding
from lengthwise.models.conversion import t5_weight_from_table


class Bloom(TransformersImplementation):
    """ALiBi as slope · key position: one row of biases for all queries."""

    def __init__(self) -> None:
        explanations = row_explanations(
            float32="it adds slope · key position in float32, whose rounding error grows with the position",
            bfloat16="it adds slope · key position in the model's dtype: in bfloat16 many neighbouring keys have the "
            "same bias",
        )
        super().__init__("BLOOM, ALiBi", choose(ALiBi), explanations)

    def row(self, inputs: RowInputs) -> Tensor:
        # Its attention adds the bias in the dtype of the model.
        bias = build_alibi_tensor(torch.ones(1, inputs.length, dtype=torch.long), self.heads, inputs.dtype)
        return inputs.product + bias[:, 0, inputs.keys].double()

    def model(self) -> Model:
        torch.manual_seed(0)
        shape = {"hidden_size": SHAPE["d_model"], "n_layer": SHAPE["num_layers"], "n_head": SHAPE["num_heads"]}
        return CausalModel(
            transformers.BloomForCausalLM(transformers.BloomConfig(**config_arguments(shape))), positions=False
        )


class Mpt(TransformersImplementation):
    """ALiBi as slope · (key position - last position)."""

    def __init__(self) -> None:
        explanations = {"runs past": "its bias has max_seq_len keys, although the formula has no largest length"}
        super().__init__("MPT, ALiBi", choose(ALiBi), explanations)

    def row(self, inputs: RowInputs) -> Tensor:
        bias = build_mpt_alibi_tensor(self.heads, inputs.length)
        return inputs.product + bias[:, 0, inputs.keys].double()

    def model(self, keys: int = 3 * TRAIN_LENGTH) -> Model:
        torch.manual_seed(0)
        shape = {"d_model": SHAPE["d_model"], "n_layers": SHAPE["num_layers"], "n_heads": SHAPE["num_heads"],
                 "expansion_ratio": 2, "max_seq_len": keys}  # fmt: skip
        return CausalModel(
            transformers.MptForCausalLM(transformers.MptConfig(**config_arguments(shape))), positions=False
        )

    def short_model(self) -> Model:
        return self.model(TRAIN_LENGTH)


class T5Bias(TransformersImplementation):
    """The bias of T5's self-attention in its decoder, or in its encoder (`bidirectional`)."""

    def attention(self) -> Any:
        torch.manual_seed(1)
        config = transformers.T5Config(
            d_model=self.heads * self.head_dim, d_kv=self.head_dim, num_heads=self.heads,
            is_decoder=not self.bidirectional,
        )  # fmt: skip
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        weight = attention.relative_attention_bias.weight
        weight.data = torch.randn_like(weight).bfloat16().float()  # numbers that bfloat16 represents exactly
        return attention

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"weight": t5_weight_from_table(self.attention().relative_attention_bias.weight)})

    def row(self, inputs: RowInputs) -> Tensor:
        bias = self.attention().to(inputs.dtype).compute_bias(1, inputs.length, past_seen_tokens=inputs.query)
        return inputs.product + bias[0, :, 0, inputs.keys].double()

    def model(self) -> Model:
        if self.bidirectional:
            raise NotApplicable("an encoder does not predict tokens")
        torch.manual_seed(0)
        config = transformers.T5Config(
            vocab_size=VOCABULARY, d_model=SHAPE["d_model"], d_kv=SHAPE["head_dim"], d_ff=SHAPE["d_ff"],
            num_layers=SHAPE["num_layers"], num_heads=SHAPE["num_heads"], decoder_start_token_id=0,
        )  # fmt: skip
        return T5Decoder(transformers.T5ForConditionalGeneration(config))


class T5Decoder(CausalModel):
    """T5's decoder, with an encoder that has read one token."""

    def __init__(self, model: Any):
        super().__init__(model, positions=False)
        for name, weight in model.named_parameters():  # with T5's initialization the positions would hardly matter
            if "relative_attention_bias" in name or "embed" in name or "shared" in name:
                weight.data.normal_()

    def call(self, tokens: Tensor, attention_mask: Tensor | None = None, **options: Any) -> Any:
        source = torch.ones(len(tokens), 1, dtype=torch.long)
        return self.model(input_ids=source, decoder_input_ids=tokens, decoder_attention_mask=attention_mask, **options)


IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    Bloom,
    Mpt,
    lambda: T5Bias("T5, causal", choose(T5)),
    lambda: T5Bias("T5, both ways", choose(T5, bidirectional=True)),
)
