"""How the models of Hugging Face transformers are called, and what their configurations share."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

from lengthwise.conformance.outside.implementation import SHAPE, VOCABULARY, Implementation, Model, NotApplicable

transformers.logging.set_verbosity_error()


class CausalModel(Model):
    """A model with the interface of `AutoModelForCausalLM`. `positions`: whether it takes position IDs."""

    def __init__(self, model: Any, *, positions: bool = True):
        self.model, self.positions = model.eval(), positions

    @torch.no_grad()
    def forward(self, tokens: Tensor) -> Tensor:
        return self.model(tokens, use_cache=False).logits

    @torch.no_grad()
    def decode(self, tokens: Tensor, prompt: int) -> Tensor:
        output = self.model(tokens[:, :prompt], use_cache=True)
        logits = [output.logits]
        for n in range(prompt, tokens.shape[1]):
            output = self.model(tokens[:, n : n + 1], past_key_values=output.past_key_values, use_cache=True)
            logits.append(output.logits)
        return torch.cat(logits, 1)

    @torch.no_grad()
    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        mask = (torch.arange(tokens.shape[1]) >= torch.tensor(padding)[:, None]).long()
        options = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if self.positions else {}  # as in generate()
        return self.model(tokens, attention_mask=mask, use_cache=False, **options).logits

    @torch.no_grad()
    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        if not self.positions:
            raise NotApplicable("it takes no position IDs, so a row is one document")
        positions = torch.cat([torch.arange(n) for n in lengths])[None]
        return self.model(tokens, position_ids=positions, use_cache=False).logits

    @torch.no_grad()
    def packed_as_called(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        if not self.positions:
            raise NotApplicable("it takes no position IDs, so a row is one document")
        return self.model(tokens, position_ids=torch.cat([torch.arange(n) for n in lengths])[None]).logits


class TransformersImplementation(Implementation):
    library = "transformers"


def config_arguments(shape: dict[str, Any]) -> dict[str, Any]:
    """Return `shape` and the arguments of all configurations.

    With this `initializer_range`, attention is neither uniform nor on a single key.
    """
    return {"vocab_size": VOCABULARY, "initializer_range": SHAPE["d_model"] ** -0.5, "bos_token_id": 0, "eos_token_id": 0,
            "pad_token_id": 0, **shape}  # fmt: skip
