"""The flags for vLLM and llama.cpp: from each, the frequencies are computed again by the formulas of the program."""

import json
import math
import shlex
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.encodings import ENCODINGS
from lengthwise.huggingface.replacement import head_dim_of, train_length_of
from lengthwise.reach.methods import choice_for
from lengthwise.reach.program_flags import program_flags
from tests.huggingface.models import model_of

METHODS = [
    "pi:factor=4",
    "yarn:factor=4",
    "yarn:factor=2.5,beta_fast=4,beta_slow=0.5",
    "ntkaware:factor=8",
    "rope:base=3e4",
]
FAMILIES = ["llama", "llama, yarn", "qwen3", "gpt_neox", "smollm3"]


def flags(family: str, method: str, **settings: Any) -> dict[str, tuple[str, str]]:
    rows = program_flags(model_of(family, **settings), method)
    return {row["program"]: (row.get("flags", ""), row.get("reason", "")) for row in rows}


def expected(family: str, method: str) -> tuple[Any, float, float]:
    """The method's frequencies in a layer with positions, its attention factor, and its rotated dimensions."""
    model = model_of(family)
    encoding = (
        choice_for(model, method)
        .layers[0]
        .build(head_dim=head_dim_of(model.config), train_length=train_length_of(model.config))
    )
    length = torch.tensor(64)
    return encoding.frequencies(length).numpy(), encoding.gain(length) or 1.0, encoding.rotary_dims


