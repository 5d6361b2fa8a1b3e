"""Folders of pretrained models whose files ask for code, the hub, or files elsewhere: nothing is fetched or run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import load
from lengthwise.evaluation.pretrained.transformers_calls import offline, transformers_call

_spec = importlib.util.spec_from_file_location("pretrained_folder", Path(__file__).parent / "pretrained_folder.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
change, make, predicted = _module.change, _module.make, _module.predicted

THERE = all(importlib.util.find_spec(name) for name in ("transformers", "tokenizers"))
pytestmark = pytest.mark.skipif(not THERE, reason="transformers is not installed: pip install '.[outside]'")

STUB = '''
"""Stands for the package `kernels`: writes down what is asked of it, and has no kernel."""
import os


def get_kernel(name, *args, **more):
    with open(os.environ["ASKED"], "a") as file:
        file.write(f"{name}\\n")
    raise FileNotFoundError(name)


def identity(*names, **more):
    return lambda made: made


kernelize = get_kernel
use_kernel_forward_from_hub = use_kernelized_func = use_kernel_mapping = identity


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {"__init__": lambda self, *args, **more: None})
'''

ASK = """
import sys
from lengthwise.evaluation.pretrained import load
from lengthwise.reach.functions import predictions
for folder in sys.argv[1:]:
    model = load(folder)
    assert predictions(model, ["Input: 0\\nLabel:"] * 2, [0, 1], 8)["n"] == 2
    print(model.description()["attention"])
