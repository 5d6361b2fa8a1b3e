"""Hugging Face transformers, rotary encodings: Llama with every rope type, SmolLM3, GPT-NeoX and GPT-J."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from lengthwise.config import Choice, ModelConfig, alternate, choose
from lengthwise.conformance.outside.implementation import (
    SHAPE,
    TRAIN_LENGTH,
    VOCABULARY,
    Model,
    NotApplicable,
    RowInputs,
)
from lengthwise.conformance.outside.rope_types import FLOAT32_EXPLANATIONS, PACKED_EXPLANATIONS, default
from lengthwise.conformance.outside.transformers_base import CausalModel, TransformersImplementation, config_arguments
from lengthwise.encodings import NoPE, RoPE
from lengthwise.models import Decoder
from lengthwise.models.conversion import encoding_from_rope_parameters


class Llama(TransformersImplementation):
    """`LlamaRotaryEmbedding` and `LlamaForCausalLM` with one `rope_type`."""

    has_our_architecture = True
    architecture: ClassVar[str] = "Llama"

    def __init__(self, parameters: Callable[[int, int], dict[str, Any]], explanations: dict[str, str] | None = None):
        self.parameters = parameters  # a function of the training length and the head dimension
        rope_type = parameters(self.train_length, 64)["rope_type"]
        choice = encoding_from_rope_parameters(parameters(self.train_length, 64), head_dim=64)
        name = rope_type if parameters.__name__ == rope_type else f"{rope_type} as {parameters.__name__}"
        super().__init__(f"{self.architecture}, {name}", choice)
        self.explanations = {**FLOAT32_EXPLANATIONS, **PACKED_EXPLANATIONS, **(explanations or {})}  # type: ignore[misc]

    def model_choice(self) -> Choice:
        """Return the corresponding encoding of ours with the head dimension of the models."""
        return encoding_from_rope_parameters(
            self.parameters(TRAIN_LENGTH, SHAPE["head_dim"]), head_dim=SHAPE["head_dim"]
        )

    def row(self, inputs: RowInputs) -> Tensor:
        return rotated_row(inputs, self.rotary().to(inputs.dtype), modeling_llama.apply_rotary_pos_emb)

    def loaded_row(self, inputs: RowInputs) -> Tensor:
        loaded = transformers.AutoModelForCausalLM.from_config(self.row_config(), dtype=inputs.dtype)
        return rotated_row(inputs, loaded.model.rotary_emb, modeling_llama.apply_rotary_pos_emb)

    def rotary(self) -> Any:
        return modeling_llama.LlamaRotaryEmbedding(self.row_config())

    def row_config(self) -> Any:
        """Return a configuration with the heads of the rows. The rest of the model is as small as possible."""
        return transformers.LlamaConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, head_dim=self.head_dim, vocab_size=1,
            num_hidden_layers=1, intermediate_size=1, max_position_embeddings=self.train_length,
            rope_parameters=self.parameters(self.train_length, self.head_dim), bos_token_id=0, eos_token_id=0,
        )  # fmt: skip

    def model_config(self) -> Any:
        shape = {"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"], "rms_norm_eps": 1e-6,
                 "num_attention_heads": SHAPE["num_heads"], "num_key_value_heads": SHAPE["num_kv_heads"],
                 "head_dim": SHAPE["head_dim"], "intermediate_size": SHAPE["d_ff"]}  # fmt: skip
        parameters = self.parameters(TRAIN_LENGTH, SHAPE["head_dim"])
        return transformers.LlamaConfig(
            **config_arguments(shape), max_position_embeddings=TRAIN_LENGTH, rope_parameters=parameters
        )

    def causal_model(self) -> Any:
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(self.model_config())

    def model(self) -> Model:
        return CausalModel(self.causal_model())

    def decoder(self) -> Decoder:
        return with_llama_weights(self.causal_model(), self.model_choice())


class SmolLM3(Llama):
    """A Llama in which every second layer has no position encoding."""

    architecture = "SmolLM3"

    def __init__(self) -> None:
        super().__init__(default)
        self.name = "SmolLM3, layers without rope"

    @property
    def label(self) -> str:
        return self.model_choice().label

    def row(self, inputs: RowInputs) -> Tensor:
        raise NotApplicable("its layers are those of Llama or have no encoding; only the pattern of layers is new")

    loaded_row = row

    def causal_model(self) -> Any:
        torch.manual_seed(0)
        config = self.model_config().to_dict()
        names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "num_key_value_heads", "initializer_range", "rms_norm_eps", "max_position_embeddings", "rope_parameters",
                  "bos_token_id", "eos_token_id", "pad_token_id")  # fmt: skip
        return transformers.SmolLM3ForCausalLM(
            transformers.SmolLM3Config(**{name: config[name] for name in names}, no_rope_layers=[1, 0])
        )

    def model_choice(self) -> Choice:
        return alternate(super().model_choice(), choose(NoPE))


def with_llama_weights(theirs: Any, choice: Choice) -> Decoder:
    """Return our decoder with the weights of a Llama. It joins q, k and v in one matrix, and gate and up in another."""
    decoder = Decoder(
        ModelConfig.llama(**SHAPE), choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=TRAIN_LENGTH
    )
    weights = theirs.state_dict()
    state = {
        "token_embedding.weight": weights["model.embed_tokens.weight"],
        "norm.weight": weights["model.norm.weight"],
    }
    state["lm_head.weight"] = weights["lm_head.weight"]
    for n in range(SHAPE["num_layers"]):
        layer, block = f"model.layers.{n}.", f"blocks.{n}."
        join = lambda *names, at=layer: torch.cat([weights[f"{at}{name}_proj.weight"] for name in names])  # noqa: E731
        state[block + "attention_norm.weight"] = weights[layer + "input_layernorm.weight"]
        state[block + "mlp_norm.weight"] = weights[layer + "post_attention_layernorm.weight"]
        state[block + "qkv.weight"] = join("self_attn.q", "self_attn.k", "self_attn.v")
        state[block + "out.weight"] = weights[layer + "self_attn.o_proj.weight"]
        state[block + "up.weight"] = join("mlp.gate", "mlp.up")
        state[block + "down.weight"] = weights[layer + "mlp.down_proj.weight"]
    decoder.load_state_dict(state)
    return decoder


def rotated_row(inputs: RowInputs, rotary: Any, apply: Any) -> Tensor:
    """Return the logits of queries and keys rotated by them in the inputs' dtype. The product is float64."""
    positions = torch.cat([inputs.keys, torch.tensor([inputs.query])])[None]
    cos, sin = rotary(inputs.q, positions)
    q, k = inputs.q[None, :, None], inputs.k[None]
    rotated_q, _ = apply(q, q, cos[:, -1:], sin[:, -1:])
    _, rotated_k = apply(k, k, cos[:, :-1], sin[:, :-1])
    return (rotated_q.double() @ rotated_k.double().mT)[0, :, 0] * q.shape[-1] ** -0.5


