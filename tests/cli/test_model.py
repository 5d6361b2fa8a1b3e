"""`lengthwise model`: its table, JSON, picture and exit codes; and that it runs no code of the folder."""

import json
import os
import re

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from lengthwise.huggingface import angles, use
from tests.huggingface.configurations import DYNAMIC, GEMMA_3, LLAMA_3_1, MPT, changed, written
from tests.huggingface.models import model_of

CONFIGURATION = """
import os
open(os.environ["LENGTHWISE_TEST_MARK"], "w").close()
from transformers import LlamaConfig

class OwnConfig(LlamaConfig):
    model_type = "own"
"""
MODEL = """
import torch
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from .configuration_own import OwnConfig

class OwnRotaryEmbedding(LlamaRotaryEmbedding):
    def __init__(self, config):
        super().__init__(config)
        self.inv_freq = self.inv_freq.to(torch.get_default_dtype())

class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.rotary_emb = OwnRotaryEmbedding(config)
"""
OWN = {
    "model_type": "own",
    "architectures": ["OwnForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
}


@pytest.fixture(autouse=True)
def few_positions(monkeypatch):
    monkeypatch.setattr(angles, "MAX_SAMPLES", 600)


def test_a_sound_model(here, tmp_path):
    ran = here("model", written(tmp_path / "m", GEMMA_3))
    assert ran.code == 0 and ran.err == ""
    assert "gemma3_text, 6 layers, bfloat16, intended for 32,768 tokens." in ran.out
    lines = ran.out.splitlines()
    assert any(line.startswith("█████·  RoPE(layout=half)") and "1,024" in line for line in lines)
    assert any(line.startswith("·····█  PI(base=1000000.0") for line in lines)
    assert ran.out.endswith("No problems found.\n")


def test_equal_comparisons_of_layers_with_different_windows_are_one_line(here, tmp_path):
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    gemma_2 = {**GEMMA_3, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "rope_parameters": rope}
    folder = written(tmp_path / "m", gemma_2)
    lines = here("model", folder).out.splitlines()
    assert len([line for line in lines if "radians" in line]) == 2  # float32 and bfloat16
    assert len(json.loads(here("model", folder, "--json").out)["angles"]) == 4


def test_layers_that_cannot_be_observed_are_named(here, tmp_path):
    observed, not_observed = (here("model", written(tmp_path / "m", settings)).out for settings in (GEMMA_3, MPT))
    assert "were not observed" not in observed
    assert "These layers were not observed (they do not call transformers' attention interface), so the" in not_observed


def test_problems_set_the_exit_code(here, tmp_path):
    folder = written(tmp_path / "m", changed(DYNAMIC, use_cache=True))
    ran = here("model", folder)
    assert ran.code == 1 and ran.err == ""
    assert "problem (scaling-with-cache): dynamic scaling leaves cached keys" in ran.out
    assert "1 problem found." in ran.out
    ran = here("model", folder, "--json")
    assert ran.code == 1
    data = json.loads(ran.out)
    assert [found["check"] for found in data["problems"]] == ["scaling-with-cache"]
    assert data["length"] == 4096 and data["length_before_scaling"] == 2048
    assert data["layers"][0]["encoding"] == "DynamicNTK" and data["layers"][0]["layers"] == [0, 1, 2, 3]
    assert {row["dtype"] for row in data["angles"]} == {"float32", "float16"}


def test_a_picture(here, tmp_path):
    folder = written(tmp_path / "m", LLAMA_3_1)
    ran = here("model", folder, "--plot", tmp_path / "a.svg")
    assert ran.code == 0 and f"Picture: {tmp_path / 'a.svg'}." in ran.out
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn.startswith("<svg") and "before scaling" in drawn and "at 131,072 tokens" in drawn
    assert here("model", written(tmp_path / "mpt", MPT), "--plot", tmp_path / "a.png").code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    ran = here("model", folder, "--plot", tmp_path / "a.gif")
    assert ran.code == 2 and "--plot must end in .svg, .png or .pdf" in ran.err
    gpt2 = written(tmp_path / "g", {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2})
    ran = here("model", gpt2, "--plot", tmp_path / "b.svg")
    assert ran.code == 2 and "neither RoPE nor ALiBi" in ran.err and not (tmp_path / "b.svg").exists()


def test_weights(here, tmp_path):
    import torch
    from safetensors.torch import save_file

    folder = written(tmp_path / "m", changed(LLAMA_3_1, rope_scaling=None))
    ran = here("model", folder, "--weights")
    assert ran.code == 2 and "has no *.safetensors" in ran.err and ran.out == ""
    inv_freq = 10000.0 ** -(torch.arange(0, 64, 2) / 64)
    save_file({"model.layers.0.self_attn.rotary_emb.inv_freq": inv_freq}, folder / "model.safetensors")
    assert here("model", folder).code == 0
    ran = here("model", folder, "--weights")
    assert ran.code == 1 and "problem (weights): model.layers.0" in ran.out
    model_of("llama", num_hidden_layers=1).save_pretrained(tmp_path / "tiny")
    settings = json.loads((tmp_path / "tiny" / "config.json").read_text())
    ran = here("model", written(tmp_path / "tiny", {**settings, "dtype": "bfloat16"}), "--weights")
    assert ran.code == 0 and "note (weights): the weights are float32, and config.json says bfloat16" in ran.out
    assert "Compared with the settings: 12 parameters," in ran.out
    assert json.loads(here("model", tmp_path / "tiny", "--weights", "--json").out)["weights"]["parameters"] == 12
    assert json.loads(here("model", tmp_path / "tiny", "--json").out)["weights"] is None


def test_folders_without_a_model(here, tmp_path):
    for path, message in ((tmp_path, "has no config.json"), (tmp_path / "none", "does not exist")):
        ran = here("model", path)
        assert (ran.code, ran.out) == (2, "") and message in ran.err and ran.err.count("\n") == 1
    (tmp_path / "config.json").write_text("{")
    assert "is not valid JSON" in here("model", tmp_path).err


@pytest.mark.slow
def test_code_in_the_folder_runs_only_if_it_is_trusted(apart, tmp_path):
    folder, mark = written(tmp_path / "m", {**changed(LLAMA_3_1, rope_scaling=None), **OWN}), tmp_path / "ran"
    (folder / "configuration_own.py").write_text(CONFIGURATION)
    (folder / "modeling_own.py").write_text(MODEL)
    environment = {"LENGTHWISE_TEST_MARK": str(mark), "HF_HOME": str(tmp_path / "home")}
    ran = apart("model", folder, **environment)
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert "code of its own" in ran.err and "--trust-remote-code" in ran.err and not mark.exists()
    ran = apart("model", folder, "--trust-remote-code", **environment)
    assert mark.exists() and ran.code == 1, ran.err
    assert (
        "problem (rounded-frequencies): RoPE(base=500000.0, layout=half): in bfloat16, frequencies are rounded"
        in ran.out
    )


def test_code_beside_a_known_model_is_not_run(here, tmp_path):
    folder = written(tmp_path / "m", MPT)
    (folder / "configuration_mpt.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    ran = here("model", folder)
    assert ran.code == 0 and "which runs only with --trust-remote-code" in ran.out
    assert not os.path.exists(tmp_path / "ran")


def test_an_untested_version_of_transformers(here, tmp_path, monkeypatch):
    import transformers

    folder = written(tmp_path / "m", LLAMA_3_1)
    monkeypatch.setattr(transformers, "__version__", "6.1.0")
    ran = here("model", folder)
    assert ran.code == 0
    assert ran.err.startswith("lengthwise: transformers 6.1.0 is not one of the tested versions, 5.14 to 5.24")
    assert ran.err.count("\n") == 1


def test_settings_that_a_terminal_would_obey(here, tmp_path):
    ran = here("model", written(tmp_path / "m", changed(LLAMA_3_1, torch_dtype="\x1b[2J", dtype="\x1b[2J2")))
    assert "\x1b" not in ran.out + ran.err


def test_tested_versions_are_those_of_the_packages():
    from pathlib import Path

    from lengthwise.transformers_versions import TESTED_VERSIONS

    root = Path(__file__).parents[2]
    first, last = (".".join(map(str, version)) for version in TESTED_VERSIONS)
    after = f"{TESTED_VERSIONS[1][0]}.{TESTED_VERSIONS[1][1] + 1}"
    ranges = re.findall(r'"transformers>=(.*?),<(.*?)"', (root / "pyproject.toml").read_text())
    assert ranges[0] == (first, after) and {high for _, high in ranges} == {after}
    assert f"transformers=={last}." in (root / "constraints.txt").read_text()


def test_an_encoding_of_ours_is_not_checked(here, tmp_path):
    use(model_of("llama"), "fire*2+nope").save_pretrained(tmp_path)
    assert (
        "has the encoding FIRE*2+NoPE of lengthwise, which transformers does not compute" in here("model", tmp_path).err
    )
