"""The patterns of models in docs/encodings/layers.md are those of the default configurations in transformers."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

import transformers

from lengthwise.config import Choice
from lengthwise.encodings import ENCODINGS

PAGE = Path(__file__).parents[2] / "docs" / "encodings" / "layers.md"
# The configuration and the rotation of each model. Some rows are papers or training recipes without a class.
CLASSES = {
    "SmolLM3": ("smollm3", "SmolLM3Config", "SmolLM3RotaryEmbedding"),
    "Llama 4": ("llama4", "Llama4TextConfig", "Llama4TextRotaryEmbedding"),
    "Cohere 2": ("cohere2", "Cohere2Config", "Cohere2RotaryEmbedding"),
    "Exaone 4": ("exaone4", "Exaone4Config", "Exaone4RotaryEmbedding"),
    "Beam": ("beam", "BeamConfig", "BeamRotaryEmbedding"),
    "Gemma 3": ("gemma3", "Gemma3TextConfig", "Gemma3RotaryEmbedding"),
    "Ministral 3": ("ministral3", "Ministral3Config", "Ministral3RotaryEmbedding"),
    "gpt-oss": ("gpt_oss", "GptOssConfig", "GptOssRotaryEmbedding"),
    "Inkling": ("inkling", "InklingTextConfig", None),
    "Mistral Large 4": ("mistral_large4", "MistralLarge4TextConfig", "MistralLarge4TextRotaryEmbedding"),
}
WITHOUT_CLASS = {"iRoPE", "RNoPE-SWA", "SWAN"}
ONLY_LAYERS_WITH_A_WINDOW_ROTATE = {"Cohere 2", "Exaone 4", "Beam"}  # no other setting says so


def default_config(name: str) -> Any:
    if not hasattr(transformers, CLASSES[name][1]):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    return getattr(transformers, CLASSES[name][1])()


def patterns() -> dict[str, str]:
    rows = re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return {name: text for names, text in rows for name in names.split(", ")}


def test_the_page_has_no_other_models() -> None:
    assert patterns().keys() == CLASSES.keys() | WITHOUT_CLASS


def of_layer(name: str, config: Any, n: int) -> tuple[bool, int | None, str]:
    """Return whether layer n rotates, its window, and its type in the configuration."""
    kind = config.layer_types[n] if hasattr(config, "layer_types") else "full_attention"
    setting = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
    window = getattr(config, setting) if kind in ("sliding_attention", "hybrid_sliding", "chunked_attention") else None
    if name in ONLY_LAYERS_WITH_A_WINDOW_ROTATE:
        return window is not None, window, kind
    return bool(getattr(config, "no_rope_layers", None) is None or config.no_rope_layers[n]), window, kind


@pytest.mark.parametrize("name", CLASSES)
def test_layers_rotate_as_in_the_default_configuration(name: str) -> None:
    folder, _, rotary_class = CLASSES[name]
    config = default_config(name)
    layers, count = ENCODINGS.parse(patterns()[name]).layers, config.num_hidden_layers
    for n in range(count - (name == "Beam")):  # its last layer is not part of the pattern, as the page says
        layer = layers[n % len(layers)]
        rotates, window, kind = of_layer(name, config, n)
        assert layer.layer.window == window, n
        assert layer.layer.sinks == (name == "gpt-oss")
        if rotary_class is None:
            continue
        module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
        rotary = getattr(module, rotary_class)(config)
        if not rotates:
            assert layer.name == "NoPE", n
            continue
        prefix = f"{kind}_" if hasattr(rotary, f"{kind}_inv_freq") else ""
        expected, factor = (getattr(rotary, prefix + part) for part in ("inv_freq", "attention_scaling"))
        frequencies, gain = ours(layer, config)
        torch.testing.assert_close(frequencies, expected.double(), rtol=1e-6, atol=0)
        assert gain == pytest.approx(factor, rel=1e-6)


def ours(layer: Choice, config: Any) -> tuple[torch.Tensor, float]:
    """Return the frequencies and the factor of queries and keys at the original length of the model."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if hasattr(config, "qk_nope_head_dim"):
        head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim
    rope = (
        next(iter(config.rope_parameters.values()))
        if "rope_type" not in config.rope_parameters
        else config.rope_parameters
    )
    length = rope.get("original_max_position_embeddings", config.max_position_embeddings)
    encoding = layer.parts[0].build(head_dim=head_dim, train_length=length)
    return encoding.frequencies(torch.tensor(length)), encoding.gain(torch.tensor(length)) or 1.0


def temperature(name: str) -> Any:
    """Return the temperature of the last layer of a pattern."""
    parts = ENCODINGS.parse(patterns()[name]).layers[-1].parts
    return parts[1].build(num_heads=4, train_length=64)


POSITIONS = torch.tensor([[0.0, 1.0, 8190.0, 8191.0, 8192.0, 16383.0, 16384.0, 50_000.0, 200_000.0]])


@pytest.mark.parametrize("name", ["Ministral 3", "Beam"])
def test_factors_of_temperatures_are_those_of_the_model(name: str) -> None:
    config = default_config(name)
    if name == "Beam":
        module = importlib.import_module("transformers.models.beam.modeling_beam")
        expected = module.compute_attention_scaling(POSITIONS.long())
    else:
        module = importlib.import_module("transformers.models.ministral3.modeling_ministral3")
        rope = config.rope_parameters
        settings = rope["llama_4_scaling_beta"], rope["original_max_position_embeddings"]
        expected = module.get_llama_4_attn_scale(POSITIONS, *settings)
    torch.testing.assert_close(temperature(name).factor(POSITIONS.double())[0, 0].float(), expected.flatten())


def test_settings_of_temperatures_are_those_of_the_models() -> None:
    llama4, inkling = default_config("Llama 4"), default_config("Inkling")
    assert llama4.attn_temperature_tuning
    assert (temperature("Llama 4").strength, temperature("Llama 4").step) == (llama4.attn_scale, llama4.floor_scale)
    assert temperature("Inkling").strength == inkling.log_scaling_alpha


def test_the_bias_of_inkling_reaches_as_far_as_in_the_model() -> None:
    config = default_config("Inkling")
    for n, layer in enumerate(ENCODINGS.parse(patterns()["Inkling"]).layers):
        settings = dict(layer.settings)
        is_sliding = config.layer_types[n] == "hybrid_sliding"
        assert settings["band"] == (config.sliding_window_size if is_sliding else config.rel_extent)
        assert settings["rank"] == config.d_rel
