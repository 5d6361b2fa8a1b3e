"""Caches of encodings that depend on the length of the text: dynamic NTK, dynamic YaRN, LongRoPE.

A cache has unrotated keys, which each step rotates by the newest scale. But keys and values of all layers after the
first come from states that were computed with the scale of their time. When the scale changes, they are outdated, and
steps would differ from one forward pass. `generate` then computes all tokens again, as that of Phi-3 in transformers
does. Other calls are refused, because they do not have the earlier tokens.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lengthwise.config import ConfigError
from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import effective_length_of
from lengthwise.huggingface.attention import Tokens
from lengthwise.huggingface.embedded_positions import current_module
from lengthwise.huggingface.rotated_keys import input_of
from lengthwise.transformers_versions import cache_argument

COMPUTED_AT = "_lengthwise_computed_at"  # of a cache: the number of tokens when its newest entries were computed


def can_be_outdated(encodings_of_layers: Iterable[PositionEncoding]) -> bool:
    """Whether a change of scale makes a cache wrong: a layer before the last one depends on the length."""
    *before_last, _ = encodings_of_layers
    return any(encoding.depends_on_length() for encoding in before_last)


def require_current_cache(layer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A hook before the first attention layer. Raises `ConfigError` if the scale is not that of the cache."""
    name, tokens = cache_argument(options), options.get("attention_mask")
    if name is None or not isinstance(tokens, Tokens):
        return
    cache, count = options[name], tokens.first_key + tokens.keys
    span, _ = tokens.span(True, options.get("position_ids"), input_of(arguments, options).device)
    lengths = torch.tensor([span.length]) if span.length_k is None else span.length_k[:, -1]
    past = count - tokens.queries
    encoding = _with_another_scale(layer._lengthwise.modules, cache, past, count, lengths)
    if encoding is not None:
        raise ConfigError(
            f"{type(encoding).__name__} has another scale at {count} tokens than at "
            f"{getattr(cache, COMPUTED_AT, past)}, so the "
            "cached keys and values are outdated; call the model with all tokens and use_cache=False, or use generate "
            "without prefill_chunk_size, which computes them again"
        )
    setattr(cache, COMPUTED_AT, count)


def prepare_inputs(model: Any, input_ids: Tensor, inputs_embeds: Tensor | None = None, **kwargs: Any) -> Any:
    """Prepare a step of `generate`. This is a model's `prepare_inputs_for_generation`: it leaves an outdated cache out.

    transformers asks for the names of its parameters, of which `inputs_embeds` has to be one.
    """
    name, new = cache_argument(kwargs), kwargs.get("next_sequence_length")
    if name is not None and new is not None:
        cache, count, mask = kwargs[name], input_ids.shape[1], kwargs.get("attention_mask")
        past, modules = cache.get_seq_length(), model.get_decoder().position_encodings
        lengths = torch.tensor([count]) if mask is None else mask.sum(1)
        # Otherwise these are not all tokens: a chunk of the prompt, or those after embeddings of the caller.
        if past + new == count and _with_another_scale(modules, cache, past, count, lengths) is not None:
            kwargs |= {name: None, "next_sequence_length": None}
    return type(model).prepare_inputs_for_generation(model, input_ids, inputs_embeds=inputs_embeds, **kwargs)


def _with_another_scale(modules: Any, cache: Any, past: int, count: int, lengths: Tensor) -> PositionEncoding | None:
    """Return an encoding whose scale differs between the tokens of a cache and now; None if there is none.

    `past`: the number of tokens in the cache. `count`: all tokens now. `lengths` [rows]: those that are no padding.
    """
    if not past:
        return None
    before = lengths - (count - getattr(cache, COMPUTED_AT, past))
    cached = before > 0  # rows of which the cache has more than padding
    for module in modules:
        encoding = current_module(module)
        if encoding.depends_on_length():
            then, now = (effective_length_of(encoding, n) for n in (before.clamp(min=1), lengths))
            if bool(((then != now) & cached).any()):
                return encoding
    return None
