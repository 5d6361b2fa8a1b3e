"""Absolute encodings, which a model of transformers adds to the embeddings of its tokens."""

import inspect
from typing import Any, cast

import torch
from torch import nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import embedded
from lengthwise.huggingface.attention import NO_POSITION_IDS, count_shown
from lengthwise.transformers_versions import cache_of


def current_module(module: nn.Module) -> PositionEncoding:
    """Return an encoding, or the trained copy of it that peft keeps for an adapter (`modules_to_save`)."""
    if isinstance(module, PositionEncoding):
        return module
    wrapper = cast(Any, module)
    if wrapper.disable_adapters or not wrapper.active_adapters:
        return cast(PositionEncoding, wrapper.original_module)
    (name,) = wrapper.active_adapters
    return cast(PositionEncoding, wrapper.modules_to_save[name])


def add_positions(decoder: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A hook before a decoder that adds the encoding to its embeddings, which it computes if they are not passed."""
    if arguments:
        options = {**inspect.signature(decoder.forward).bind_partial(*arguments).arguments, **options}
    tokens, embeddings = options.get("input_ids"), options.get("inputs_embeds")
    if (tokens is None) == (embeddings is None):
        return (), options  # the decoder raises an error
    if embeddings is None:
        embeddings = decoder.get_input_embeddings()(tokens)
    positions = options.get("position_ids")
    if positions is None:
        cache = cache_of(options)
        past = 0 if cache is None else cache.get_seq_length()
        positions = torch.arange(past, past + embeddings.shape[1], device=embeddings.device)[None]
        mask = options.get("attention_mask")
        if mask is not None and decoder.config.model_type in NO_POSITION_IDS:
            positions = count_shown(mask)[:, -embeddings.shape[1] :]
    encoding = current_module(decoder.position_encodings[0])
    return (), {**options, "input_ids": None, "inputs_embeds": embedded(encoding, embeddings, positions)}
