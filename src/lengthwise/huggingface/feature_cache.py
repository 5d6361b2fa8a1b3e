"""Cache layers of transformers that also keep what content-dependent encodings compute from each token."""

from collections.abc import Hashable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.huggingface.attention import Tokens
from lengthwise.huggingface.rotated_keys import input_of
from lengthwise.transformers_versions import cache_of


class Features:
    """Added to the class of a cache layer. `features` [b, all tokens, r]: also of tokens beyond a window."""

    features: Tensor | None = None

    def extend(self, new: Tensor, total: int) -> Tensor:
        """Add the features of the new tokens, and return all of them. `total`: the number of tokens so far."""
        self.features = new if self.features is None else torch.cat([self.features, new], 1)
        if self.features.shape[1] != total:
            raise ConfigError(
                "the cache has tokens that were computed without this encoding of lengthwise; use a new cache"
            )
        return self.features

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        self._select(lambda features: features.index_select(0, beam_idx.to(features.device)))

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)  # type: ignore[misc]
        if tokens_to_remove:
            self._select(lambda features: features[:, : -abs(tokens_to_remove)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        self._select(lambda features: features.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)  # type: ignore[misc]
        self._select(lambda features: features[indices])

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]
        self.features = None

    def _select(self, change: Any) -> None:
        if self.features is not None:
            self.features = change(self.features)


@cache
def _with_features(cls: Any) -> Any:
    return type(f"{cls.__name__}WithFeatures", (Features, cls), {})


def feature_layer(past: Any, layer: int) -> Any:
    """Return the layer of a dynamic cache, which can keep features from now on."""
    while past.layer_class_to_replicate is not None and len(past.layers) <= layer:
        past.layers.append(past.layer_class_to_replicate())  # as its update() does
    cache_layer = past.layers[layer]
    if not isinstance(cache_layer, Features):
        original, cls = cache_layer, _with_features(cast(Hashable, type(cache_layer)))
        past.layers[layer] = cache_layer = object.__new__(cls)
        vars(cache_layer).update(vars(original))
    return cache_layer


def read_input(layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A hook before an attention layer: it passes the layer's input to the attention function."""
    tokens = options.get("attention_mask")
    if not isinstance(tokens, Tokens):
        return None
    cache = cache_of(options)
    past = None if cache is None else feature_layer(cache, int(layer.layer_idx))
    return arguments, {**options, "attention_mask": replace(tokens, x=input_of(arguments, options), past=past)}
