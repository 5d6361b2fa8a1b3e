"""Settings that the user did not write come from the model, for `use`, `reach` and `extend` alike."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import Choice, ConfigError, alternate, choose
from lengthwise.encodings import DAPE, PI, ALiBi, NoPE, RoPE, Sinusoidal, YaRN

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.huggingface import unuse, use
from lengthwise.huggingface.own_settings import with_own_settings
from lengthwise.huggingface.replacement import encoding_of
from lengthwise.reach.methods import applied, choice_for
from tests.huggingface.models import COMMON, FAMILIES, YARN, model_of, tokens

OTHER: dict[str, dict[str, Any]] = {
    "phi": {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0, "partial_rotary_factor": 0.5}},
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    "cohere": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},  # interleaved
    "glm": {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0,
                                               "partial_rotary_factor": 0.5}},
    "mixtral": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
}  # fmt: skip
UNSCALED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "smollm3", "gpt_neox", *OTHER)


def model_with_rope(kind: str) -> Any:
    if kind in FAMILIES:
        return model_of(kind)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**COMMON, **OTHER[kind]})).eval()


@torch.no_grad()
@pytest.mark.parametrize("encoding", ["rope", choose(RoPE), "pi:factor=1"], ids=["text", "choice", "another class"])
@pytest.mark.parametrize("kind", UNSCALED)
def test_a_rotation_has_the_base_layout_and_fraction_of_the_model(kind: str, encoding: Choice | str) -> None:
    model = model_with_rope(kind)
    own = model(tokens(), use_cache=False).logits
    torch.testing.assert_close(use(model, encoding)(tokens(), use_cache=False).logits, own, atol=3e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama, yarn", "llama, llama3"])
def test_the_own_class_has_all_settings_of_the_model(family: str) -> None:
    model = model_of(family)
    own = model(tokens(), use_cache=False).logits
    name = family.rpartition(" ")[2]
    torch.testing.assert_close(use(model, name)(tokens(), use_cache=False).logits, own, atol=3e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gpt_neox", "gemma3_text", "smollm3"])
def test_a_scaled_rotation_is_that_of_transformers(family: str) -> None:
    """YaRN in transformers, with the base and the fraction of the model, in all layers that rotate."""
    settings = model_of(family).config.rope_parameters
    scaled = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    nested = any(isinstance(value, dict) for value in settings.values())
    keys = ("rope_theta", "partial_rotary_factor")

    def with_yarn(entry: dict[str, Any]) -> dict[str, Any]:
        return {**scaled, **{key: entry[key] for key in keys if key in entry}}

    theirs = {kind: with_yarn(entry) for kind, entry in settings.items()} if nested else with_yarn(settings)
    expected = model_of(family, rope_parameters=theirs)(tokens(), use_cache=False).logits
    for encoding in ("yarn:factor=4", choose(YaRN, factor=4)):
        logits = use(model_of(family), encoding)(tokens(), use_cache=False).logits
        torch.testing.assert_close(logits, expected, atol=3e-5, rtol=1e-4)
    model = model_of(family)
    with applied(model, "yarn:factor=4"):
        torch.testing.assert_close(model(tokens(), use_cache=False).logits, expected, atol=3e-5, rtol=1e-4)


def test_patterns_and_layers_without_positions() -> None:
    model = use(model_of("smollm3", num_hidden_layers=4, no_rope_layers=[1, 1, 0, 1]), "rope*3+nope")
    assert [choice.label for choice in encoding_of(model).layers] == [
        *["RoPE(base=2000000.0, layout=half)"] * 2,
        "NoPE",
        "NoPE",
    ]
    model = use(model_of("llama", num_hidden_layers=4), "rope*3+nope")
    assert encoding_of(model).label == "RoPE(base=500.0, layout=half)*3+NoPE"
    model = use(model_of("gemma3_text"), "pi:factor=2")
    assert [dict(choice.settings)["base"] for choice in encoding_of(model).layers] == [100.0, 1000.0, 100.0]
    unuse(model)
    pattern = alternate(choose(RoPE), choose(PI), choose(NoPE))
    labels = [choice.label for choice in encoding_of(use(model, pattern)).layers]
    assert labels == ["RoPE(base=100.0, layout=half)", "PI(base=1000.0, layout=half, factor=4.0)", "NoPE"]


def test_what_is_written_stays() -> None:
    own = choose(YaRN, base=500.0, layout="half", factor=8.0, beta_fast=16.0, attention_factor=1.5)
    default = choose(RoPE, base=10000.0, rotary_fraction=1.0, layout="interleaved")
    assert with_own_settings(default, own) == choose(RoPE)
    assert with_own_settings(default, choose(NoPE)) == choose(RoPE)
    assert with_own_settings(choose(RoPE, base=10000.0), own) == choose(RoPE, layout="half")
    assert with_own_settings(choose(YaRN), own) == own
    longer = with_own_settings(choose(YaRN, factor=16.0), own)
    assert dict(longer.settings)["attention_factor"] is None and dict(longer.settings)["beta_fast"] == 16.0
    assert dict(with_own_settings(choose(YaRN, mscale=0.5), own).settings)["attention_factor"] is None
    assert with_own_settings(longer, choose(RoPE)) == longer, "it has all settings already"
    own = alternate(choose(RoPE), choose(NoPE))
    kept = with_own_settings(choose(RoPE, temperature="ssmax"), own)
    assert kept == alternate(choose(RoPE, temperature="ssmax"), choose(NoPE, temperature="ssmax"))


@pytest.mark.parametrize("encoding", [Sinusoidal, DAPE, ALiBi])
def test_only_rotations_take_settings(encoding: type) -> None:
    for own in (choose(RoPE, base=500.0, layout="half"), alternate(choose(RoPE), choose(NoPE))):
        assert with_own_settings(choose(encoding), own) == choose(encoding)


@pytest.mark.parametrize("kind", ["gpt2", "bloom"])
def test_models_without_a_rotation_leave_the_defaults(kind: str) -> None:
    config = AutoConfig.for_model(kind, vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    model = use(AutoModelForCausalLM.from_config(config), "rope+nope")
    assert encoding_of(model) == alternate(choose(RoPE), choose(NoPE))


def test_an_unknown_rotation_of_the_model_is_no_silent_default() -> None:
    model = model_of("llama")
    model.config.rope_parameters = {"rope_type": "mine", "rope_theta": 500.0}
    with pytest.raises(
        ConfigError, match=r"take rotary_fraction and layout from the model, .*'mine'.*; write them, as in"
    ):
        use(model, "yarn:base=500,factor=4")
    assert use(model, "alibi") is model


def test_the_model_shows_what_was_taken_from_it(tmp_path: Path) -> None:
    model = use(model_of("llama"), "yarn:factor=4,layout=half")
    expected = "YaRN(base=500.0, layout=half, factor=4.0; from the model: base, rotary_fraction)"
    assert expected in str(model)
    with applied(unuse(model), "yarn:factor=4,layout=half"):
        assert expected in str(model)
    use(model, "alibi")
    assert "from the model" not in str(model)


@torch.no_grad()
def test_a_saved_model_keeps_its_settings(tmp_path: Path) -> None:
    model = use(model_of("llama"), "yarn:factor=4")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert encoding_of(loaded) == encoding_of(model)
    assert dict(encoding_of(loaded).settings)["base"] == 500.0
    torch.testing.assert_close(loaded(tokens()).logits, model(tokens()).logits)
    assert choice_for(loaded, "pi:factor=2").label == "PI(base=500.0, layout=half, factor=2.0)"
    complete = choose(RoPE, base=123.0, rotary_fraction=1.0, layout="half")
    model = use(model_of("smollm3"), complete)
    assert encoding_of(model) == complete, "also in the layer without positions, as it is written completely"
    model.save_pretrained(tmp_path / "complete")
    assert encoding_of(AutoModelForCausalLM.from_pretrained(tmp_path / "complete")) == complete


def test_yarn_in_a_yarn_model_keeps_its_ramp() -> None:
    model = model_of("llama", rope_parameters={**YARN, "beta_fast": 20.0, "truncate": False})
    settings = dict(choice_for(model, "yarn:factor=8").settings)
    assert (settings["factor"], settings["beta_fast"], settings["truncate"]) == (8.0, 20.0, False)
