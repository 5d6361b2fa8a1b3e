"""Absolute encodings, which a model of transformers adds to the embeddings of its tokens."""

import threading
from typing import Any, cast

import torch
from torch import Tensor, nn

from lengthwise.encodings.base import PositionEncoding
from lengthwise.encodings.contract import embedded


def current_module(module: nn.Module) -> PositionEncoding:
    """Return an encoding, or the trained copy of it that peft keeps for an adapter (`modules_to_save`)."""
    if isinstance(module, PositionEncoding):
        return module
    wrapper = cast(Any, module)
    if wrapper.disable_adapters or not wrapper.active_adapters:
        return cast(PositionEncoding, wrapper.original_module)
    (name,) = wrapper.active_adapters
    return cast(PositionEncoding, wrapper.modules_to_save[name])


class PositionsOfEmbeddings:
    """Two hooks: one before a decoder notes the position IDs of a call, and one after its token embeddings adds the encoding.

    It is an object and no closure, so that a deep copy of the model has hooks with its own encoding. Each thread has its own
    position IDs.
    """

    def __init__(self, modules: nn.ModuleList):
        self.modules = modules
        self._call = threading.local()

    def register(self, decoder: Any) -> list[Any]:
        """Add both hooks, and return their handles."""
        return [
            decoder.register_forward_pre_hook(self.note, with_kwargs=True),
            decoder.get_input_embeddings().register_forward_hook(self.add),
        ]

    def note(self, decoder: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        cache, positions = options.get("past_key_values"), options.get("position_ids")
        if positions is None and cache is not None and (past := cache.get_seq_length()):
            positions = torch.tensor([[past]])
        self._call.positions = positions

    def add(self, module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        positions = getattr(self._call, "positions", None)
        if positions is None or positions.shape[1] != output.shape[1]:
            start = 0 if positions is None else int(positions[0, 0])
            positions = torch.arange(start, start + output.shape[1])[None]
        return embedded(current_module(self.modules[0]), output, positions.to(output.device))

    def __getstate__(self) -> nn.ModuleList:
        return self.modules

    def __setstate__(self, modules: nn.ModuleList) -> None:
        self.__init__(modules)  # type: ignore[misc]