def by_llama_cpp(text: str, dims: int) -> tuple[Any, float]:
    """Frequencies and attention factor, as llama-context.cpp and ggml's rope_yarn compute them from flags."""
    words = shlex.split(text)
    given = dict(zip(words[::2], words[1::2], strict=True))
    kind, base = given["--rope-scaling"], float(given["--rope-freq-base"])
    scale = 1.0 if kind == "none" else 1.0 / float(given["--rope-scale"])
    extrapolated = base ** (-np.arange(0, dims, 2) / dims)
    if kind != "yarn":
        assert not any(name.startswith("--yarn") for name in given)
        return scale * extrapolated, 1.0

    def dimension(turns: float) -> float:
        return dims * math.log(int(given["--yarn-orig-ctx"]) / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = max(0, math.floor(dimension(float(given["--yarn-beta-fast"]))))
    high = min(dims - 1, math.ceil(dimension(float(given["--yarn-beta-slow"]))))
    ramp = 1 - np.clip((np.arange(dims // 2) - low) / max(0.001, high - low), 0, 1)
    mix = ramp * float(given["--yarn-ext-factor"])
    return scale * extrapolated * (1 - mix) + extrapolated * mix, 1 + 0.1 * math.log(1 / scale)


def by_vllm(text: str, head_dim: int) -> tuple[Any, float, int, int]:
    """Frequencies, attention factor, rotated dimensions and number of positions, as vLLM's rotary embeddings do."""
    words = shlex.split(text)
    overrides, longest = json.loads(words[1]), int(words[3]) if "--max-model-len" in words else 0
    assert words[0] == "--hf-overrides"
    given = overrides["rope_parameters"]
    dims = int(head_dim * given.get("partial_rotary_factor", 1.0))
    base, kind = given["rope_theta"], given["rope_type"]
    plain = base ** (-np.arange(0, dims, 2) / dims)
    positions = overrides.get("max_position_embeddings", 64)
    if kind == "default":
        return plain, 1.0, positions, longest
    factor = given["factor"]
    if kind == "linear":
        return plain / factor, 1.0, positions * int(factor), longest
    length = given["original_max_position_embeddings"]
    if kind == "llama3":
        waves = 2 * math.pi / plain
        smooth = (length / waves - given["low_freq_factor"]) / (given["high_freq_factor"] - given["low_freq_factor"])
        between = (1 - smooth) * plain / factor + smooth * plain
        slow = np.where(waves > length / given["low_freq_factor"], plain / factor, between)
        return np.where(waves < length / given["high_freq_factor"], plain, slow), 1.0, positions, longest
    assert kind == "yarn" and not {"attention_factor", "attn_factor", "mscale"} & set(given)

    def dimension(turns: float) -> float:
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = math.floor(dimension(given.get("beta_fast", 32))), math.ceil(dimension(given.get("beta_slow", 1)))
    low, high = max(low, 0), min(high, dims - 1)
    kept = 1 - np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    mixed = plain / factor * (1 - kept) + plain * kept
    return mixed, 0.1 * math.log(factor) + 1, math.ceil(length * factor), longest


@pytest.mark.medium
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_llama_cpp_computes_the_same_rotations(family: str, method: str) -> None:
    text, reason = flags(family, method)["llama.cpp"]
    assert not reason
    frequencies, gain, dims = expected(family, method)
    found, factor = by_llama_cpp(text, dims)
    np.testing.assert_allclose(found, frequencies, rtol=1e-9)
    assert factor == pytest.approx(gain, rel=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("family", [*FAMILIES, "llama, llama3", "mistral"])
@pytest.mark.parametrize("method", [*METHODS, "llama3:factor=8"])
def test_vllm_computes_the_same_rotations(family: str, method: str) -> None:
    text, reason = flags(family, method)["vLLM"]
    assert not reason
    frequencies, gain, _ = expected(family, method)
    found, factor, positions, longest = by_vllm(text, head_dim_of(model_of(family).config))
    np.testing.assert_allclose(found, frequencies, rtol=1e-9)
    assert factor == pytest.approx(gain, rel=1e-12)
    assert positions >= longest
    assert longest == train_length_of(model_of(family).config) * dict(ENCODINGS.parse(method).settings).get("factor", 0)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("family", "method", "vllm", "llama_cpp"),
    [
        ("llama", "dynamicntk:factor=4", "no flags that compute DynamicNTK", "no flags that compute DynamicNTK"),
        ("llama", "alibi", "no flags that compute ALiBi", "no flags that compute ALiBi"),
        ("llama", "ntkbyparts:factor=4", "attention factor", "attention factor"),
        ("llama", "yarn:factor=4,attention_factor=1", "attention factor", "attention factor"),
        ("llama", "yarn:factor=4,ramp=rotations", "no counterpart of ramp", "rounded"),
        ("llama", "yarn:factor=4,truncate=false", "", "rounded"),
        ("llama", "llama3:factor=8", "", "GGUF file only"),
        ("llama", "rope:layout=interleaved", "pairs other dimensions", "pairs other dimensions"),
        ("llama", "rope:rotary_fraction=0.5", "", "fraction of rotated dimensions"),
        ("llama", "rope(temperature=ssmax)", "no temperature", "no temperature"),
        ("llama", "rope*2+nope", "differs between layers", "differs between layers"),
        ("llama, llama3", "pi:factor=4", "", "a model with Llama3 has factors"),
        ("mistral", "pi:factor=4", "", "layers with a window"),
        ("gemma3_text", "pi:factor=4", "no RoPE with the same settings", "no RoPE with the same settings"),
        ("bloom", "rope", "no RoPE", "no RoPE"),
    ],
)
def test_methods_without_flags_have_a_reason(family: str, method: str, vllm: str, llama_cpp: str) -> None:
    for (text, reason), part in zip(flags(family, method).values(), (vllm, llama_cpp), strict=True):
        assert bool(text) != bool(reason) and bool(part) == bool(reason)
        assert part in reason and not reason.endswith(".")


def test_a_model_with_another_attention_factor_has_none_for_llama_cpp() -> None:
    """It multiplies by the factor of the GGUF file, whatever the flags say."""
    parameters = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "attention_factor": 1.0}
    found = flags("llama", "pi:factor=2", rope_parameters={**parameters, "original_max_position_embeddings": 16})
    assert found["vLLM"][0] and "GGUF file of a model with YaRN" in found["llama.cpp"][1]


def test_the_model_as_it_is_needs_no_flags() -> None:
    assert not flags("llama", "own")
