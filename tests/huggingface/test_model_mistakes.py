"""What `lengthwise model` finds in model folders: all planted mistakes, none in sound settings, and what layers do."""

import json
import math

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")
import torch
from transformers import CONFIG_MAPPING

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained.stored_weights import tensors
from lengthwise.huggingface import angles, biases, cases, description, folder, mistakes, stored_buffers
from tests.huggingface.configurations import (
    DYNAMIC,
    GEMMA_3,
    LLAMA3_SCALING,
    LLAMA_3_1,
    MISTRAL,
    MPT,
    NOTED,
    PHI_3,
    PLANTED,
    QWEN_YARN,
    SHAPE,
    SOUND,
    changed,
    written,
)
from tests.huggingface.models import COMMON, model_of


def judged(path, settings):
    read = folder.read_folder(written(path, settings))
    groups = description.layer_groups(read)
    comparisons = [*angles.compare_angles(read, groups), *biases.compare_biases(read, groups)]
    return read, groups, comparisons, mistakes.findings(cases.Case(read, groups, comparisons))


@pytest.fixture(autouse=True)
def few_positions(monkeypatch):
    monkeypatch.setattr(angles, "MAX_SAMPLES", 600)


@pytest.mark.parametrize("name", SOUND)
def test_sound_settings_have_no_problem(tmp_path, name):
    kind = SOUND[name]["model_type"]
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {kind}")
    _, _, comparisons, found = judged(tmp_path, SOUND[name])
    assert [finding.text for finding in found if finding.is_problem] == []
    for comparison in comparisons:
        assert isinstance(comparison, angles.Comparison)
        assert comparison.unit == "nats" or comparison.agrees
        assert comparison.excess < 0.2 or comparison.dtype != "float32"  # far from the limit


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_found(tmp_path, name):
    settings, check = PLANTED[name]
    _, _, _, found = judged(tmp_path, settings)
    assert [finding.check for finding in found if finding.is_problem] == [check]
    assert all("\n" not in finding.text for finding in found)


@pytest.mark.parametrize("name", NOTED)
def test_settings_that_need_not_be_a_mistake_are_noted(tmp_path, name):
    settings, check = NOTED[name]
    _, _, _, found = judged(tmp_path, settings)
    assert [(finding.check, finding.is_problem) for finding in found] == [(check, False)]


def test_there_are_at_least_ten_of_each_and_every_check_has_one():
    assert len(SOUND) >= 10 and len(PLANTED) >= 10
    checks = {check.__name__.replace("_", "-") for check in mistakes.CHECKS}
    listed = {check for _, check in (*PLANTED.values(), *NOTED.values())}
    assert listed | {"rounded-frequencies", "tokenizer-length"} == checks


def test_layers_of_gemma_3(tmp_path):
    read, (sliding, full), comparisons, _ = judged(tmp_path, GEMMA_3)
    assert (sliding.layers, sliding.window, full.layers, full.window) == ((0, 1, 2, 3, 4), 1024, (5,), None)
    assert sliding.encoding.label == "RoPE(layout=half)"
    assert full.encoding.label == "PI(base=1000000.0, layout=half, factor=8.0)"
    assert read.length == 32768
    dtypes = ("float32", "bfloat16")
    assert [(c.layers, c.dtype) for c in comparisons] == [
        (group.layers, dtype) for group in (sliding, full) for dtype in dtypes
    ]


