"""Hugging Face transformers, rotary encodings: Llama with every rope type, SmolLM3, GPT-NeoX and GPT-J."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.mistral_large4 import modeling_mistral_large4

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
from lengthwise.config import Choice, ModelConfig, alternate, choose
from lengthwise.conformance.answers import NotApplicable
from lengthwise.encodings import LeRoPE, NoPE, PositionEncoding, RoPE
from lengthwise.models import Decoder
from lengthwise.models.conversion import encoding_from_rope_parameters

ROTARY_EXPLANATIONS = {
    **row_explanations(
        float32="angles are float32: position · frequency has an error of up to about position · 6e-8 radians",
        bfloat16="the frequencies are a buffer, which .to(bfloat16) rounds: an angle has a relative error of up "
        "to 1/256",
    ),
    "packed, as called": "documents are separated by their positions only with use_cache=False; by default they "
    "attend to each other",
}
_BATCH = "the largest position of any row or document determines the angles of all"
EXPLANATIONS = {
    "dynamic": {
        "decoding past": "cached keys stay rotated with the base of an earlier length",
        "history": "the base of the longest input stays until an input is shorter than the training length",
        "left padding": _BATCH,
        "packed": _BATCH,
    },
    "longrope": {
        "decoding past": "keys that were cached below the training length stay rotated with the short factors",
        "left padding": _BATCH,
        "packed": _BATCH,
    },
}
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "deepseek", "longrope", "llama3", "proportional")


def rope_parameters(name: str, train_length: int, head_dim: int) -> dict[str, Any]:
    """Return the `rope_parameters` of a configuration. `name` is a rope type, or "deepseek" for its
    settings of YaRN.
    """
    pairs, trained = head_dim // 2, {"original_max_position_embeddings": train_length}
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "linear": {"factor": 4.0},
        "dynamic": {"factor": 2.0},
        "yarn": {"factor": 4.0, **trained},
        "deepseek": {"rope_type": "yarn", "factor": 40.0, **trained, "beta_fast": 16.0, "beta_slow": 2.0,
                     "truncate": False, "mscale": 1.0, "mscale_all_dim": 0.707},
        "longrope": {"factor": 4.0, **trained, "short_factor": [1.0 + 0.25 * p / pairs for p in range(pairs)],
                     "long_factor": [1.0 + 3.0 * p / pairs for p in range(pairs)]},
        "llama3": {"factor": 8.0, **trained, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "proportional": {"partial_rotary_factor": 0.5},
    }  # fmt: skip
    return {"rope_type": name, "rope_theta": 10_000.0, **settings[name]}


class Llama(TransformersImplementation):
    """`LlamaRotaryEmbedding` and `LlamaForCausalLM` with the `rope_parameters` of one name."""

    has_our_architecture = True
    architecture: ClassVar[str] = "Llama"

    def __init__(self, rope: str = "default"):
        self.rope = rope
        rope_type = rope_parameters(rope, self.train_length, self.head_dim)["rope_type"]
        super().__init__(
            f"{self.architecture}, {rope if rope == rope_type else f'{rope_type} as {rope}'}",
            self.counterpart(self.train_length, self.head_dim),
            {**ROTARY_EXPLANATIONS, **EXPLANATIONS.get(rope, {})},
        )

    def counterpart(self, train_length: int, head_dim: int) -> Choice:
        return encoding_from_rope_parameters(rope_parameters(self.rope, train_length, head_dim), head_dim=head_dim)

    def model_choice(self) -> Choice:
        """Return the corresponding encoding of ours with the head dimension of the models."""
        return self.counterpart(TRAIN_LENGTH, SHAPE["head_dim"])

    def row(self, inputs: RowInputs) -> Tensor:
        rotary = modeling_llama.LlamaRotaryEmbedding(self.row_config()).to(inputs.dtype)
        return rotated_row(inputs, rotary, modeling_llama.apply_rotary_pos_emb)

    def loaded_row(self, inputs: RowInputs) -> Tensor:
        loaded = transformers.AutoModelForCausalLM.from_config(self.row_config(), dtype=inputs.dtype)
        return rotated_row(inputs, loaded.model.rotary_emb, modeling_llama.apply_rotary_pos_emb)

    def row_config(self) -> Any:
        """Return a configuration with the heads of the rows. The rest of the model is as small as possible."""
        return transformers.LlamaConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, head_dim=self.head_dim,
            vocab_size=1, num_hidden_layers=1, intermediate_size=1, max_position_embeddings=self.train_length,
            rope_parameters=rope_parameters(self.rope, self.train_length, self.head_dim), bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip

    def model_config(self) -> dict[str, Any]:
        shared = model_arguments(rope_parameters(self.rope, TRAIN_LENGTH, SHAPE["head_dim"]))
        return {**shared, "num_key_value_heads": SHAPE["num_kv_heads"], "rms_norm_eps": 1e-6}

    def causal_model(self) -> Any:
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**self.model_config()))

    def model(self) -> Model:
        return CausalModel(self.causal_model())

    def decoder(self) -> Decoder:
        return with_llama_weights(self.causal_model(), self.model_choice())


class SmolLM3(Llama):
    """A Llama in which every second layer has no position encoding."""

    architecture = "SmolLM3"

    def __init__(self) -> None:
        super().__init__()
        self.name = "SmolLM3, layers without rope"

    @property
    def label(self) -> str:
        return self.model_choice().label

    def row(self, inputs: RowInputs) -> Tensor:
        raise NotApplicable("its layers are those of Llama or have no encoding; only the pattern of layers is new")

    loaded_row = row

    def causal_model(self) -> Any:
        torch.manual_seed(0)
        config = transformers.SmolLM3Config(**self.model_config(), no_rope_layers=[1, 0])
        return transformers.SmolLM3ForCausalLM(config)

    def model_choice(self) -> Choice:
        return alternate(super().model_choice(), choose(NoPE))


LLAMA_PARTS = {
    "attention_norm": ("input_layernorm",),
    "mlp_norm": ("post_attention_layernorm",),
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


def with_llama_weights(theirs: Any, choice: Choice) -> Decoder:
    """Return our decoder with the weights of a Llama. It joins q, k and v in one matrix, and gate and up in another."""
    decoder = Decoder(
        ModelConfig.llama(**SHAPE), choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=TRAIN_LENGTH
    )
    weights = theirs.state_dict()
    state = {"token_embedding.weight": weights["model.embed_tokens.weight"],
             "norm.weight": weights["model.norm.weight"],
             "lm_head.weight": weights["lm_head.weight"]}  # fmt: skip
    for n, (ours, names) in product(range(SHAPE["num_layers"]), LLAMA_PARTS.items()):
        joined = torch.cat([weights[f"model.layers.{n}.{name}.weight"] for name in names])
        state[f"blocks.{n}.{ours}.weight"] = joined
    decoder.load_state_dict(state)
    return decoder


def rotated_row(inputs: RowInputs, rotary: Any, apply: Any) -> Tensor:
    """Return the logits of queries and keys rotated by them in the inputs' dtype. The product is float64."""
    positions = torch.cat([inputs.keys, torch.tensor([inputs.query])])[None]
    cos, sin = rotary(inputs.q, positions)
    q, k = inputs.q[None, :, None], inputs.k[None]
    rotated_q, _ = apply(q, q, cos[:, -1:], sin[:, -1:])
    _, rotated_k = apply(k, k, cos[:, :-1], sin[:, :-1])
    return replace(inputs, q=rotated_q[0, :, 0], k=rotated_k[0]).product


