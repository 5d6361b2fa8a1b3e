"""Hugging Face transformers, biases: BLOOM and MPT (ALiBi), and T5."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

from lengthwise.config import choose
from lengthwise.conformance.outside.implementation import (
    SHAPE,
    TRAIN_LENGTH,
    VOCABULARY,
    Model,
    NotApplicable,
    RowInputs,
)
from lengthwise.conformance.outside.transformers_base import CausalModel, TransformersImplementation, config_arguments
from lengthwise.encodings import T5, ALiBi, PositionEncoding
from lengthwise.models.conversion import t5_weight_from_table


class Bloom(TransformersImplementation):
    """ALiBi as slope · key position: one row of biases for all queries."""

    def __init__(self) -> None:
        super().__init__("BLOOM, ALiBi", choose(ALiBi))
        absolute = (
            "it adds slope · key position in the model's dtype: in bfloat16 many neighbouring keys have the same bias"
        )
        self.explanations = {  # type: ignore[misc]
            **dict.fromkeys(("bfloat16 at 512", "bfloat16 at 32768", "bfloat16 at 10^5"), absolute),
            **dict.fromkeys(
                ("value at 32768", "value at 10^5", "value at 10^6"),
                "it adds slope · key position in float32, whose rounding error grows with the position",
            ),
        }

    def row(self, inputs: RowInputs) -> Tensor:
        bias = build_alibi_tensor(torch.ones(1, inputs.length, dtype=torch.long), self.heads, inputs.dtype)
        # Its attention adds the bias in the dtype of the model.
        product = (inputs.q[:, None].double() @ inputs.k.double().mT)[:, 0] * self.head_dim**-0.5
        return product + bias[:, 0, inputs.keys].double()

    def model(self) -> Model:
        torch.manual_seed(0)
        shape = {"hidden_size": SHAPE["d_model"], "n_layer": SHAPE["num_layers"], "n_head": SHAPE["num_heads"]}
        return CausalModel(
            transformers.BloomForCausalLM(transformers.BloomConfig(**config_arguments(shape))), positions=False
        )


class Mpt(TransformersImplementation):
    """ALiBi as slope · (key position - last position)."""

    def __init__(self) -> None:
        super().__init__("MPT, ALiBi", choose(ALiBi))
        self.explanations = {  # type: ignore[misc]
            "runs past": "its bias has max_seq_len keys, although the formula has no largest length",
        }

    def row(self, inputs: RowInputs) -> Tensor:
        bias = build_mpt_alibi_tensor(self.heads, inputs.length)
        product = (inputs.q[:, None].double() @ inputs.k.double().mT)[:, 0] * self.head_dim**-0.5
        return product + bias[:, 0, inputs.keys].double()

    def model(self) -> Model:
        return self._build(3 * TRAIN_LENGTH)

    def short_model(self) -> Model:
        return self._build(TRAIN_LENGTH)

    def _build(self, keys: int) -> Model:
        torch.manual_seed(0)
        shape = {"d_model": SHAPE["d_model"], "n_layers": SHAPE["num_layers"], "n_heads": SHAPE["num_heads"],
                 "expansion_ratio": 2, "max_seq_len": keys}  # fmt: skip
        return CausalModel(
            transformers.MptForCausalLM(transformers.MptConfig(**config_arguments(shape))), positions=False
        )


class T5Bias(TransformersImplementation):
    """The bias of T5's self-attention in its decoder, or in its encoder (`bidirectional`)."""

    def __init__(self, *, bidirectional: bool = False):
        options = {"bidirectional": True} if bidirectional else {}
        super().__init__(f"T5, {'both ways' if bidirectional else 'causal'}", choose(T5, **options))
        self.bidirectional = bidirectional
        self.explanations = {}  # type: ignore[misc]

    def attention(self) -> Any:
        torch.manual_seed(1)
        config = transformers.T5Config(
            d_model=self.heads * self.head_dim,
            d_kv=self.head_dim,
            num_heads=self.heads,
            is_decoder=not self.bidirectional,
        )
        attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
        with torch.no_grad():  # weights that bfloat16 represents exactly
            attention.relative_attention_bias.weight.copy_(
                torch.randn_like(attention.relative_attention_bias.weight).bfloat16().float()
            )
        return attention

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"weight": t5_weight_from_table(self.attention().relative_attention_bias.weight)})

    def row(self, inputs: RowInputs) -> Tensor:
        bias = self.attention().to(inputs.dtype).compute_bias(1, inputs.length, past_seen_tokens=inputs.query)
        product = (inputs.q[:, None].double() @ inputs.k.double().mT)[:, 0] * self.head_dim**-0.5
        return product + bias[0, :, 0, inputs.keys].double()

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
        with torch.no_grad():  # with T5's initialization the positions would hardly matter
            for name, weight in model.named_parameters():
                if "relative_attention_bias" in name or "embed" in name or "shared" in name:
                    weight.normal_()

    def forward(self, tokens: Tensor) -> Tensor:
        return self._call(tokens).logits

    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        output = self._call(tokens[:, :prompt], use_cache=True)
        logits = [output.logits]
        for n in range(prompt, tokens.shape[1]):
            output = self._call(tokens[:, n : n + 1], use_cache=True, past_key_values=output.past_key_values)
            logits.append(output.logits)
        return torch.cat(logits, 1)

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        mask = (torch.arange(tokens.shape[1]) >= torch.tensor(padding)[:, None]).long()
        return self._call(tokens, decoder_attention_mask=mask).logits

    @torch.no_grad()
    def _call(self, tokens: Tensor, use_cache: bool = False, **options: Any) -> Any:
        source = torch.ones(len(tokens), 1, dtype=torch.long)
        return self.model(input_ids=source, decoder_input_ids=tokens, use_cache=use_cache, **options)