def test_softmax_scales_and_attention_factors(tmp_path):
    gemma_2 = {
        **GEMMA_3,
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "attn_logit_softcapping": 50.0,
    }
    gemma_2["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    _, groups, _, _ = judged(tmp_path, changed(gemma_2, query_pre_attn_scalar=256))
    assert groups[0].softmax_scale == 1 / 16
    assert groups[0].temperature == "× 0.5 (softmax scale 0.0625), at most 50 (soft cap)"
    _, (group,), (comparison, _), _ = judged(tmp_path, QWEN_YARN)
    m = 0.1 * math.log(4) + 1
    assert group.temperature == f"× {m**2:.4g} of rotated dimensions (attention factor {m:.4g})"
    assert comparison.gain == pytest.approx(m, rel=1e-6) == comparison.our_gain


def test_windows_of_recurrent_gemma_and_of_the_decoder_of_modernbert(tmp_path):
    _, (recurrent, attention), _, _ = judged(tmp_path, SOUND["RecurrentGemma"])
    assert (recurrent.encoding, attention.layers, attention.window) == (None, (2,), 2048)
    assert attention.encoding.label == "RoPE(rotary_fraction=0.5, layout=half)"
    _, (full, sliding), _, _ = judged(tmp_path, SOUND["ModernBERT's decoder"])
    assert (full.layers, full.window, sliding.layers, sliding.window) == ((0, 3), None, (1, 2), 64)


def test_a_class_that_ignores_alibi_rotates(tmp_path):
    _, (group,), _, (found,) = judged(tmp_path, changed(LLAMA_3_1, rope_scaling=None, alibi=True))
    assert group.encoding.label == "RoPE(base=500000.0, layout=half)"
    assert (found.check, found.is_problem) == ("unread-settings", False) and "does not read alibi" in found.text


def test_queries_that_are_scaled_before_the_attention_function_or_not_at_all(tmp_path):
    opt = {"model_type": "opt", "hidden_size": 160, "num_attention_heads": 2, "num_hidden_layers": 2, "ffn_dim": 64,
           "vocab_size": 64, "word_embed_proj_dim": 160, "max_position_embeddings": 128}  # fmt: skip
    _, (group,), _, _ = judged(tmp_path, opt)
    assert group.softmax_scale == pytest.approx(80**-0.5, rel=1e-6) and group.temperature == ""
    neo = {"model_type": "gpt_neo", "hidden_size": 128, "num_heads": 2, "num_layers": 2, "vocab_size": 64,
           "window_size": 256, "attention_types": [[["global", "local"], 1]],
           "max_position_embeddings": 2048}  # fmt: skip
    _, groups, _, _ = judged(tmp_path, neo)
    assert [group.temperature for group in groups] == ["× 8 (softmax scale 1)"] * 2


def test_layers_without_rope(tmp_path):
    _, (rope, nope), _, _ = judged(tmp_path, SOUND["SmolLM3"])
    assert (rope.layers, nope.layers, nope.encoding.label) == ((0, 1, 2), (3,), "NoPE")
    cohere = {
        "model_type": "cohere2", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
        "intermediate_size": 64, "vocab_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 8192,
        "sliding_window": 4096, "rope_theta": 50000, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
    }  # fmt: skip
    _, (sliding, full), _, found = judged(tmp_path, cohere)
    assert (sliding.window, sliding.encoding.label) == (4096, "RoPE(base=50000.0)")
    assert (full.window, full.encoding.label, found) == (None, "NoPE", [])


def test_temperatures_that_depend_on_the_position_and_sinks(tmp_path):
    small = {**SHAPE, "num_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "num_key_value_heads": 2}
    if "beam" in CONFIG_MAPPING:  # in newer versions of transformers
        beam = judged(tmp_path, {"model_type": "beam", **small, "num_hidden_layers": 6, "n_group": 1, "topk_group": 1})[
            1
        ]
        assert [group.temperature for group in beam] == ["", "× (1 + (i + 1) / 2,048)^0.1 at position i"]
    llama4 = judged(tmp_path, {"model_type": "llama4_text", **small})[1]
    assert [group.temperature for group in llama4] == ["", "× (1 + 0.1 ln(1 + floor((i + 1) / 8,192))) at position i"]
    rope = {"rope_type": "default", "rope_theta": 1e4}
    gpt_oss = judged(tmp_path, {"model_type": "gpt_oss", **small, "rope_parameters": rope})[1]
    assert {group.temperature for group in gpt_oss} == {"a sink logit of each head, which is learned"}


def test_scaling_by_the_length_is_compared_before_and_after(tmp_path):
    _, _, comparisons, _ = judged(tmp_path, PHI_3)
    assert [(c.dtype, c.length) for c in comparisons] == [
        ("float32", 4096), ("float32", 131072), ("bfloat16", 4096), ("bfloat16", 131072),
    ]  # fmt: skip
    read, _, comparisons, _ = judged(tmp_path, DYNAMIC)
    assert read.length == 4096  # twice the length before scaling
    assert {c.length for c in comparisons} == {2048, 4096}


def test_a_language_model_inside_of_another_model(tmp_path):
    vision = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32,
              "image_size": 8, "patch_size": 4}  # fmt: skip
    whole = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": vision}
    _, groups, _, found = judged(tmp_path, {**whole, "text_config": GEMMA_3})
    assert [len(group.layers) for group in groups] == [5, 1] and found == []
    text = changed(GEMMA_3, rope_parameters={"full_attention": {"factor": 8.0, "rope_theta": 1e6}})
    _, _, _, found = judged(tmp_path, {**whole, "text_config": text})
    assert [finding.check for finding in found] == ["missing-rope-type"]


def test_a_number_that_the_class_computes_and_writes_is_not_misspelt(tmp_path):
    sarvam = pytest.importorskip("transformers.models.sarvam_mla")  # in newer versions of transformers
    assert judged(tmp_path, sarvam.SarvamMLAConfig(num_hidden_layers=2).to_dict())[-1] == []


def test_a_cache_that_generation_switches_off(tmp_path):
    written(tmp_path, {})
    (tmp_path / "generation_config.json").write_text(json.dumps({"use_cache": False}))
    assert judged(tmp_path, changed(DYNAMIC, use_cache=True))[-1] == []


def test_other_frequencies_in_transformers(tmp_path, monkeypatch):
    from transformers.models.llama import modeling_llama

    original = modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters

    def wrong(*arguments, **options):
        frequencies, factor = original(*arguments, **options)
        return frequencies * (1 + 2.0**-15), factor

    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "compute_default_rope_parameters", staticmethod(wrong))
    _, _, (comparison, _), found = judged(tmp_path, changed(LLAMA_3_1, rope_scaling=None, max_position_embeddings=8192))
    assert [finding.check for finding in found] == ["different-angles"]
    assert (comparison.position, comparison.pair) == (8191, 0)
    assert comparison.error == pytest.approx(8191 * 2**-15, rel=1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_frequencies_that_a_dtype_rounds(tmp_path, monkeypatch, dtype):
    from transformers.models.llama import modeling_llama

    original = modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters

    def rounded(*arguments, **options):
        frequencies, factor = original(*arguments, **options)
        return frequencies.to(torch.get_default_dtype()), factor

    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "compute_default_rope_parameters", staticmethod(rounded))
    settings = changed(LLAMA_3_1, rope_scaling=None, torch_dtype=dtype)
    assert [finding.check for finding in judged(tmp_path, settings)[-1]] == ["rounded-frequencies"]
    assert judged(tmp_path, changed(settings, torch_dtype="float32"))[-1] == []


