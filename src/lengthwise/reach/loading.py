"""Load the model that `lengthwise reach` measures: a folder of transformers, or a trained run."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from lengthwise.config import ConfigError
from lengthwise.evaluation.pretrained import Pretrained, load
from lengthwise.evaluation.pretrained.transformers_calls import transformers_call
from lengthwise.huggingface import LengthwiseConfig, LengthwiseForCausalLM, ReplacedConfig, ReplacedForCausalLM
from lengthwise.huggingface.description import table_of
from lengthwise.huggingface.export import export
from lengthwise.huggingface.own_encoding import train_length_of
from lengthwise.reach.methods import own_choice
from lengthwise.reach.tasks.base import Chat, Encode
from lengthwise.store import Store, open_folder
from lengthwise.studies.trained_models import load_model

MESSAGE = "THE-MESSAGE"
KEY = re.compile(r"[0-9a-f]{4,16}")
MODEL_TYPES: dict[str, type] = {
    LengthwiseConfig.model_type: LengthwiseForCausalLM,
    ReplacedConfig.model_type: ReplacedForCausalLM,
}


def is_run(path: str) -> bool:
    """Return whether the argument is a run's key and not an existing folder."""
    return KEY.fullmatch(path) is not None and not Path(path).exists()


def load_folder(path: str, device: str, dtype: str) -> Pretrained:
    logging.disable_progress_bar()
    return load(path, device=device, dtype=dtype, further=MODEL_TYPES)


@contextmanager
def loaded_run(store: Store, results: str, key: str, device: str, dtype: str) -> Iterator[tuple[str, Pretrained]]:
    """Yield the name and the model of a trained run, which is exported into a temporary folder."""
    logging.disable_progress_bar()
    row = store.run(key)
    trained = load_model(open_folder(results), row)
    with tempfile.TemporaryDirectory(prefix="lengthwise-") as folder:
        path = Path(folder) / row.key
        if not export(trained.run, trained.model, path):
            raise ConfigError(
                f"the tokens of {row.task} stand for no text, so the run cannot read one; name a run of a task with a "
                "tokenizer, such as Text"
            )
        yield f"{row.label} {row.key[:8]}", load_folder(str(path), device, dtype)


def subject_of(name: str, pretrained: Pretrained) -> dict[str, Any]:
    """Return what identifies the model in a file of results.

    `claimed`: the length of its configuration. `original`: that before its positions were scaled.
    """
    facts, model, claimed = pretrained.description(), pretrained.model, pretrained.max_positions
    choice = own_choice(model) or table_of(model)
    return {
        "name": name,
        **{fact: facts[fact] for fact in ("architecture", "parameters", "sha256")},
        "encoding": "unknown" if choice is None else choice.label,
        "claimed": claimed,
        "original": claimed if claimed is None else min(claimed, train_length_of(model.config)),
    }


def encoder(pretrained: Pretrained) -> tuple[Encode, list[int]]:
    """Return a function that tokenizes a text, and the tokens that the tokenizer puts before every text."""
    encode = partial(pretrained.tokens, special=False)
    plain, whole = encode("a"), pretrained.tokens("a")
    starts = [n for n in range(len(whole) - len(plain) + 1) if plain and whole[n : n + len(plain)] == plain]
    return encode, whole[: starts[0]] if starts else []


def chat_of(pretrained: Pretrained) -> Chat:
    """Return the format of a chat by the tokenizer's template. Raises `ConfigError` without one that can be used."""
    if not getattr(pretrained.tokenizer, "chat_template", None):
        raise ConfigError(
            f"{pretrained.folder}: its tokenizer has no chat template; omit --chat, or name a model that was trained "
            "with one"
        )
    message = [{"role": "user", "content": MESSAGE}]
    with transformers_call(pretrained.folder, "apply its chat template", advice="correct it, or omit --chat"):
        text = pretrained.tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        before, after = text.split(MESSAGE)
    return Chat(before=before, after=after)
