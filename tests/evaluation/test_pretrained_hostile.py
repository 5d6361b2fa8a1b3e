"""Folders of pretrained models that were made to mislead: each is refused in one line, or computed as it says."""

import importlib.util
import logging
import os
import sys
import warnings
from pathlib import Path

import pytest
import torch

from lengthwise.cli import main
from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import load

_spec = importlib.util.spec_from_file_location("pretrained_folder", Path(__file__).parent / "pretrained_folder.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
change, make, predicted = _module.change, _module.make, _module.predicted

THERE = all(importlib.util.find_spec(name) for name in ("transformers", "tokenizers"))
pytestmark = pytest.mark.skipif(not THERE, reason="transformers is not installed: pip install '.[outside]'")

ESCAPES = "\x1b[31mRED\x1b]0;title\x07\nlengthwise: everything is fine"


@pytest.fixture
def refused(capfd):
    """Return what the command line prints about a folder, which is one line that a terminal only shows."""

    def ask(folder):
        capfd.readouterr()  # a bar of what the test saved
        assert (
            main(
                [
                    "reach",
                    str(folder),
                    "--tasks",
                    "functions",
                    "--functions",
                    "conjunction",
                    "--shots",
                    "1",
                    "--examples",
                    "2",
                ]
            )
            == 2
        )
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
        {"name_or_path": ESCAPES, "rope_parameters": {"rope_type": ESCAPES}},
        {"hidden_act": ESCAPES},
    ],
)
def test_settings_that_a_terminal_would_obey(tmp_path, refused, settings):
    """transformers logs some of them as errors with the whole configuration."""
    said = refused(change(make(tmp_path), **settings))
    assert "transformers cannot " in said or "rope_type" in said


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
    assert predicted(model)["n"] == 2
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


# ---- what a model returns ---------------------------------------------------------------------------------------


def test_an_error_while_a_model_is_asked_names_the_folder(tmp_path):
    model = load(make(tmp_path))

    def fail(*_):
        raise IndexError("wrong\nindex")

    model.model.register_forward_pre_hook(fail)
    with pytest.raises(ConfigError) as caught:
        predicted(model)
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
    assert refused(change(tmp_path, **{key: 0}))
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
    usual = predicted(load(make(tmp_path, kind)))
    assert predicted(load(add(tmp_path, **more))) == usual


def test_weights_that_are_stored_twice(tmp_path):
    """The embedding also as the output, where both are tied."""
    from safetensors.torch import load_file

    change(make(tmp_path), tie_word_embeddings=True)
    table = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    assert load(add(tmp_path, lm_head__weight=table.clone())).architecture == "LlamaForCausalLM"