def test_a_tokenizer_for_shorter_texts(tmp_path):
    file = tmp_path / "tokenizer_config.json"
    for longest, checks in ((128, ["tokenizer-length"]), (131072, []), (int(1e30), []), (None, [])):
        file.write_text(json.dumps({"model_max_length": longest}))
        assert [(f.check, f.is_problem) for f in judged(tmp_path, LLAMA_3_1)[-1]] == [
            (check, False) for check in checks
        ]


def test_the_dtype_of_a_nested_file_stands_outside(tmp_path):
    text = changed(GEMMA_3, dtype=...)
    whole = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16"}
    vision = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32,
              "image_size": 8, "patch_size": 4}  # fmt: skip
    read = folder.read_folder(written(tmp_path, {**whole, "vision_config": vision, "text_config": text}))
    assert read.dtype == torch.bfloat16


def test_thetas_of_layers_and_heads_of_different_sizes(tmp_path):
    granite = {"model_type": "granite_swa", **SHAPE, "num_key_value_heads": 2, "max_position_embeddings": 4096,
               "eos_token_id": 1, "bos_token_id": 1, "pad_token_id": 0}  # fmt: skip
    _, groups, comparisons, found = judged(tmp_path, {**granite, "layer_rope_theta": [0, 1e4, 1e4, 1e7]})
    labels = {layer: group.encoding.label for group in groups for layer in group.layers}
    assert [labels[n] for n in range(4)] == ["NoPE", *["RoPE(layout=half)"] * 2, "RoPE(base=10000000.0, layout=half)"]
    assert all(c.agrees for c in comparisons) and not [f for f in found if f.is_problem]
    gemma_4 = {
        "model_type": "gemma4_text", **SHAPE, "num_key_value_heads": 2, "head_dim": 32, "global_head_dim": 64,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64, "num_kv_shared_layers": 0,
        "sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "max_position_embeddings": 8192, "eos_token_id": 1, "bos_token_id": 1, "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
        },
    }  # fmt: skip
    _, groups, comparisons, found = judged(tmp_path, gemma_4)
    assert [(group.head_dim, group.window, group.encoding.cls.__name__) for group in groups] == [
        (32, 512, "RoPE"), (64, None, "PRoPE"),
    ]  # fmt: skip
    assert len(comparisons) == 2 and all(c.agrees for c in comparisons) and found == []


# ---- weights ----------------------------------------------------------------------------------------------------


def differences(path, settings, **stored):
    from safetensors.torch import save_file

    read, groups, _, _ = judged(path, settings)
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, path / "model.safetensors")
    return [(finding.text, finding.is_problem) for finding in stored_buffers.differences(read, groups, tensors(path))]


