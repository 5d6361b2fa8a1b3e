"""Folders of pretrained models that were made to mislead: each is refused in one line, or computed as it says."""

import importlib.util
import json
import logging
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

from lengthwise.cli import main
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Plan, boolean_tasks, load, predict_labels

_spec = importlib.util.spec_from_file_location("pretrained_folder", Path(__file__).parent / "pretrained_folder.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
change, make = _module.change, _module.make

THERE = all(importlib.util.find_spec(name) for name in ("transformers", "tokenizers"))
pytestmark = pytest.mark.skipif(not THERE, reason="transformers is not installed: pip install '.[outside]'")

ESCAPES = "\x1b[31mRED\x1b]0;title\x07\nlengthwise: everything is fine"
PLAN = Plan(boolean_tasks(["conjunction"], 3), ("standard",), (1,), "plain", prompts=2)


@pytest.fixture
def refused(capfd):
    """Return what the command line prints about a folder, which is one line that a terminal only shows."""

    def ask(folder):
        capfd.readouterr()  # a bar of what the test saved
        assert main(["pretrained", str(folder), "--prompts", "2", "--tasks", "conjunction", "--examples", "1"]) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"lengthwise: {folder}")
        assert printed.err.count("\n") == 1 and printed.err[:-1].isprintable()
        return printed.err

    return ask


# ---- what transformers prints -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"model_type": "falcon", "architectures": None, "head_dim": ESCAPES},
        {"use_return_dict": ESCAPES},
        {"name_or_path": ESCAPES, "rope_parameters": {"rope_type": ESCAPES}},
        {"hidden_act": ESCAPES},
        {"layer_types": [ESCAPES]},
        {"dtype": ESCAPES},
    ],
)
def test_settings_that_a_terminal_would_obey(tmp_path, refused, settings):
    """transformers logs some of them as errors with the whole configuration."""
    said = refused(change(make(tmp_path), **settings))
    assert "transformers cannot " in said or "rope_type" in said


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, "transformers cannot read its tokenizer"),
        ("pre_tokenizer", {"type": "FixedLength", "length": 0}, "transformers cannot use its tokenizer"),
    ],
)
def test_a_tokenizer_that_panics(tmp_path, refused, part, value, says):
    """Its Rust writes to the process's stderr, and raises what is no `Exception`."""
    said = refused(change(make(tmp_path), "tokenizer.json", **{part: value}))
    assert f"{says} (PanicException: " in said


def test_nothing_of_transformers_is_printed(tmp_path, capfd, recwarn):
    model = load(make(tmp_path))
    capfd.readouterr()
    recwarn.clear()

    def speak(*_):
        print("printed")
        warnings.warn("warned", stacklevel=1)
        logging.getLogger("transformers.modeling_utils").critical("logged")
        heard.append(1)

    heard, disabled, streams = [], logging.root.manager.disable, (sys.stdout, sys.stderr)
    model.model.register_forward_pre_hook(speak)
    assert predict_labels(model, PLAN)[0].n == 2
    assert heard and capfd.readouterr() == ("", "") and not recwarn.list
    assert (logging.root.manager.disable, sys.stdout, sys.stderr) == (disabled, *streams)


def test_what_is_printed_after_a_folder_was_loaded_is_seen(tmp_path, capfd, caplog):
    load(make(tmp_path))
    capfd.readouterr()
    print("to stdout")
    os.write(2, b"to stderr\n")
    logging.getLogger("another").warning("logged")
    assert capfd.readouterr() == ("to stdout\n", "to stderr\n")
    assert caplog.messages == ["logged"]


def test_a_closed_stderr(tmp_path):
    make(tmp_path)
    before = os.dup(2)
    os.close(2)
    try:
        assert load(tmp_path).architecture == "LlamaForCausalLM"
    finally:
        os.dup2(before, 2)
        os.close(before)


# ---- what a model returns ---------------------------------------------------------------------------------------


RETURNED = {"return_dict": False, "output_hidden_states": True, "output_attentions": True}


@pytest.mark.parametrize("kind", ["llama", "mpt", "git", "gemma3"])
def test_settings_of_what_a_model_returns_change_no_answer(tmp_path, kind):
    usual = predict_labels(load(make(tmp_path, kind)), PLAN)
    config = json.loads((tmp_path / "config.json").read_text())
    parts = {name: {**part, **RETURNED} for name, part in config.items() if name.endswith("_config")}
    assert predict_labels(load(change(tmp_path, **RETURNED, **parts)), PLAN) == usual


def test_an_error_while_a_model_is_asked_names_the_folder(tmp_path):
    model = load(make(tmp_path))

    def fail(*_):
        raise IndexError("wrong\nindex")

    model.model.register_forward_pre_hook(fail)
    with pytest.raises(ConfigError) as caught:
        predict_labels(model, PLAN)
    assert str(caught.value).startswith(
        f"{tmp_path}: transformers cannot compute its logits (IndexError: wrong index); "
    )


# ---- weights that are not used ----------------------------------------------------------------------------------


