"""Keys that are rotated before a cache of transformers stores them, so that no step rotates all of them."""

import copy
from typing import Any

import torch
from torch import Tensor

from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import modifiers_of
from lengthwise.forms import AttentionModifiers, TokenRotation
from lengthwise.huggingface.attention import Tokens
from lengthwise.span import Span
from lengthwise.transformers_versions import cache_argument


def input_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    """Return the input of an attention layer."""
    x: Tensor = options["hidden_states"] if "hidden_states" in options else arguments[0]
    return x


class RotatingCache:
    """Stands for the cache in one call of a layer: it rotates the new keys and stores them."""

    def __init__(self, cache: Any, new_keys: TokenRotation):
        self._cache, self._new_keys = cache, new_keys

    def update(self, key_states: Tensor, *arguments: Any, **options: Any) -> Any:
        return self._cache.update(self._new_keys.rotate_key(key_states), *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def example_modifiers(encoding: PositionEncoding, device: torch.device) -> AttentionModifiers:
    """Return what an encoding does to a single token."""
    if device.type == "meta":  # while transformers loads a model; the forms of an encoding do not depend on its numbers
        encoding = copy.deepcopy(encoding).to_empty(device="cpu")
        for tensor in (*encoding.parameters(), *encoding.buffers()):
            tensor.detach().zero_()
        device = torch.device("cpu")
    with torch.device(device):
        return modifiers_of(encoding, Span.of(1, device=device))


def caches_rotated_keys(encoding: PositionEncoding, device: torch.device) -> bool:
    """Whether cached keys can be rotated: a token's rotation never changes, and nothing reads unrotated keys."""
    if encoding.depends_on_length():
        return False
    return example_modifiers(encoding, device).caches_rotated_keys


def let_the_cache_rotate(layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A hook before an attention layer: the cache rotates the layer's new keys before it stores them."""
    state = layer._lengthwise  # not from a closure, which a copy of the model would share
    name = cache_argument(options)
    tokens = options.get("attention_mask")
    if name is None or not isinstance(tokens, Tokens):
        return None
    x = input_of(arguments, options)
    if state.model_rotation is not None and state.model_rotation.applies(x.shape[1]):
        return None
    tokens = tokens.with_rotated("keys")
    new_keys = tokens.new_keys(state.encoding, options.get("position_ids"), x.device, state.forms)
    return arguments, {**options, name: RotatingCache(options[name], new_keys), "attention_mask": tokens}