def test_stored_frequencies(tmp_path):
    plain = changed(LLAMA_3_1, rope_scaling=None)
    exact = 500000.0 ** -(torch.arange(0, 64, 2) / 64)
    names = [f"model.layers.{layer}.self_attn.rotary_emb.inv_freq" for layer in range(4)]
    assert differences(tmp_path, plain, **dict.fromkeys(names[:1], exact)) == []
    ((text, is_problem),) = differences(tmp_path, plain, **{name: exact.bfloat16() for name in names})
    assert "rounded to bfloat16" in text and "of 3 more tensors" in text
    assert not is_problem  # transformers computes unrounded ones
    ((text, is_problem),) = differences(tmp_path, plain, **{names[0]: 10000.0 ** -(torch.arange(0, 64, 2) / 64)})
    assert "trained with other settings" in text and is_problem
    ((text, is_problem),) = differences(tmp_path, plain, **{names[0]: exact[:16]})
    assert "has shape [16], but the settings mean 32 frequencies" in text and is_problem
    ((text, is_problem),) = differences(tmp_path, plain, **{names[0]: exact * math.nan})
    assert "contains NaN or infinity" in text and is_problem


def test_stored_frequencies_of_linear_scaling_may_be_unscaled(tmp_path):
    linear = changed(SOUND["Vicuna 1.5, 16K"])
    exact, name = 10000.0 ** -(torch.arange(0, 64, 2) / 64), "model.layers.0.self_attn.rotary_emb.inv_freq"
    assert [differences(tmp_path, linear, **{name: exact / factor}) for factor in (1, 4)] == [[], []]
    ((text, is_problem),) = differences(tmp_path, linear, **{name: exact / 2})
    assert "trained with other settings" in text and is_problem


def test_stored_slopes(tmp_path):
    slopes = 2.0 ** -torch.arange(2, 10, 2)
    assert differences(tmp_path, MPT, **{"transformer.slopes": slopes}) == []
    ((text, is_problem),) = differences(tmp_path, MPT, **{"transformer.slopes": slopes**2})
    assert "other slopes" in text and is_problem


@pytest.fixture
def stored(tmp_path):
    """The tensors of a small Llama, whose folder is `tmp_path`."""
    from safetensors.torch import load_file

    model_of("llama").save_pretrained(tmp_path)
    return load_file(tmp_path / "model.safetensors")


def checked(path, stored, **settings):
    from safetensors.torch import save_file

    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text()) | settings
    read = folder.read_folder(written(path, config))
    return stored_buffers.check_weights(read, description.layer_groups(read))


def test_complete_weights_and_what_was_compared(tmp_path, stored):
    found = checked(tmp_path, stored)
    assert found.findings == []
    numbers = {
        "files": 1,
        "tensors": len(stored),
        "parameters": len(stored),
        "frequencies": 0,
        "slopes": 0,
        "tables": 0,
    }
    assert found.numbers() == numbers
    assert found.in_words().startswith(f"Weights: {len(stored)} tensors in 1 files.")


def test_missing_and_further_tensors_and_shapes(tmp_path, stored):
    name = "model.layers.1.mlp.up_proj.weight"
    lost = {key: tensor for key, tensor in stored.items() if key != name}
    (problem,) = checked(tmp_path, lost).findings
    assert problem.is_problem and problem.text.startswith(f"{name} is not stored, and would be random;")
    (problem,) = checked(tmp_path, {key: tensor for key, tensor in lost.items() if "up_proj" not in key}).findings
    assert "more of the model's parameters are not stored" in problem.text
    (problem,) = checked(tmp_path, stored | {name: torch.zeros(4, 4)}).findings
    assert problem.text.startswith(f"{name} has shape [4, 4], but the settings mean ")
    (problem,) = checked(tmp_path, stored | {"model.layers.0.self_attn.further": torch.zeros(8)}).findings
    assert problem.text.startswith("the model does not use model.layers.0.self_attn.further;")


def test_other_numbers_of_layers(tmp_path, stored):
    layers = json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"]
    for number, message in ((layers - 1, "the model does not use model.layers."), (layers + 1, "are not stored")):
        (problem,) = checked(tmp_path, stored, num_hidden_layers=number).findings
        assert message in problem.text


def test_quantized_weights_are_not_compared(tmp_path, stored):
    packed = stored | {"model.layers.0.mlp.up_proj.weight": torch.zeros(4, 4, dtype=torch.uint8)}
    found = checked(tmp_path, packed, quantization_config={"quant_method": "gptq", "bits": 4})
    assert (found.findings, found.parameters) == ([], 0)