def add(folder, **tensors):
    """Add tensors to the folder's weights; dots in names are written as two underscores."""
    from safetensors.torch import load_file, save_file

    file = folder / "model.safetensors"
    more = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    save_file({**load_file(file), **more}, file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(("kind", "key"), [("llama", "num_hidden_layers"), ("mpt", "n_layers")])
def test_layers_that_the_config_leaves_out(tmp_path, refused, kind, key):
    make(tmp_path, kind, layers=3)
    said = refused(change(tmp_path, **{key: 1}))
    assert "with its config.json does not use " in said and "of the weights in its safetensors, such as" in said
    for count in (0, -1):
        problem = "must be at least 1, got 0" if count == 0 else f"has {key} = -1"
        assert problem in refused(change(tmp_path, **{key: count}))
    load(change(tmp_path, **{key: 3}))


def test_a_weight_of_another_model(tmp_path, refused):
    add(make(tmp_path), model__layers__0__self_attn__q_proj__bias=torch.ones(32))
    assert "does not use 1 of the weights in its safetensors, such as model.layers.0.self_attn.q_proj.bias" in refused(
        tmp_path
    )


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {"model__layers__0__self_attn__rotary_emb__inv_freq": torch.ones(4)}),
        ("mpt", {"transformer__blocks__0__attn__rotary_emb__inv_freq": torch.ones(4)}),
        ("llama", {"model__layers__0__attn__bias": torch.ones(1, 1, 8, 8)}),  # as the checkpoint of GPT-2 has its masks
        ("mpt", {"transformer__blocks__0__attn__bias": torch.ones(1, 1, 8, 8, dtype=torch.uint8)}),
        ("mpt", {"transformer__blocks__0__attn__masked_bias": torch.tensor(-1e4)}),
        ("gpt2", {"transformer__h__0__attn__bias": torch.ones(1, 1, 8, 8)}),
    ],
)
def test_what_old_checkpoints_keep_beside_weights(tmp_path, kind, more):
    """Masks and frequencies, which models compute by themselves."""
    usual = predict_labels(load(make(tmp_path, kind)), PLAN)
    assert predict_labels(load(add(tmp_path, **more)), PLAN) == usual


def test_weights_that_are_stored_twice(tmp_path):
    """The embedding also as the output, where both are tied."""
    from safetensors.torch import load_file

    change(make(tmp_path), tie_word_embeddings=True)
    table = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    assert load(add(tmp_path, lm_head__weight=table.clone())).architecture == "LlamaForCausalLM"


# ---- numbers that nothing stored goes by ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (
            "llama",
            {"num_labels": 10**9},
            "'num_labels' = 1,000,000,000, but no dimension in its safetensors is larger than 257",
        ),
        ("llama", {"num_labels": 10**5}, "'num_labels' = 100,000, but no dimension"),
        ("llama", {"text_config": {"num_labels": 10**9}}, "'num_labels' = 1,000,000,000, but no dimension"),
        ("llama", {"num_theta": 10**9}, "'num_theta' = 1,000,000,000, but no dimension"),
        ("llama", {"sizes": [4, [5, 10**9]]}, "'sizes' = 1,000,000,000, but no dimension"),
        ("llama", {"vocab_size": 10**9}, "'vocab_size' = 1,000,000,000, but no dimension"),
        ("llama", {"head_dim": 10**40}, "'head_dim' = a number of 41 digits, but no dimension"),
        ("llama", {ESCAPES: 10**9}, "= 1,000,000,000, but no dimension"),
        ("llama", {"max_position_embeddings": 10**15}, "1,000,000,000,000,000, but no model has that many"),
        ("mpt", {"max_seq_len": 10**9}, "'max_seq_len' = 1,000,000,000, but no model has that many"),
        ("mixtral", {"num_local_experts": 10**6}, "'num_local_experts' = 1,000,000, but no dimension"),
        ("mixtral", {"num_local_experts": 4000}, "parameters, but its safetensors contain 45,344"),
        (
            "llama",
            {"vocab_size": 10**6},
            "a model of 64,010,336 parameters, but its safetensors contain 26,784 numbers",
        ),
        ("llama", {"hidden_size": 1 << 17}, "parameters, but its safetensors contain 26,784 numbers"),
        ("gpt2", {"n_positions": 10**6}, "parameters, but its safetensors contain "),
        ("gptj", {"rotary_dim": 10**6}, "a model with 8,192,000,000 bytes of buffers"),
    ],
)
def test_numbers_that_the_weights_cannot_fill(tmp_path, refused, kind, settings, says):
    assert says in refused(change(make(tmp_path, kind), **settings))


def test_a_tokenizer_with_more_tokens_than_there_are_rows(tmp_path, refused):
    change(make(tmp_path), "tokenizer_config.json", tokenizer_class="T5Tokenizer", extra_ids=10**8)
    assert "tokenizer_config.json has 'extra_ids' = 100,000,000, but no dimension" in refused(tmp_path)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10**12}, "seed": 10**12, "x": 10**6}),
        ("llama", {"max_position_embeddings": 10_485_760, "sliding_window": 10**7, "num_labels": 40}),
        ("mpt", {"max_seq_len": 65536}),
        ("mixtral", {}),
        ("gptj", {"n_positions": 65536}),
    ],
)
def test_large_numbers_that_say_no_size(tmp_path, kind, settings):
    change(make(tmp_path, kind), "tokenizer_config.json", model_max_length=int(1e30))
    assert predict_labels(load(change(tmp_path, **settings)), PLAN)[0].n == 2
