"""Our own models as models of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, ModelConfig, Run, TrainingConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, T5, Learned, NoPE, Sinusoidal
from lengthwise.positions import Randomized
from lengthwise.tasks import PFA, Copy, LinearRegression, Text
from lengthwise.training import build

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, pipeline

from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM
from lengthwise.huggingface.export import export
from tests.huggingface.models import cache_in, with_cache

MODELS = {
    **{mixer: (ModelConfig(mixer=mixer, d_model=16, num_layers=2), choose(NoPE)) for mixer in MIXERS},
    "sinusoidal": (ModelConfig(mixer="linear_transformer", d_model=16, num_layers=2), choose(Sinusoidal)),
    "tied": (ModelConfig.t5(d_model=16, num_layers=2), choose(T5)),
    "grouped": (ModelConfig.llama(d_model=32, num_layers=3, num_heads=4, num_kv_heads=2),
                ENCODINGS.parse("rope*2+nope")),
} | {
    encoding.__name__: (
        ModelConfig(d_model=16, num_layers=2, num_heads=2),
        choose(encoding, **({"max_length": 64} if encoding is Learned else {})),
    )
    for encoding in ENCODINGS
}  # fmt: skip


def model_named(name: str) -> Any:
    torch.manual_seed(0)
    model = LengthwiseForCausalLM(LengthwiseConfig.of(*MODELS[name], 12, 40)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, 40, (2, 17), generator=torch.Generator().manual_seed(1))


SAVED_QUICKLY = (*MIXERS, "sinusoidal", "tied", "grouped", "Learned", "FIRE", "Shaw", "FoX", "PoPE", "SelectiveRoPE")


@pytest.mark.medium
@pytest.mark.parametrize(
    "name", [name if name in SAVED_QUICKLY else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_every_model_is_saved_and_generates(name: str, tmp_path: Path) -> None:
    """With a cache and without it, with padding on the left, greedily and with beams, also past the training length."""
    model, x = model_named(name), tokens()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    mask = torch.ones_like(x)
    mask[0, :5] = 0
    options = {"max_new_tokens": 6, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    with torch.no_grad():
        assert torch.equal(loaded(x).logits, model(x).logits)
        assert torch.equal(loaded(x, use_cache=False).logits, model.model(x))
        padded = loaded(x, attention_mask=mask).logits[0, 5:]
        torch.testing.assert_close(padded, loaded(x[:1, 5:]).logits[0], atol=1e-5, rtol=1e-5)
        one, other = (loaded.generate(x, attention_mask=mask, use_cache=u, **options) for u in (True, False))
        assert torch.equal(one.sequences, other.sequences)
        torch.testing.assert_close(torch.stack(one.logits), torch.stack(other.logits), atol=1e-5, rtol=1e-5)
        beams = [loaded.generate(x, attention_mask=mask, use_cache=u, num_beams=3, **options) for u in (True, False)]
        assert torch.equal(beams[0].sequences, beams[1].sequences)
        ours = model.model.generate(x, 6)
        assert torch.equal(loaded.generate(x, max_new_tokens=6, do_sample=False)[:, 17:], ours)


@pytest.mark.parametrize("name", ["RoPE", "FIRE", *MIXERS, "sinusoidal", "tied"])
def test_gradients_and_checkpointing(name: str) -> None:
    model, x = model_named(name).train(), tokens()
    found = []
    for enable in (False, True):
        model.zero_grad()
        if enable:
            model.gradient_checkpointing_enable()
            assert model.model.recompute and model.is_gradient_checkpointing
        loss = model(x, labels=x).loss
        expected = torch.nn.functional.cross_entropy(model.model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        torch.testing.assert_close(loss, expected)
        loss.backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
    model.gradient_checkpointing_disable()
    assert not model.model.recompute


@pytest.mark.parametrize("name", ["RoPE", "Learned", "FoX"])
def test_packed_documents_equal_each_alone(name: str) -> None:
    model, x = model_named(name), tokens()[:1]
    positions = torch.cat([torch.arange(6), torch.arange(11)])[None]
    with torch.no_grad():
        packed = model(x, position_ids=positions, use_cache=False).logits[0]
        alone = torch.cat([model(x[:, :6]).logits[0], model(x[:, 6:]).logits[0]])
    torch.testing.assert_close(packed, alone, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("argument", ["past_key_values", "cache"])
@pytest.mark.parametrize("name", ["RoPE", "FoX", "mamba"])
def test_a_cache_is_continued_by_both_names(name: str, argument: str) -> None:
    model, x = model_named(name), tokens()
    first = model(x[:, :9], use_cache=True)
    rest = model(x[:, 9:], **{argument: cache_in(first)})
    torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), model(x).logits, atol=1e-5, rtol=1e-5)
    assert cache_in(rest) is cache_in(first) and cache_in(rest).get_seq_length() == 17


def test_what_is_refused() -> None:
    model, x = model_named("RoPE"), tokens()
    packed = torch.cat([torch.arange(6), torch.arange(11)])[None]
    padded = torch.ones_like(x).index_fill(1, torch.arange(6), 0)
    counted = packed.masked_fill(padded[:1] == 0, 1)
    assert torch.equal(
        model(x, position_ids=counted, attention_mask=padded).logits, model(x, attention_mask=padded).logits
    )
    for words, action in (
        (
            "packed documents, which need no attention_mask",
            lambda: model(x, position_ids=packed, attention_mask=padded | 1),
        ),
        ("returns logits only; omit output_attentions", lambda: model(x, output_attentions=True)),
        ("has a cache of its own, got a DynamicCache", lambda: model(x, **with_cache(DynamicCache()))),
        (
            "cache_implementation='static'; omit it",
            lambda: model.generate(x, max_new_tokens=2, cache_implementation="static"),
        ),
        (r"must have the shape \[2, 17\]", lambda: model(x, attention_mask=torch.ones(2, 9))),
        ("takes no inputs_embeds", lambda: model(None, inputs_embeds=torch.zeros(2, 3, 16))),
    ):
        with pytest.raises(ConfigError, match=words):
            action()


def run_of(task: Any, encoding: Any = T5, model: ModelConfig | None = None, **training: Any) -> Run:
    model = ModelConfig(d_model=16, num_layers=2, num_heads=2) if model is None else model
    config = TrainingConfig(train_length=8, steps=1, **training)
    return Run(encoding=choose(encoding), task=task, model=model, training=config)


def test_a_run_on_bytes(tmp_path: Path) -> None:
    run = run_of(choose(Text))
    model, _ = build(run)
    assert export(run, model, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    text = "def héllo():\n\treturn '<bos>  \U0001f600'"
    ids = tokenizer(text)["input_ids"]
    assert ids == [256, *text.encode()]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert all(tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(n)) == n for n in range(257))
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    x = torch.tensor([ids])
    with torch.no_grad():
        assert torch.equal(exported(x, use_cache=False).logits, model.eval()(x))
    (found,) = pipeline("text-generation", model=str(tmp_path / "out"))("def f", max_new_tokens=3, do_sample=False)
    assert found["generated_text"].startswith("def f")
    origin = json.loads((tmp_path / "out" / "lengthwise.json").read_text())
    assert origin["run"] == run.key and "path" not in origin["config"]["task"]


def test_a_run_on_words(tmp_path: Path) -> None:
    run = run_of(choose(Copy))
    model, task = build(run)
    assert export(run, model, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = task.examples(0, 3, 5)
    texts = [f"{row['input']} [SEP] {row['target']}" for row in task.render(batch)]
    assert tokenizer(texts)["input_ids"] == batch.inputs.tolist()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    prompt = tokenizer([text.partition(" [SEP]")[0] + " [SEP]" for text in texts], return_tensors="pt")
    generated = exported.generate(**prompt, max_new_tokens=4, do_sample=False)[:, prompt["input_ids"].shape[1] :]
    assert torch.equal(generated, model.eval().generate(prompt["input_ids"], 4, stop=task.eos)[:, : generated.shape[1]])
    assert exported.generation_config.eos_token_id == task.eos


def test_tokens_that_stand_for_no_text(tmp_path: Path) -> None:
    run = run_of(choose(PFA))
    assert not export(run, build(run)[0], tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_runs_that_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(words: str, run: Run, name: str = "out") -> None:
        with pytest.raises(ConfigError, match=words):
            export(run, build(run)[0], tmp_path / name)

    (tmp_path / "there").mkdir()
    refused("there exists, and nothing is overwritten", run_of(choose(Copy)), "there")
    refused("there is no folder", run_of(choose(Copy)), "none/out")
    refused("LinearRegression gives a model vectors", run_of(choose(LinearRegression)))
    random = choose(Randomized, max_length=64, at_evaluation="random")
    refused(r"Randomized\(.*\) does not count tokens in tests", run_of(choose(Copy), positions=random))
    run = run_of(choose(Copy))
    model, _ = build(run)
    monkeypatch.setattr("lengthwise.huggingface.export.tokenizer_of", lambda task: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(run, model, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["there"], "nothing half-written"