def test_experts_that_transformers_joins_are_not_missing(tmp_path):
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("qwen3_moe", **COMMON, num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    read = folder.read_folder(tmp_path)
    found = stored_buffers.check_weights(read, description.layer_groups(read))
    assert found.findings == [] and found.parameters


# ---- bad input --------------------------------------------------------------------------------------------------

BAD = {
    "an encoder": ({"model_type": "bert"}, r"contains an encoder \(bert\)"),
    "an encoder by its architecture": (
        {"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "not a causal language model",
    ),
    "an encoder with a decoder": ({"model_type": "t5"}, "no causal language model of the type 't5'"),
    "a vision model": ({"model_type": "vit", "architectures": ["ViTModel"]},
                       "no causal language model of the type 'vit'"),
    "a factor below 1": (changed(QWEN_YARN, rope_scaling={"factor": 0.5}),
                         "factor must be a finite number of at least 1, got 0.5"),
    "a factor as text": (changed(QWEN_YARN, rope_scaling={"factor": "4"}), "rope_scaling: factor must be .*, got '4'"),
    "an infinite factor": (changed(QWEN_YARN, rope_scaling={"factor": math.inf}), "factor"),
    "no factor": (changed(DYNAMIC, rope_scaling={"factor": ...}), "factor"),
    "an unknown rope type": (changed(LLAMA_3_1, rope_scaling={"rope_type": "yran"}),
                             "no rope_type 'yran'; did you mean 'yarn'"),
    "theta as text": (changed(LLAMA_3_1, rope_theta="5e5"),
                      "config.json: rope_theta must be .* more than 0, got '5e5'"),
    "a negative length": (
        changed(QWEN_YARN, rope_scaling={"original_max_position_embeddings": -1}),
        "original_max_position_embeddings must be",
    ),
    "factors as text": (changed(PHI_3, rope_scaling={"long_factor": "1"}), "long_factor must be a list of .*, got '1'"),
    "a window as text": (changed(SOUND["Mistral"], sliding_window="4096"), "transformers cannot read its config.json"),
    "a window of 0": (changed(SOUND["Mistral"], sliding_window=0),
                      "sliding_window in config.json must be .*, or null, got 0"),
    "scaling in words": (changed(LLAMA_3_1, rope_scaling="linear"), "rope_scaling must be an object, got 'linear'"),
    "too few factors": (changed(PHI_3, rope_scaling={"long_factor": [1.0]}), "long_factor"),
    "heads that do not divide": (changed(LLAMA_3_1, num_attention_heads=6),
                                 r"hidden size \(256\) is not a multiple of the"),
    "sizes for no memory": (changed(LLAMA_3_1, hidden_size=2**40),
                            "transformers cannot build the model of its config.json"),
    "an unknown encoding": ({"model_type": "gptj"}, "does not know the position encoding of a gptj"),
    "Falcon's ALiBi": (changed(SOUND["Falcon 7B"], alibi=True), "a falcon computes ALiBi in its own way"),
    "the first name of LongRoPE": (
        changed(PHI_3, rope_scaling={"type": "su"}), "type 'su' is an older name, .*; write 'longrope'",
    ),
    "a length as text": (changed(MISTRAL, max_position_embeddings="32768"),
                         "'max_position_embeddings' expected int, got str"),
    "a fraction in percent": (changed(SOUND["GPT-NeoX"], rotary_pct=25),
                              "partial_rotary_factor must be a number, .* got 25"),
    "kinds of layers in a class without them": (
        changed(LLAMA_3_1, rope_theta=..., rope_scaling=..., rope_parameters=GEMMA_3["rope_parameters"]),
        "no counterpart of 'sliding_attention'",
    ),
    "a scaling in a scaling": (
        changed(LLAMA_3_1, rope_scaling=..., rope_parameters={"rope_scaling": LLAMA3_SCALING}),
        "counterpart of 'rope_scaling'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(tmp_path, name):
    settings, message = BAD[name]
    with pytest.raises(ConfigError, match=message) as caught:
        judged(tmp_path, settings)
    assert "\n" not in str(caught.value)


def test_folders_without_weights_that_may_be_read(tmp_path):
    read, groups, _, _ = judged(tmp_path, LLAMA_3_1)
    with pytest.raises(ConfigError, match=r"has no \*.safetensors; omit --weights"):
        stored_buffers.check_weights(read, groups)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(ConfigError, match=r"pytorch_model.bin is not read, .*save_pretrained\(NEW_FOLDER\)"):
        stored_buffers.check_weights(read, groups)
