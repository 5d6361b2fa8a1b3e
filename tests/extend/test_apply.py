"""Models with a method: the folder gives the logits of `use`, and transformers alone loads it if it computes them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoConfig, AutoModelForCausalLM

from lengthwise.config import ConfigError, ModelConfig, choose
from lengthwise.encodings import FIRE, NTKAware, NTKByParts, RoPE
from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.extend import apply
from lengthwise.extend.apply import extended_length, load_written, require_applicable, write_start
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, use
from lengthwise.huggingface.own_encoding import train_length_of
from lengthwise.models.conversion import equivalent
from lengthwise.reach.methods import choice_for, choice_of, own_choice
from tests.huggingface.models import COMMON, FAMILIES, model_of

NATIVE_METHODS = [
    "pi:factor=4",
    "yarn:factor=4",
    "ntkaware:factor=4",
    "ntkbyparts:factor=4",
    "llama3:factor=8",
    "p-rope:p=0.5",
]
NATIVE_METHODS += ["rope:base=5e4", "yarn:factor=2,attention_factor=1.5,beta_fast=4"]
OTHER_METHODS = ["dynamicntk", "dynamicyarn", "longrope", "nope", "fire", "t5", "alibi", "rope*2+nope", "fire*2+nope"]
OTHER_METHODS += ["ntkbyparts:ramp=rotations", "rope:layout=interleaved"]


def written(model: Any, method: str, folder: Path, longest: int = 0) -> tuple[str, Any]:
    """The form of a written model, and the model that transformers loads."""
    source = folder.parent / "source"
    source.mkdir(exist_ok=True)
    (source / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    form = write_start(Pretrained(source, model, None, type(model).__name__, 64), method, 3, longest, folder)
    return form, AutoModelForCausalLM.from_pretrained(folder).eval()


def text(length: int = 150) -> torch.Tensor:
    return torch.randint(2, 60, (2, length), generator=torch.Generator().manual_seed(1))


def require_logits_of_use(loaded: Any, model: Any, method: str) -> None:
    torch.manual_seed(3)
    expected = use(model, choice_for(model, method))
    with torch.no_grad():
        theirs, ours = loaded(text(), use_cache=False).logits, expected(text(), use_cache=False).logits
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=2e-4)


@pytest.mark.medium
@pytest.mark.parametrize("method", NATIVE_METHODS)
def test_transformers_alone_computes_static_scalings(method: str, tmp_path: Path) -> None:
    model = model_of("llama")
    form, loaded = written(model, method, tmp_path / "out")
    data = json.loads((tmp_path / "out" / "config.json").read_text())
    assert form == "native" and data["model_type"] == "llama" and "auto_map" not in data
    assert not list((tmp_path / "out").glob("*.py"))
    factor = dict(choice_of(method, None).settings).get("factor", 1)
    assert data["max_position_embeddings"] == extended_length(model, method) == 64 * factor
    tokenizer = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert tokenizer["model_max_length"] == 64 * factor
    require_logits_of_use(loaded, model, method)


@pytest.mark.parametrize("method", ["pi:factor=4", "ntkaware:factor=4", "yarn:factor=4", "rope:base=5e4"])
def test_a_native_folder_keeps_the_training_length(method: str, tmp_path: Path) -> None:
    form, loaded = written(model_of("llama"), method, tmp_path / "folder", longest=256)
    assert form == "native" and loaded.config.max_position_embeddings == 256
    assert train_length_of(loaded.config) == 64 and extended_length(loaded, "yarn:factor=2") == 128


@pytest.mark.medium
@pytest.mark.parametrize("method", OTHER_METHODS)
def test_other_methods_keep_the_encoding_of_use(method: str, tmp_path: Path) -> None:
    model = model_of("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    form, loaded = written(model, method, tmp_path / "out")
    assert form == "lengthwise"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "lengthwise_replaced"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    require_logits_of_use(loaded, model, method)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("family", "method", "form"),
    [
        ("llama, llama3", "yarn:factor=4", "native"),
        ("llama, yarn", "pi:factor=4", "native"),
        ("qwen3", "llama3", "native"),
        ("mistral", "ntkaware:factor=8", "native"),
        ("gpt_neox", "yarn:factor=4", "native"),
        ("gpt_neox", "rope:rotary_fraction=1.0", "native"),
        ("gemma3_text", "yarn:factor=8", "native"),
        ("gemma3_text", "rope+yarn:factor=8+rope", "native"),
        ("gemma3_text", "yarn:factor=8+rope*2", "lengthwise"),
        ("smollm3", "yarn:factor=4", "native"),
        ("smollm3", "rope*2+nope", "native"),
        ("smollm3", "nope", "lengthwise"),
        ("bloom", "nope", "lengthwise"),
        ("cohere", "yarn:factor=4", "native"),
        ("cohere2", "pi:factor=4", "native"),
        ("mixtral", "yarn:factor=4", "native"),
        ("phi3", "yarn:factor=4", "lengthwise"),
    ],
)
def test_other_families(family: str, method: str, form: str, tmp_path: Path) -> None:
    model = model_of(family) if family in FAMILIES else other_model(family)
    found, loaded = written(model, method, tmp_path / "out")
    assert found == form
    require_logits_of_use(loaded, model, method)


def other_model(kind: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**COMMON, **settings})).eval()


def test_a_kind_of_layers_whose_encoding_stays_keeps_its_settings(tmp_path: Path) -> None:
    model = model_of("gemma3_text")
    method = "rope+yarn:factor=8+rope"
    _, loaded = written(model, method, tmp_path / "out")
    found = loaded.config.rope_parameters
    assert found["sliding_attention"] == model.config.rope_parameters["sliding_attention"]
    assert found["full_attention"]["rope_type"] == "yarn" and found["full_attention"]["factor"] == 8


@pytest.mark.parametrize(
    ("first", "method", "form", "label"),
    [
        ("dynamicyarn", "yarn:factor=4", "native", "YaRN(base=500.0, layout=half"),
        ("fire", "alibi", "lengthwise", "ALiBi"),
        ("dynamicyarn", "rope*2+nope", "lengthwise", "RoPE(base=500.0, layout=half)"),
    ],
)
def test_a_model_with_our_encoding_is_extended_again(
    first: str, method: str, form: str, label: str, tmp_path: Path
) -> None:
    """A rotation inherits from the encoding that the model has. The model in memory stays as it is."""
    model = model_of("llama")
    use(model, choice_for(model, first))
    with torch.no_grad():
        before = model(text(), use_cache=False).logits
        found, loaded = written(model, method, tmp_path / "out")
        assert found == form and own_choice(loaded).label.startswith(label)
        assert torch.equal(model(text(), use_cache=False).logits, before)
        other, choice = model_of("llama"), choice_for(model, method)
        expected = use(other, choice)(text(), use_cache=False).logits
        torch.testing.assert_close(loaded(text(), use_cache=False).logits, expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("kind", "form"), [("phi3", "native"), ("llama", "lengthwise")])
def test_only_phi3_computes_longrope(kind: str, form: str, tmp_path: Path) -> None:
    model = other_model(kind, pad_token_id=0)
    factors = [f"{name}_factor=[{','.join(map(str, values))}]" for name, values in FACTORS.items()]
    method = f"longrope:factor=4,{','.join(factors)}"
    found, loaded = written(model, method, tmp_path / "out")
    assert found == form
    require_logits_of_use(loaded, model, method)


FACTORS = {"short": [1.0, 1.1, 1.2, 1.3], "long": [1.0, 2.0, 3.0, 4.0]}


def test_a_pattern_has_the_base_and_layout_of_each_layer() -> None:
    choice = choice_for(model_of("llama"), "rope+rope:base=7+nope")
    assert [dict(layer.settings).get("base") for layer in choice.layers] == [500.0, 7.0, None]
    assert [dict(layer.settings).get("layout") for layer in choice.layers] == ["half", "half", None]
    model = model_of("smollm3")  # of 3 layers, the last of which has no encoding
    found = choice_for(model, "yarn:factor=2+pi:factor=3")
    assert [layer.name for layer in found.layers] == ["YaRN", "PI", "NoPE"]
    assert dict(choice_for(other_model("cohere"), "pi").settings)["layout"] == "interleaved"


@pytest.mark.slow
def test_a_program_without_lengthwise_loads_a_native_folder(tmp_path: Path) -> None:
    model = model_of("llama")
    written(model, "ntkbyparts:factor=4", tmp_path / "out")
    code = (
        "import sys, torch\nfrom transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('out').eval()\n"
        "torch.save(model(torch.load('x.pt'), use_cache=False).logits.detach(), 'logits.pt')\n"
        "assert not any(name.startswith('lengthwise') for name in sys.modules)\n"
    )
    torch.save(text(), tmp_path / "x.pt")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    expected = use(model, choice_for(model, "ntkbyparts:factor=4"))(text(), use_cache=False).logits
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.medium
@pytest.mark.parametrize("what", ["angles", "logits"])
def test_what_transformers_computes_differently_is_not_written_natively(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "angles":
        monkeypatch.setattr(apply, "compare_angles", lambda *_: [object()])
    else:
        monkeypatch.setattr(
            apply, "rope_parameters_from_encoding", lambda *_, **__: {"rope_type": "default", "rope_theta": 9.0}
        )
    model = model_of("llama")
    form, loaded = written(model, "yarn:factor=4", tmp_path / "out")
    assert form == "lengthwise, because transformers computes something else"
    require_logits_of_use(loaded, model, "yarn:factor=4")


@pytest.mark.parametrize("choice", [choose(NTKAware, factor=7.3), choose(NTKByParts, factor=3.0, truncate=False)])
def test_equivalent_encodings_have_the_same_frequencies(choice: Any) -> None:
    for head_dim, length in ((64, 2048), (128, 8192), (12, 300)):
        other = equivalent(choice, head_dim, length)
        assert other != choice
        context = {"head_dim": head_dim, "train_length": length}
        ours, theirs = (entry.build(**context).frequencies(torch.tensor(1)) for entry in (choice, other))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


# ---- exported runs ------------------------------------------------------------------------------------------------


def exported(encoding: Any) -> LengthwiseForCausalLM:
    torch.manual_seed(0)
    config = LengthwiseConfig.of(ModelConfig(d_model=32, num_layers=2, num_heads=2), encoding, 64, 61)
    return LengthwiseForCausalLM(config).eval()


@pytest.mark.parametrize("method", ["pi:factor=4", "fire", "nope"])
def test_an_exported_run_gets_another_encoding(method: str, tmp_path: Path) -> None:
    model = exported(choose(RoPE))
    form, loaded = written(model, method, tmp_path / "out")
    assert form == "lengthwise" and own_choice(loaded) == choice_of(method, choose(RoPE))
    assert loaded.config.train_length == 64
    own = model.state_dict()
    assert all(torch.equal(own[n], value) for n, value in loaded.state_dict().items() if ".encodings." not in n)
    assert not torch.equal(loaded(text()).logits, model(text()).logits)


def test_an_exported_run_with_its_own_encoding_keeps_its_parameters(tmp_path: Path) -> None:
    model = exported(choose(FIRE))
    _, loaded = written(model, "fire", tmp_path / "out")
    assert all(torch.equal(model.state_dict()[n], value) for n, value in loaded.state_dict().items())


def test_what_a_model_cannot_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be at least 1, got 0"):
        require_applicable(model_of("llama"), "yarn:factor=0.5")
    with pytest.raises(ConfigError, match="no encoding 'yran'"):
        require_applicable(model_of("llama"), "yran")
    with pytest.raises(ConfigError, match="num_layers must be at least 4"):
        require_applicable(model_of("llama"), "rope*3+nope")


def test_other_dtypes(tmp_path: Path) -> None:
    model = model_of("llama").bfloat16()
    form, loaded = written(model, "yarn:factor=4", tmp_path / "out")
    assert form == "native" and load_written(tmp_path / "out", "cpu", "bfloat16").dtype == torch.bfloat16
    assert loaded.config.dtype == torch.bfloat16