def model_arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the configurations of Llama and GPT-NeoX share."""
    shape = {"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"],
             "num_attention_heads": SHAPE["num_heads"], "intermediate_size": SHAPE["d_ff"]}  # fmt: skip
    return {**config_arguments(shape), "max_position_embeddings": TRAIN_LENGTH, "rope_parameters": parameters}


class GPTNeoX(TransformersImplementation):
    """Rotate r dimensions, a quarter of each head, in pairs (p, p + r/2)."""

    parameters: ClassVar = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}

    def __init__(self) -> None:
        choice = choose(RoPE, rotary_fraction=0.25, layout="half")
        super().__init__("GPT-NeoX, a quarter rotated", choice, ROTARY_EXPLANATIONS)

    def row(self, inputs: RowInputs) -> Tensor:
        config = transformers.GPTNeoXConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads,
            max_position_embeddings=self.train_length, rope_parameters=dict(self.parameters),
        )  # fmt: skip
        rotary = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config).to(inputs.dtype)
        return rotated_row(inputs, rotary, modeling_gpt_neox.apply_rotary_pos_emb)

    def model(self) -> Model:
        torch.manual_seed(0)
        config = transformers.GPTNeoXConfig(**model_arguments(dict(self.parameters)))
        return CausalModel(transformers.GPTNeoXForCausalLM(config))


class GPTJ(TransformersImplementation):
    """Rotate the first 16 dimensions of each head in pairs (2p, 2p + 1), with a table of `n_positions` rows."""

    def __init__(self) -> None:
        table = {"runs past": "its table has n_positions rows, so larger positions do not exist"}
        super().__init__(
            "GPT-J, 16 dims, interleaved", choose(RoPE, rotary_fraction=0.25), {**ROTARY_EXPLANATIONS, **table}
        )

    def row(self, inputs: RowInputs) -> Tensor:
        rotary_dims = self.head_dim // 4
        table = modeling_gptj.create_sinusoidal_positions(inputs.length, rotary_dims).to(inputs.dtype)

        def rotate(x: Tensor, positions: Tensor) -> Tensor:  # [b, t, h, d]
            sin, cos = table[positions][None].split(rotary_dims // 2, -1)
            rotated = modeling_gptj.apply_rotary_pos_emb(x[..., :rotary_dims], sin, cos)
            return torch.cat([rotated, x[..., rotary_dims:]], -1)

        q = rotate(inputs.q[None, None], torch.tensor([inputs.query])).transpose(1, 2)
        k = rotate(inputs.k.transpose(0, 1)[None], inputs.keys).transpose(1, 2)
        return replace(inputs, q=q[0, :, 0], k=k[0]).product

    def model(self, rows: int = 3 * TRAIN_LENGTH) -> Model:
        torch.manual_seed(0)
        shape = {"n_embd": SHAPE["d_model"], "n_layer": SHAPE["num_layers"], "n_head": SHAPE["num_heads"],
                 "n_inner": SHAPE["d_ff"], "rotary_dim": 4, "n_positions": rows}  # fmt: skip
        return CausalModel(transformers.GPTJForCausalLM(transformers.GPTJConfig(**config_arguments(shape))))

    def short_model(self) -> Model:
        return self.model(TRAIN_LENGTH)


class LearnedFrequencies(TransformersImplementation):
    """The rotation of Mistral Large 4, whose frequencies are multiplied by exp(alpha)."""

    def __init__(self) -> None:
        super().__init__("Mistral Large 4, LeRoPE", choose(LeRoPE), ROTARY_EXPLANATIONS)

    @property
    def alpha(self) -> Tensor:
        pairs = self.head_dim // 2
        return torch.arange(pairs) / pairs - 0.5  # numbers that bfloat16 represents exactly

    def copy_weights(self, encoding: PositionEncoding) -> None:
        encoding.load_state_dict({"alpha": self.alpha})

    def row(self, inputs: RowInputs) -> Tensor:
        config = SimpleNamespace(
            head_dim=self.head_dim, max_position_embeddings=self.train_length,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        )  # fmt: skip
        rotary = modeling_mistral_large4.MistralLarge4TextRotaryEmbedding(config)
        rotary.alpha.copy_(self.alpha)
        return rotated_row(inputs, rotary.to(inputs.dtype), modeling_mistral_large4.apply_rotary_pos_emb_interleave)

    def loaded_row(self, inputs: RowInputs) -> Tensor:
        raise NotApplicable("its frequencies stay in float32, as those of Llama, which is compared")


IMPLEMENTATIONS: tuple[Callable[[], Implementation], ...] = (
    *(partial(Llama, name) for name in ROPE_TYPES),
    SmolLM3,
    GPTNeoX,
    GPTJ,
    LearnedFrequencies,
)