class GPTNeoX(TransformersImplementation):
    """Rotate r dimensions, a quarter of each head, in pairs (p, p + r/2)."""

    def __init__(self) -> None:
        super().__init__("GPT-NeoX, a quarter rotated", choose(RoPE, rotary_fraction=0.25, layout="half"))
        self.explanations = {**FLOAT32_EXPLANATIONS, **PACKED_EXPLANATIONS}  # type: ignore[misc]

    def row(self, inputs: RowInputs) -> Tensor:
        config = transformers.GPTNeoXConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, max_position_embeddings=self.train_length,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
        )  # fmt: skip
        rotary = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config).to(inputs.dtype)
        return rotated_row(inputs, rotary, modeling_gpt_neox.apply_rotary_pos_emb)

    def model(self) -> Model:
        torch.manual_seed(0)
        shape = {"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"],
                 "num_attention_heads": SHAPE["num_heads"], "intermediate_size": SHAPE["d_ff"]}  # fmt: skip
        parameters = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
        config = transformers.GPTNeoXConfig(
            **config_arguments(shape), max_position_embeddings=TRAIN_LENGTH, rope_parameters=parameters
        )
        return CausalModel(transformers.GPTNeoXForCausalLM(config))


class GPTJ(TransformersImplementation):
    """Rotate the first 16 dimensions of each head in pairs (2p, 2p + 1), with a table of `n_positions` rows."""

    explanations: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__("GPT-J, 16 dims, interleaved", choose(RoPE, rotary_fraction=0.25))
        self.explanations = {  # type: ignore[misc]
            **FLOAT32_EXPLANATIONS,
            **PACKED_EXPLANATIONS,
            "runs past": "its table has n_positions rows, so larger positions do not exist",
        }

    def row(self, inputs: RowInputs) -> Tensor:
        rotary_dims = self.head_dim // 4
        table = modeling_gptj.create_sinusoidal_positions(inputs.length, rotary_dims).to(inputs.dtype)

        def rotate(x: Tensor, positions: Tensor) -> Tensor:  # [b, t, h, d]
            sin, cos = table[positions][None].split(rotary_dims // 2, -1)
            rotated = modeling_gptj.apply_rotary_pos_emb(x[..., :rotary_dims], sin, cos)
            return torch.cat([rotated, x[..., rotary_dims:]], -1)

        q = rotate(inputs.q[None, None], torch.tensor([inputs.query])).transpose(1, 2)
        k = rotate(inputs.k.transpose(0, 1)[None], inputs.keys).transpose(1, 2)
        return (q.double() @ k.double().mT)[0, :, 0] * self.head_dim**-0.5

    def model(self) -> Model:
        return CausalModel(self._build(3 * TRAIN_LENGTH))

    def short_model(self) -> Model:
        return CausalModel(self._build(TRAIN_LENGTH))

    def _build(self, rows: int) -> Any:
        torch.manual_seed(0)
        shape = {"n_embd": SHAPE["d_model"], "n_layer": SHAPE["num_layers"], "n_head": SHAPE["num_heads"],
                 "n_inner": SHAPE["d_ff"], "rotary_dim": 4, "n_positions": rows}  # fmt: skip
        return transformers.GPTJForCausalLM(transformers.GPTJConfig(**config_arguments(shape)))
