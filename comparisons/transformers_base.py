"""How the models of Hugging Face transformers are called, and what their configurations share."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor

from comparisons.implementation import SHAPE, VOCABULARY, Implementation, Model
from lengthwise.conformance.answers import NotApplicable
from lengthwise.transformers_versions import own_cache_name

transformers.logging.set_verbosity_error()


class CausalModel(Model):
    """A model with the interface of `AutoModelForCausalLM`. `positions`: whether it takes position IDs."""

    def __init__(self, model: Any, *, positions: bool = True):
        self.model, self.positions = model.eval(), positions

    def call(self, tokens: Tensor, **options: Any) -> Any:
        return self.model(tokens, **options)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.call(tokens, use_cache=False).logits

    def extend(self, tokens: Tensor, start: int, end: int, cache: Any) -> tuple[Tensor, Any]:
        output = self.call(tokens[:, start:end], **{own_cache_name(): cache}, use_cache=True)
        return output.logits, output[own_cache_name()]

    def padded(self, tokens: Tensor, padding: Sequence[int]) -> Tensor:
        mask = (torch.arange(tokens.shape[1]) >= torch.tensor(padding)[:, None]).long()
        options = {"position_ids": (mask.cumsum(1) - 1).clamp(min=0)} if self.positions else {}  # as in generate()
        return self.call(tokens, attention_mask=mask, use_cache=False, **options).logits

    def packed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        return self.packed_as_called(tokens, lengths, use_cache=False)

    def packed_as_called(self, tokens: Tensor, lengths: Sequence[int], **options: Any) -> Tensor:
        if not self.positions:
            raise NotApplicable("it takes no position IDs, so a row is one document")
        return self.call(tokens, position_ids=torch.cat([torch.arange(n) for n in lengths])[None], **options).logits


class TransformersImplementation(Implementation):
    library = "transformers"


def config_arguments(shape: dict[str, Any]) -> dict[str, Any]:
    """Return `shape` and the arguments of all configurations.

    With this `initializer_range`, attention is neither uniform nor on a single key.
    """
    return {"vocab_size": VOCABULARY, "initializer_range": SHAPE["d_model"] ** -0.5, "bos_token_id": 0,
            "eos_token_id": 0, "pad_token_id": 0, **shape}  # fmt: skip