"""

CONTROL = """
import sys
from transformers import AutoModelForCausalLM
for folder in sys.argv[1:]:
    try:
        AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def run_with_stub(tmp_path_factory):
    """Runs a script where `kernels` is the stub; gives its output and the names that were asked of the stub."""
    from transformers.utils.import_utils import KERNELS_MIN_VERSION as VERSION

    place = tmp_path_factory.mktemp("stub")
    (place / "kernels").mkdir()
    (place / "kernels" / "__init__.py").write_text(STUB)
    described = place / f"kernels-{VERSION}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {VERSION}\n")

    def run(script, *folders):
        asked = place / "asked"
        asked.unlink(missing_ok=True)
        source = Path(__file__).parents[2] / "src"
        paths = os.pathsep.join([str(place), str(source), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, folders)],
            env={**os.environ, "PYTHONPATH": paths, "ASKED": str(asked)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), asked.read_text().split() if asked.exists() else []

    return run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Folders with an attention of the hub in config.json: as transformers writes it, as it reads it, and in a part."""
    new = tmp_path_factory.mktemp
    return [
        change(make(new("private")), _attn_implementation="evil/kernel"),
        change(make(new("public")), attn_implementation="evil/kernel"),
        change(make(new("mpt"), "mpt"), attn_implementation="evil/kernel@main:forward"),
        change(make(new("part"), "git"), attn_implementation={"vision_config": "evil/kernel"}),
        change(make(new("text"), "gemma3"), attn_implementation={"text_config": "evil/kernel"}),
    ]


@pytest.mark.slow
def test_no_kernel_is_asked_for(run_with_stub, hostile):
    said, asked = run_with_stub(ASK, *hostile)
    assert asked == []
    assert said == ["sdpa", "sdpa", "eager", "eager", "sdpa"]


@pytest.mark.slow
def test_without_our_arguments_it_would_be(run_with_stub, hostile):
    """The stub is what transformers takes for `kernels`, and the folders do ask."""
    said, asked = run_with_stub(CONTROL, *hostile)
    assert len(said) == len(asked) == len(hostile)
    assert set(asked) == {"evil/kernel"}


def test_parts_have_the_same_attention(tmp_path):
    """The attention of a folder counts nowhere, nor its implementation of experts."""
    change(make(tmp_path, "git"), _attn_implementation={"": "sdpa", "vision_config": "flash_attention_2"})
    config = load(change(tmp_path, experts_implementation="batched_mm")).model.config
    assert (config._attn_implementation, config.vision_config._attn_implementation) == ("eager", "eager")
    assert config._experts_implementation == "eager"


def test_the_hub_is_off_for_a_while_only(tmp_path, monkeypatch):
    from huggingface_hub import constants, is_offline_mode

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with offline():
        assert is_offline_mode() and os.environ["HF_HUB_OFFLINE"] == "1"
    assert not is_offline_mode() and "HF_HUB_OFFLINE" not in os.environ
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(KeyError), offline():
        raise KeyError
    assert not is_offline_mode() and os.environ["HF_HUB_OFFLINE"] == "0"

    model, seen = load(make(tmp_path)), []
    model.model.register_forward_pre_hook(lambda *_: seen.append(is_offline_mode()))
    predicted(model)
    assert seen and all(seen) and not is_offline_mode()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "config.json has quantization_config: quantized weights"),
        ({"text_config": {"quantization_config": {"quant_method": "eetq"}}}, "config.json has quantization_config"),
        ({"parts": [{"compression_config": {}}]}, "config.json has compression_config"),
        ({"fusion_config": {"patch_embeddings": True}}, "config.json has fusion_config"),
        ({"transformers_weights": "adapter_model.bin"}, "config.json must name .* as weights, got 'adapter_model.bin'"),
        (
            {"transformers_weights": "../other.safetensors"},
            r"config.json must name .* as weights, got '\.\./other.safetensors'",
        ),
        ({"transformers_weights": 3}, "in the folder itself as weights, got 3"),
    ],
)
def test_settings_that_ask_for_more_than_the_model(tmp_path, settings, says):
    change(make(tmp_path), **settings)
    with pytest.raises(ConfigError, match=says):
        load(tmp_path)


def test_a_setting_that_is_null_asks_for_nothing(tmp_path):
    change(make(tmp_path), quantization_config=None, transformers_weights=None)
    assert load(tmp_path).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("shard", ["pytorch_model.bin", "../model.safetensors", "/model.safetensors", ["x"], None])
def test_shards_that_are_not_safetensors_of_the_folder(tmp_path, shard):
    make(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "other.safetensors", "model.norm.weight": shard}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"model.safetensors.index.json must name .* as weights"):
        load(tmp_path)


def test_shards_of_the_folder_are_read(tmp_path):
    from safetensors import safe_open

    make(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    with safe_open(tmp_path / "model-1.safetensors", "pt") as file:
        index = {"metadata": {}, "weight_map": dict.fromkeys(file.keys(), "model-1.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load(tmp_path).architecture == "LlamaForCausalLM"


def test_an_index_that_is_no_json(tmp_path):
    make(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("[")
    with pytest.raises(ConfigError, match=r"index.json is not valid JSON"):
        load(tmp_path)


def test_an_adapter(tmp_path):
    change(make(tmp_path), "adapter_config.json", base_model_name_or_path="evil/model")
    with pytest.raises(ConfigError, match=r"contains an adapter \(adapter_config.json\)"):
        load(tmp_path)


def test_code_beside_a_model_is_not_run(tmp_path):
    """Tokenizer, model, configuration and generation each name a module of the folder."""
    own = {name: f"own.{name}" for name in ("AutoConfig", "AutoModelForCausalLM")}
    change(make(tmp_path), auto_map=own)
    change(tmp_path, "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Slow", "own.Fast"]})
    change(tmp_path, "generation_config.json", custom_generate="evil/generate")
    (tmp_path / "custom_generate").mkdir()
    for file in ("own.py", "custom_generate/generate.py"):
        (tmp_path / file).write_text("raise SystemExit('this ran')")
    assert load(tmp_path).architecture == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"model_type": ["llama"]}, r"no causal language model of the type \['llama'\]"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": float("nan")}},
            "factor must be a finite number of at least 1, got nan",
        ),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": float("inf")}},
            "factor must be a finite number of at least 1, got inf",
        ),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, says):
    change(make(tmp_path), **settings)
    with pytest.raises(ConfigError, match=says):
        load(tmp_path)


@pytest.mark.parametrize("made", ["an error of Python", "an error of torch", "a text of torch"])
def test_memory_that_runs_out(tmp_path, made):
    """While a folder is loaded, its config.json asks for the memory; while a model is asked, the prompts do."""
    error = {
        "an error of Python": MemoryError,
        "an error of torch": torch.OutOfMemoryError,
        "a text of torch": RuntimeError,
    }[made]

    def run_out():
        if error is RuntimeError:
            torch.empty(1 << 60, dtype=torch.uint8)
        raise error

    with pytest.raises(ConfigError) as caught, transformers_call(tmp_path, "read its weights"):
        run_out()
    says = str(caught.value)
    assert says.startswith(f"{tmp_path}: there is not enough memory to read its weights")
    assert "check the sizes in its config.json" in says
    assert ("(1152921504606846976 bytes in one piece)" in says) == (error is RuntimeError)
    with (
        pytest.raises(error, match="allocate" if error is RuntimeError else None),
        transformers_call(tmp_path, "x", computing=True),
    ):
        run_out()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_folders_in_place_of_files(tmp_path, name):
    make(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(ConfigError, match=r"download it again|download the whole folder again"):
        load(tmp_path)
