"""What is observed of attention layers of transformers: which of them rotate, how, and what else they do."""

import time
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from lengthwise.huggingface import use
from lengthwise.huggingface.model_rotation import NoRotation
from lengthwise.huggingface.observation import observe
from lengthwise.huggingface.own_encoding import layout_of, own_encoding
from tests.huggingface.models import COMMON, FAMILIES, model_of, tokens

EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 1,
    "n_group": 1,
    "topk_group": 1,
}
SMALL = {**COMMON, **EXPERTS, "num_hidden_layers": 4, "head_dim": 8, "sliding_window": 5}
WINDOWS_ROTATE = {
    "afmoe": {"num_dense_layers": 1}, "cohere2": {}, "cohere2_moe": {}, "exaone4": {"sliding_window_pattern": "LLLG"},
    "exaone_moe": {}, "flint": {}, "kolibri1": {}, "lara_mini": {}, "beam": {},
}  # fmt: skip
"""Types of models that rotate in layers with a window and have no encoding in the others."""
KINDS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]


def small(kind: str, **settings: Any) -> Any:
    """A model with random weights, the vectors of its norms included."""
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **settings})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.uniform_(0.5, 1.5)
    return model


def encodings(model: Any) -> list[str]:
    choice = own_encoding(model)
    return [choice.layers[n % len(choice.layers)].label for n in range(len(observe(model).layers))]


@pytest.mark.medium
@pytest.mark.parametrize("kind", WINDOWS_ROTATE)
@torch.no_grad()
def test_only_layers_with_a_window_rotate(kind: str) -> None:
    model = small(kind, **WINDOWS_ROTATE[kind], layer_types=KINDS)
    assert [label == "NoPE" for label in encodings(model)] == [False, True, False, True]
    before = model(tokens(), use_cache=False).logits
    if not observe(model).layers[0].has_sinks:
        torch.testing.assert_close(use(model)(tokens(), use_cache=False).logits, before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("thetas", [[0.0, 1e4, 1e4, 1e4], [1e7, 1e4, 1e4, 1e4]])
def test_thetas_of_layers(thetas: list[float]) -> None:
    model = small("granite_swa", layer_rope_theta=thetas)
    own = "NoPE" if not thetas[0] else "RoPE(base=10000000.0, layout=half)"
    assert encodings(model) == [own, *["RoPE(layout=half)"] * 3]


def test_all_rotary_embeddings_of_a_model_are_switched_off() -> None:
    model = small("granite_swa", layer_rope_theta=[0.0, 1e4, 1e4, 1e7])
    before = {module for module in model.modules() if "RotaryEmbedding" in type(module).__name__}
    use(model, "nope")
    assert len(before) == 3
    assert before == {module.original for module in model.modules() if isinstance(module, NoRotation)}


@pytest.mark.parametrize("encoding", [None, "fire", "fox"])
@pytest.mark.parametrize("kind", ["cohere", "llama"])
def test_a_model_with_an_encoding_of_ours_is_observed_as_without_it(kind: str, encoding: str | None) -> None:
    model = small(kind)
    own = own_encoding(model)
    use(model, encoding)(tokens()).logits.sum().backward()
    assert own_encoding(model) == own
    assert layout_of(model) == ("interleaved" if kind == "cohere" else "half")


def test_which_layers_of_smollm3_and_llama_4_rotate() -> None:
    assert encodings(small("smollm3", no_rope_layers=[1, 0, 1, 1]))[1] == "NoPE"
    found = encodings(small("llama4_text", no_rope_layers=[1, 1, 0, 1], intermediate_size_mlp=48))
    assert [label == "NoPE" for label in found] == [False, False, True, False]
    assert "interleaved" not in found[0] and "layout" not in found[0]  # which is RoPE's default


def test_heads_of_different_sizes() -> None:
    model = small(
        "gemma4_text", global_head_dim=16, layer_types=KINDS, num_kv_shared_layers=0, hidden_size_per_layer_input=8
    )
    layers = observe(model).layers
    assert [layers[n].head_dim for n in range(4)] == [8, 16, 8, 16]
    with pytest.raises(ConfigError, match=r"heads of different sizes|has heads of 16 dimensions"):
        use(model)


@pytest.mark.medium
@pytest.mark.parametrize("family", FAMILIES)
def test_the_copy_has_no_weights_and_the_model_stays_as_it_is(family: str) -> None:
    model = model_of(family)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    implementation = model.config._attn_implementation
    first, second = observe(model).layers, observe(model).layers
    assert first.keys() == second.keys() and all(torch.equal(first[n].q, second[n].q) for n in first)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert model.config._attn_implementation == implementation and not model.training


def test_a_model_on_meta_is_observed_like_one_with_weights() -> None:
    config = AutoConfig.for_model("llama", **COMMON)
    with torch.device("meta"):
        without = AutoModelForCausalLM.from_config(config)
    assert own_encoding(without) == own_encoding(model_of("llama", rope_parameters=config.rope_parameters))


def test_norms_after_the_rotation_are_no_rotation_of_ours() -> None:
    """Their weights multiply each dimension, so that q is no longer what our attention would rotate."""
    with pytest.raises(ConfigError, match="HunYuanDenseV1Attention rotates in a way that lengthwise does not have"):
        use(small("hunyuan_v1_dense"))


def test_a_part_of_the_dimensions_that_does_not_come_first_is_refused() -> None:
    latent = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
    model = small("deepseek_v3", **latent, num_key_value_heads=4, first_k_dense_replace=4)
    assert observe(model).layers[0].head_dim == 16
    with pytest.raises(ConfigError, match="rotates them from number 8 on"):
        use(model)


def test_settings_with_which_a_layer_raises_an_error() -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    found = observe(small("llama", rope_parameters=rope))
    assert found.layer_error.startswith("LlamaAttention: The size of tensor a (8) must match the size of tensor b (4)")
    assert found.layers == {}
    with pytest.raises(ConfigError, match="cannot be observed in a forward pass without weights"):
        use(small("llama", rope_parameters=rope))


def test_soft_caps_scales_and_temperatures_are_observed() -> None:
    layer = observe(small("gemma2", attn_logit_softcapping=30.0, query_pre_attn_scalar=16)).layers[0]
    assert (layer.softcap, layer.scale, layer.has_sinks) == (30.0, 0.25, False)
    assert observe(small("gpt_oss")).layers[0].has_sinks
    grows = observe(small("beam", layer_types=KINDS)).layers
    last = int(grows[0].positions[-1])
    assert grows[0].query_growth == pytest.approx(1, abs=1e-5)
    assert grows[1].query_growth == pytest.approx(((1 + (last + 1) / 2048) / (1 + 1 / 2048)) ** 0.1, rel=1e-4)


def test_an_observation_takes_less_than_a_second() -> None:
    config = AutoConfig.for_model("llama", num_hidden_layers=30, max_position_embeddings=8192)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    start = time.process_time()
    observe(model)
    assert time.process_time() - start < 1
