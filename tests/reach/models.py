"""Models for the tests of `lengthwise reach`: tiny ones with random weights, and one whose answers are known."""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutputWithPast

from lengthwise.evaluation.pretrained import Pretrained
from lengthwise.reach.loading import load_folder
from tests.evaluation.pretrained_folder import make

WORDS = "the of and to in that it was his with as for had you not be her on at by which have or from this him"


def prose(words: int, seed: int = 0) -> str:
    generator = torch.Generator().manual_seed(seed)
    known = WORDS.split()
    drawn = torch.randint(len(known), (words,), generator=generator).tolist()
    return " ".join(known[n] for n in drawn)


def folder(path: Path, kind: str = "llama", layers: int = 2) -> Path:
    """A tiny model with random weights that are large enough for its logits to differ."""
    path.mkdir(exist_ok=True)
    make(path, kind, layers)
    from safetensors.torch import load_file, save_file

    torch.manual_seed(1)
    weights = load_file(path / "model.safetensors")
    changed = {k: v * 8 if v.ndim > 1 else v for k, v in weights.items()}
    save_file(changed, path / "model.safetensors", metadata={"format": "pt"})
    return path


class Remembering(LlamaForCausalLM):
    """A model that has seen the last `reach` tokens, and continues the text as it continued where its last tokens stood
    before.

    It finds the longest earlier occurrence of the last tokens, as a perfect copying model would. Its KV cache contains
    the token IDs.
    """

    reach = 1 << 30
    calls = 0

    def forward(self, input_ids: Any, past_key_values: Any = None, logits_to_keep: Any = 0, **_: Any) -> Any:
        type(self).calls += 1
        states = input_ids[:, None, :, None].double()
        seen = (
            input_ids[0] if past_key_values is None else past_key_values.update(states, states, 0)[0].flatten().long()
        )
        rows = torch.arange(input_ids.shape[1])
        rows = rows[-logits_to_keep:] if isinstance(logits_to_keep, int) else rows[logits_to_keep]
        logits = torch.zeros(1, len(rows), self.config.vocab_size)
        text = seen.tolist()
        for n, row in enumerate(rows.tolist()):
            end = len(text) - input_ids.shape[1] + row + 1
            token = continuation(text[max(0, end - self.reach) : end])
            if token is not None:
                logits[0, n, token] = 20.0
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)


def continuation(text: list[int]) -> int | None:
    """The token after the earlier place that has the most tokens in common with the end of the text."""
    best, found = 0, None
    for place in range(len(text) - 1, 0, -1):
        common = 0
        while common < place and text[place - 1 - common] == text[-1 - common]:
            common += 1
        if common > best:
            best, found = common, text[place]
    return found


def remembering(path: Path, reach: int) -> Pretrained:
    """A model with that reach, and a tokenizer of bytes."""
    found = load_folder(str(folder(path)), "cpu", "float32")
    found.model.__class__ = type("Remembering", (Remembering,), {"reach": reach, "calls": 0})
    return found
