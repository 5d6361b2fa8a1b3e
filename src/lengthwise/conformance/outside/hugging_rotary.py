"""Hugging Face transformers, rotary: Llama with every rope type, SmolLM3, GPT-NeoX and GPT-J."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from lengthwise.config import Choice, ModelConfig, alternate, choose
from lengthwise.conformance.outside.hugging import CausalModel, Hugging, settings
from lengthwise.conformance.outside.implementation import SHAPE, TRAINED, VOCABULARY, Absent, Model, Scene
from lengthwise.conformance.outside.rope_types import BECAUSE_FLOAT32, BECAUSE_PACKED, default
from lengthwise.encodings import NoPE, RoPE
from lengthwise.models import Decoder
from lengthwise.models.conversion import encoding_from_rope_parameters


class Llama(Hugging):
    """`LlamaRotaryEmbedding` and `LlamaForCausalLM` with one `rope_type`."""

    same_model = True
    architecture: ClassVar[str] = "Llama"

    def __init__(self, parameters: Callable[[int, int], dict[str, Any]], because: dict[str, str] | None = None):
        self.parameters = parameters  # of the trained length and the head dim
        kind = parameters(self.trained, 64)["rope_type"]
        choice = encoding_from_rope_parameters(parameters(self.trained, 64), head_dim=64)
        said = kind if parameters.__name__ == kind else f"{kind} as {parameters.__name__}"
        super().__init__(f"{self.architecture}, {said}", choice)
        self.because = {**BECAUSE_FLOAT32, **BECAUSE_PACKED, **(because or {})}  # type: ignore[misc]

    def small(self) -> Choice:
        """The counterpart for the head dim of the models."""
        return encoding_from_rope_parameters(self.parameters(TRAINED, SHAPE["head_dim"]), head_dim=SHAPE["head_dim"])

    def row(self, scene: Scene) -> Tensor:
        return rotated_row(scene, self.rotary().to(scene.dtype), modeling_llama.apply_rotary_pos_emb)

    def loaded_row(self, scene: Scene) -> Tensor:
        made = transformers.AutoModelForCausalLM.from_config(self.large(), dtype=scene.dtype)
        return rotated_row(scene, made.model.rotary_emb, modeling_llama.apply_rotary_pos_emb)

    def rotary(self) -> Any:
        return modeling_llama.LlamaRotaryEmbedding(self.large())

    def large(self) -> Any:
        """Of the rows' size, with next to nothing around the rotation."""
        return transformers.LlamaConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, head_dim=self.head_dim, vocab_size=1,
            num_hidden_layers=1, intermediate_size=1, max_position_embeddings=self.trained,
            rope_parameters=self.parameters(self.trained, self.head_dim), bos_token_id=0, eos_token_id=0,
        )  # fmt: skip

    def config(self) -> Any:
        shape = {"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"], "rms_norm_eps": 1e-6,
                 "num_attention_heads": SHAPE["num_heads"], "num_key_value_heads": SHAPE["num_kv_heads"],
                 "head_dim": SHAPE["head_dim"], "intermediate_size": SHAPE["d_ff"]}  # fmt: skip
        parameters = self.parameters(TRAINED, SHAPE["head_dim"])
        return transformers.LlamaConfig(**settings(shape), max_position_embeddings=TRAINED, rope_parameters=parameters)

    def inner(self) -> Any:
        torch.manual_seed(0)
        return transformers.LlamaForCausalLM(self.config())

    def model(self) -> Model:
        return CausalModel(self.inner())

    def decoder(self) -> Decoder:
        return with_llama_weights(self.inner(), self.small())


class SmolLM3(Llama):
    """Llama whose every second layer has no position encoding."""

    architecture = "SmolLM3"

    def __init__(self) -> None:
        super().__init__(default)
        self.name = "SmolLM3, layers without rope"

    @property
    def label(self) -> str:
        return self.small().label

    def row(self, scene: Scene) -> Tensor:
        raise Absent("each layer is Llama's or has no encoding; what is asked about is the pattern of layers")

    loaded_row = row

    def inner(self) -> Any:
        torch.manual_seed(0)
        config = self.config().to_dict()
        wanted = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "num_key_value_heads", "initializer_range", "rms_norm_eps", "max_position_embeddings", "rope_parameters",
                  "bos_token_id", "eos_token_id", "pad_token_id")  # fmt: skip
        return transformers.SmolLM3ForCausalLM(
            transformers.SmolLM3Config(**{n: config[n] for n in wanted}, no_rope_layers=[1, 0])
        )

    def small(self) -> Choice:
        return alternate(super().small(), choose(NoPE))


