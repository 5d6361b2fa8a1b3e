"""Export a trained run as a folder of transformers."""

import json
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM

from lengthwise.config import ConfigError, Run
from lengthwise.huggingface.exported_model import LengthwiseConfig, LengthwiseForCausalLM
from lengthwise.huggingface.tokenizers import tokenizer_of
from lengthwise.models import Model
from lengthwise.new_folder import new_folder, require_new
from lengthwise.positions import position_scheme_for
from lengthwise.tasks.base import Task
from lengthwise.training.setup import original_train_length

CHECKED_TOKENS = 16  # of random text, for which the exported model must give the same logits


def export(run: Run, model: Model, folder: str | Path) -> bool:
    """Write a trained model, its configuration and its tokenizer into a new folder of transformers.

    The folder appears complete, or not at all. Returns whether it has a tokenizer; a task whose tokens stand for no
    text has none. Raises `ConfigError` for a folder that exists, for a model whose inputs are not tokens, and for a
    position scheme that does not count tokens in tests, which transformers could not do.
    """
    path, task = require_new(folder), cast(Task, run.task.build())
    require_exportable(run, task)
    train_length = original_train_length(run, task)
    config = LengthwiseConfig.of(run.model, run.encoding, train_length, task.output_size)
    exported = LengthwiseForCausalLM(config)
    exported.model.load_state_dict(model.state_dict())
    exported.eval()
    with new_folder(path) as draft:
        tokenizer = tokenizer_of(task)
        if tokenizer is not None:
            for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
                for target in (config, exported.generation_config):
                    setattr(target, name, getattr(tokenizer, name))
            tokenizer.save_pretrained(draft)
        exported.save_pretrained(draft)
        origin = {"run": run.key, "label": run.label, "config": run.identity()}
        (draft / "lengthwise.json").write_text(json.dumps(origin, indent=2) + "\n")
        _require_equal_logits(model, draft)
    return tokenizer is not None


def require_exportable(run: Run, task: Task) -> None:
    """Raise `ConfigError` for a run that a causal language model of transformers cannot stand for."""
    label = run.task.label
    if task.vocab_size is None:
        raise ConfigError(
            f"{label} gives a model vectors, and transformers' causal language models take tokens; export a run of a "
            "task with tokens, such as Text or Copy"
        )
    if task.vocab_size != task.output_size:
        raise ConfigError(
            f"a causal language model predicts its input tokens, but {label} has {task.vocab_size} input tokens and "
            f"{task.output_size} output tokens; export a run of another task"
        )
    tokens = torch.zeros(1, 4, dtype=torch.long)
    scheme = position_scheme_for(task, run.training.positions)
    if scheme.positions(tokens, None, torch.Generator(), training=False) is not None:
        name = run.training.positions.label if run.training.positions else type(scheme).__name__
        raise ConfigError(
            f"{name} does not count tokens in tests, as transformers does; export a run with consecutive positions in "
            "tests"
        )


@torch.no_grad()
def _require_equal_logits(model: Model, folder: Path) -> None:
    """Load what was written, and compare its logits with those of the trained model."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    vocab_size = loaded.config.vocab_size
    tokens = min(CHECKED_TOKENS, model.max_length or CHECKED_TOKENS)
    x = torch.randint(vocab_size, (2, tokens), generator=torch.Generator().manual_seed(0))
    was_training = model.training
    device = next(model.parameters()).device
    ours = model.eval()(x.to(device)).cpu()
    model.train(was_training)
    theirs = loaded(x, use_cache=False).logits
    if not torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5):
        raise RuntimeError(
            "the exported model gives other logits than the trained one (largest difference "
            f"{(ours - theirs).abs().max():.2g}); "
            "please report it"
        )
