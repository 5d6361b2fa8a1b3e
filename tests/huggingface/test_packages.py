"""Models with our encodings in the packages around transformers: the Trainer, peft, lm-evaluation-harness."""

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, T5, RoPE
from lengthwise.evaluation.harness import question_rows, write_rows
from lengthwise.tasks import Copy, Reverse, Text
from lengthwise.training import build

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[hf]'")

from transformers import AutoModelForCausalLM, AutoTokenizer

from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, use
from lengthwise.huggingface.export import export
from tests.huggingface.models import model_of, tokens

needs_accelerate = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)


def models() -> dict[str, Any]:
    torch.manual_seed(0)
    config = LengthwiseConfig.of(ModelConfig(d_model=32, num_layers=2, num_heads=2), choose(T5), 17, 61)
    return {"replaced": use(model_of("llama"), choose(FIRE)), "exported": LengthwiseForCausalLM(config)}


@pytest.mark.medium
@needs_accelerate
@pytest.mark.parametrize("kind", ["replaced", "exported"])
def test_the_trainer_trains_saves_and_continues(kind: str, tmp_path: Path) -> None:
    """An interrupted training that continues from a checkpoint ends with the weights of an uninterrupted one."""
    from transformers import Trainer, TrainingArguments

    examples = [{"input_ids": row, "labels": row} for row in tokens(24, 17)]

    def trainer(name: str, steps: int) -> Any:
        settings = {"max_steps": steps, "save_steps": 2, "learning_rate": 1e-2, "lr_scheduler_type": "constant"}
        arguments = TrainingArguments(
            str(tmp_path / name),
            per_device_train_batch_size=4,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **settings,
        )
        return Trainer(models()[kind], arguments, train_dataset=examples)

    whole = trainer("whole", 4)
    before = {n: p.clone() for n, p in whole.model.named_parameters()}
    losses = [whole.train().training_loss]
    assert all(not torch.equal(before[n], p) for n, p in whole.model.named_parameters()), "the encoding trains as well"
    trainer("cut", 2).train()
    continued = trainer("cut", 4)
    losses.append(continued.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-2")).training_loss)
    assert all(loss > 0 for loss in losses)
    expected = whole.model.state_dict()
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "cut" / "checkpoint-4")
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)


def test_peft_trains_the_projections_and_the_encoding(tmp_path: Path) -> None:
    """LoRA on the projections; `modules_to_save` trains the encodings beside them, and saves them with the adapter."""
    peft = pytest.importorskip("peft", reason="peft is not installed")

    model, x = use(model_of("llama"), "fire*2+t5"), tokens()
    own = {n: p.clone() for n, p in model.named_parameters()}
    names = [f"position_encodings.{n}" for n in range(len(model.model.position_encodings))]
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], modules_to_save=names)
    adapted = peft.get_peft_model(model, config)
    assert torch.equal(adapted(x).logits, use(model_of("llama"), "fire*2+t5")(x).logits)
    trained = [n for n, p in adapted.named_parameters() if p.requires_grad]
    assert any("position_encodings" in n for n in trained) and any("lora" in n for n in trained)
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = adapted(x, labels=x).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in adapted.named_parameters() if n in trained)
    logits = adapted(x).logits
    with adapted.disable_adapter():
        assert torch.equal(adapted(x).logits, use(model_of("llama"), "fire*2+t5")(x).logits)
    adapted.save_pretrained(tmp_path)
    base = use(model_of("llama"), "fire*2+t5")
    base.load_state_dict(own)
    loaded = peft.PeftModel.from_pretrained(base, str(tmp_path))
    torch.testing.assert_close(loaded(x).logits, logits, atol=1e-5, rtol=1e-5)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(x).logits, logits, atol=1e-5, rtol=1e-4)
    merged.save_pretrained(tmp_path / "merged")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(again(x).logits, logits, atol=1e-5, rtol=1e-4)


def exported(task: Any, folder: Path, **options: Any) -> tuple[Any, Any, Any]:
    """An untrained run as a model of lm-evaluation-harness, with our model and task."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install '.[lm-eval]'")
    from lm_eval.models.huggingface import HFLM

    model = ModelConfig(d_model=16, num_layers=2, num_heads=2)
    run = Run(encoding=choose(RoPE), task=task, model=model, training=TrainingConfig(train_length=8, steps=1))
    own, task = build(run)
    export(run, own, folder)
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return HFLM(pretrained=loaded, tokenizer=tokenizer, max_length=128, device="cpu", **options), own.eval(), task


@pytest.mark.slow
def test_lm_evaluation_harness_decodes_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    choices = [choose(Copy), choose(Reverse)]
    harness, model, _ = exported(choices[0], tmp_path / "model")
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    written = write_rows(tmp_path / "tasks", question_rows(choices, [3, 12], count=6, seed=4))
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    names = ["lengthwise_copy", "lengthwise_reverse"]
    found = simple_evaluate(harness, tasks=names, task_manager=manager, bootstrap_iters=0, log_samples=True)
    assert set(found["results"]) == {task.name for task in written} and len(written) == 4
    for choice, length in itertools.product(choices, [3, 12]):
        task = choice.build()
        batch = task.examples(4, 6, length)
        prompts = batch.inputs[:, : length + 2]
        answers = model.generate(
            prompts, 2 * length + 1, stop=task.eos
        )  # as many tokens as its task in the harness allows
        samples = found["samples"][f"lengthwise_{choice.name.lower()}_{length}"]
        for number, sample in enumerate(sorted(samples, key=lambda sample: sample["doc_id"])):
            words = [word for word in task.answer_words(answers[number].tolist()) if word not in ("[BOS]", "[...]")]
            assert sample["resps"][0][0].split() == words
            assert sample["doc"]["answer"] == " ".join(task.render(batch)[number]["target"].split())
            assert sample["exact_match"] == float(" ".join(words) == sample["doc"]["answer"])


def test_lm_evaluation_harness_gives_the_same_cross_entropy(tmp_path: Path) -> None:
    """The harness itself puts BOS before a text, so the tokenizer must not."""
    harness, model, _ = exported(choose(Text), tmp_path / "model", add_bos_token=False)
    from lm_eval.api.instance import Instance

    texts = ["def héllo(): pass\n", "x" * 90]
    requests = [Instance("loglikelihood_rolling", {}, (text,), 0) for text in texts]
    found = harness.loglikelihood_rolling(requests, disable_tqdm=True)
    for text, value in zip(texts, found, strict=True):
        tokens_of = torch.tensor([[256, *text.encode()]])
        with torch.no_grad():
            logits = model(tokens_of[:, :-1])[0]
        expected = -torch.nn.functional.cross_entropy(logits, tokens_of[0, 1:], reduction="sum").item()
        assert value == pytest.approx(expected, rel=1e-5)


def test_lm_evaluation_harness_cuts_at_the_training_length_unless_told_otherwise(tmp_path: Path) -> None:
    harness, _, _ = exported(choose(Text), tmp_path / "model")
    assert harness.max_length == 128
    assert type(harness)(pretrained=harness.model, tokenizer=harness.tokenizer, device="cpu").max_length == 8