def with_llama_weights(theirs: Any, choice: Choice) -> Decoder:
    """Our decoder with the weights of a Llama: q, k and v in one matrix, gate and up in one."""
    decoder = Decoder(
        ModelConfig.llama(**SHAPE), choice, vocab_size=VOCABULARY, output_size=VOCABULARY, train_length=TRAINED
    )
    given = theirs.state_dict()
    state = {"token_embedding.weight": given["model.embed_tokens.weight"], "norm.weight": given["model.norm.weight"]}
    state["lm_head.weight"] = given["lm_head.weight"]
    for n in range(SHAPE["num_layers"]):
        layer, block = f"model.layers.{n}.", f"blocks.{n}."
        join = lambda *names, at=layer: torch.cat([given[f"{at}{name}_proj.weight"] for name in names])  # noqa: E731
        state[block + "attention_norm.weight"] = given[layer + "input_layernorm.weight"]
        state[block + "mlp_norm.weight"] = given[layer + "post_attention_layernorm.weight"]
        state[block + "qkv.weight"] = join("self_attn.q", "self_attn.k", "self_attn.v")
        state[block + "out.weight"] = given[layer + "self_attn.o_proj.weight"]
        state[block + "up.weight"] = join("mlp.gate", "mlp.up")
        state[block + "down.weight"] = given[layer + "mlp.down_proj.weight"]
    decoder.load_state_dict(state)
    return decoder


def rotated_row(scene: Scene, rotary: Any, apply: Any) -> Tensor:
    """Their rotation in the dtype of the scene; the product in float64."""
    positions = torch.cat([scene.keys, torch.tensor([scene.query])])[None]
    cos, sin = rotary(scene.q, positions)
    q, k = scene.q[None, :, None], scene.k[None]
    turned_q, _ = apply(q, q, cos[:, -1:], sin[:, -1:])
    _, turned_k = apply(k, k, cos[:, :-1], sin[:, :-1])
    return (turned_q.double() @ turned_k.double().mT)[0, :, 0] * q.shape[-1] ** -0.5


class GPTNeoX(Hugging):
    """Rotates a quarter of each head, pairs (p, p + r/2)."""

    def __init__(self) -> None:
        super().__init__("GPT-NeoX, a quarter rotated", choose(RoPE, rotary_fraction=0.25, layout="half"))
        self.because = {**BECAUSE_FLOAT32, **BECAUSE_PACKED}  # type: ignore[misc]

    def row(self, scene: Scene) -> Tensor:
        config = transformers.GPTNeoXConfig(
            hidden_size=self.heads * self.head_dim, num_attention_heads=self.heads, max_position_embeddings=self.trained,
            rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25},
        )  # fmt: skip
        rotary = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config).to(scene.dtype)
        return rotated_row(scene, rotary, modeling_gpt_neox.apply_rotary_pos_emb)

    def model(self) -> Model:
        torch.manual_seed(0)
        shape = {"hidden_size": SHAPE["d_model"], "num_hidden_layers": SHAPE["num_layers"],
                 "num_attention_heads": SHAPE["num_heads"], "intermediate_size": SHAPE["d_ff"]}  # fmt: skip
        parameters = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
        config = transformers.GPTNeoXConfig(
            **settings(shape), max_position_embeddings=TRAINED, rope_parameters=parameters
        )
        return CausalModel(transformers.GPTNeoXForCausalLM(config))


class GPTJ(Hugging):
    """Rotates the first 16 dims of each head, pairs (2p, 2p + 1), from a table of `n_positions` rows."""

    because: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        super().__init__("GPT-J, 16 dims, interleaved", choose(RoPE, rotary_fraction=0.25))
        self.because = {  # type: ignore[misc]
            **BECAUSE_FLOAT32,
            **BECAUSE_PACKED,
            "runs past": "its table has n_positions rows, and there is no position past it",
        }

    def row(self, scene: Scene) -> Tensor:
        rotary_dims = self.head_dim // 4
        table = modeling_gptj.create_sinusoidal_positions(scene.length, rotary_dims).to(scene.dtype)

        def turn(x: Tensor, at: Tensor) -> Tensor:  # [b, t, h, d]
            sin, cos = table[at][None].split(rotary_dims // 2, -1)
            turned = modeling_gptj.apply_rotary_pos_emb(x[..., :rotary_dims], sin, cos)
            return torch.cat([turned, x[..., rotary_dims:]], -1)

        q = turn(scene.q[None, None], torch.tensor([scene.query])).transpose(1, 2)
        k = turn(scene.k.transpose(0, 1)[None], scene.keys).transpose(1, 2)
        return (q.double() @ k.double().mT)[0, :, 0] * self.head_dim**-0.5

    def model(self) -> Model:
        return CausalModel(self._made(3 * TRAINED))

    def limited(self) -> Model:
        return CausalModel(self._made(TRAINED))

    def _made(self, rows: int) -> Any:
        torch.manual_seed(0)
        shape = {"n_embd": SHAPE["d_model"], "n_layer": SHAPE["num_layers"], "n_head": SHAPE["num_heads"],
                 "n_inner": SHAPE["d_ff"], "rotary_dim": 4, "n_positions": rows}  # fmt: skip
        return transformers.GPTJForCausalLM(transformers.GPTJConfig(**settings(shape)))
