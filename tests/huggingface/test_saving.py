"""Models with our encodings are saved and loaded by transformers, and never load with another encoding in silence."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, choose
from lengthwise.encodings import ENCODINGS, FIRE, T5, Learned

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from lengthwise.huggingface import unuse, use
from tests.huggingface.models import FAMILIES, model_of, tokens
from tests.other_numbers import slow_with_other_numbers


def trained(model: Any) -> Any:
    """The model with other parameters of its encodings than a new one has."""
    with torch.no_grad():
        for parameter in model.get_decoder().position_encodings.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.1)
    return model


@pytest.mark.medium
@pytest.mark.parametrize("encoding", slow_with_other_numbers(ENCODINGS), ids=lambda make: make.__name__)
def test_every_encoding_is_saved_and_loaded(encoding: Any, tmp_path: Path) -> None:
    settings = {"max_length": 64} if encoding is Learned else {}
    model = trained(use(model_of("llama"), choose(encoding, **settings)))
    model.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert type(loaded) is type(model)
    with torch.no_grad():
        assert torch.equal(loaded(tokens(), use_cache=False).logits, model(tokens(), use_cache=False).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_saved_and_loaded(family: str, tmp_path: Path) -> None:
    original = model_of(family)
    model = trained(use(model_of(family), "fire+nope"))
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    with torch.no_grad():
        logits = model(tokens()).logits
        assert torch.equal(loaded(tokens()).logits, logits)
        assert torch.equal(again(tokens()).logits, logits)
        assert torch.equal(unuse(loaded)(tokens()).logits, original(tokens()).logits)
    loaded.save_pretrained(tmp_path / "own")
    assert json.loads((tmp_path / "own" / "config.json").read_text())["model_type"] == original.config.model_type


def test_without_a_head_and_in_another_type(tmp_path: Path) -> None:
    model = trained(use(model_of("llama"), "t5"))
    model.save_pretrained(tmp_path)
    without_head = AutoModel.from_pretrained(tmp_path)
    with torch.no_grad():
        own = model.model(tokens()).last_hidden_state
        assert torch.equal(without_head(tokens()).last_hidden_state, own)
        half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
        torch.testing.assert_close(half(tokens()).logits.float(), model(tokens()).logits, atol=0.2, rtol=0.1)


def test_gradients_of_a_loaded_model(tmp_path: Path) -> None:
    model = trained(use(model_of("llama"), choose(FIRE)))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).train()
    for one in (model, loaded):
        one(tokens(), labels=tokens()).loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    for name, parameter in loaded.named_parameters():
        assert torch.equal(parameter.grad, expected[name]), name


@pytest.mark.slow
def test_transformers_alone_refuses_the_folder(tmp_path: Path) -> None:
    """It would otherwise load the weights into a Llama with RoPE."""
    use(model_of("llama"), "fire").save_pretrained(tmp_path)
    program = """
import sys
from transformers import AutoModelForCausalLM
if "missing" in sys.argv:
    sys.modules["lengthwise"] = None
try:
    AutoModelForCausalLM.from_pretrained(sys.argv[1], trust_remote_code="trust" in sys.argv)
except Exception as error:
    print(type(error).__name__, error)
else:
    print("loaded")
"""

    def said(*words: str) -> str:
        command = [sys.executable, "-c", program, str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "trust_remote_code=True" in said()
    missing = said("trust", "missing")
    assert "lengthwise" in missing and "loaded" not in missing
    assert said("trust") == "loaded\n"


def test_weights_of_the_encoding_that_are_missing(tmp_path: Path) -> None:
    use(model_of("llama"), choose(T5)).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({k: t for k, t in load_file(file).items() if "position_encodings" not in k}, file, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"has no weights of the encoding T5 \(model.position_encodings.0.weight\)"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def change_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_configurations_that_cannot_be_loaded(tmp_path: Path) -> None:
    use(model_of("llama"), "fire").save_pretrained(tmp_path)
    encoding = json.loads((tmp_path / "config.json").read_text())["encoding"]
    for changes, words in (
        ({"encoding": {**encoding, "is": "FIRR"}}, "'FIRR'; did you mean 'FIRE'"),
        (
            {"encoding": {**encoding, "class": {"version": 99}}},
            "another version of FIRE, which computed something else",
        ),
        ({"encoding": {**encoding, "widht": 3}}, "did you mean 'width'"),
        ({"encoding": None}, "must be an object"),
        ({"encoding": encoding, "text_config": {"model_type": "t5"}}, "has no class for the model type 't5'"),
    ):
        change_config(tmp_path, **changes)
        with pytest.raises(ConfigError, match=words):
            AutoModelForCausalLM.from_pretrained(tmp_path)
    use(model_of("llama"), "fire").save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="omit attn_implementation"):
        AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="sdpa")
    assert AutoConfig.from_pretrained(tmp_path).get_text_config().vocab_size == 61
