"""KV cache: keys and values of the tokens so far, for decoding."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.config import ConfigError


class KVCache:
    """Grows by doubling. Keys are stored rotated; positions and documents are stored once for all layers.

    What an encoding does may depend on the current length (dynamic NTK, LongRoPE). Then every layer's keys were computed
    under an older scale, those of the upper layers from inputs that were computed under it, and only a new pass over all
    tokens equals one forward. So the cache of such a model also keeps what was read (`inputs`), and the model starts
    it afresh when the scale changes (`restarts` counts that).

    `encodings`: what encodings said, so that a step need not ask them again.
    """

    def __init__(self, num_layers: int):
        self.restarts = 0
        self.encodings = EncodingCache()
        self._clear(num_layers)

    def _clear(self, num_layers: int) -> None:
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers
        self._features: list[Tensor | None] = [None] * num_layers
        self.inputs: Tensor | None = None
        self.positions: Int[Tensor, "b j"] | None = None
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens stored
        self.first, self.furthest = 0, -1  # lowest and highest position stored
        self.consecutive = True  # positions are 0 ... length-1

    def restart(self) -> None:
        """Empty: the tokens so far are about to be read again."""
        self.restarts += 1
        self._clear(len(self._keys))

    def require(self, num_layers: int, rows: int, depends_on_length: bool) -> None:
        """Raise `ConfigError` where this is not the cache of such a model and batch."""
        if len(self._keys) != num_layers:
            raise ConfigError(f"the cache was made for {len(self._keys)} layers, and the model has {num_layers}")
        if not self.length:
            return
        if (self.inputs is not None) != depends_on_length:
            raise ConfigError("the cache was filled by another model; make a KVCache for each model and text")
        held = next((len(keys) for keys in self._keys if keys is not None), rows)
        if held != rows:
            raise ConfigError(
                f"the cache holds {held} rows, and the input has {rows}; go on with the rows that it began with"
            )

    def state(self) -> dict[str, Any]:
        """What `extend` changes, for `back`: a forward pass that fails leaves the cache as it was."""
        names = ("length", "positions", "documents", "inputs", "first", "furthest", "consecutive", "restarts")
        return {name: getattr(self, name) for name in names} | {
            name: list(getattr(self, name)) for name in ("_keys", "_values", "_features")
        }

    def back(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def extend(
        self,
        positions: Int[Tensor, "b t"],
        documents: Int[Tensor, "b t"] | None,
        *,
        first: int,
        furthest: int,
        consecutive: bool,
    ) -> None:
        """Note the tokens of one forward pass, before its layers `update`."""
        if self.length and (self.documents is None) != (documents is None):
            raise ConfigError("the cache began with documents or without: give them at every step or never")
        old_p, old_d = self.positions, self.documents
        if old_p is not None and old_p.shape[0] != positions.shape[0]:
            rows = max(old_p.shape[0], positions.shape[0])
            old_p, positions = old_p.expand(rows, -1), positions.expand(rows, -1)
        self.positions = positions if old_p is None else torch.cat([old_p, positions], 1)
        if documents is not None:
            if old_d is not None and old_d.shape[0] != documents.shape[0]:
                rows = max(old_d.shape[0], documents.shape[0])
                old_d, documents = old_d.expand(rows, -1), documents.expand(rows, -1)
            self.documents = documents if old_d is None else torch.cat([old_d, documents], 1)
        self.first = min(self.first, first) if self.length else first
        self.length += positions.shape[1]
        self.furthest = max(self.furthest, furthest)
        self.consecutive = self.consecutive and consecutive

    def remember(self, inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"]) -> None:
        """Keep what was read, for a pass over all tokens."""
        self.inputs = inputs if self.inputs is None else torch.cat([self.inputs, inputs], 1)

    def update(
        self, layer: int, k: Float[Tensor, "b g t d"], v: Float[Tensor, "b g t d"]
    ) -> tuple[Float[Tensor, "b g j d"], Float[Tensor, "b g j d"]]:
        """Store a layer's new keys and values; returns all of them so far."""
        return self._put(self._keys, layer, k), self._put(self._values, layer, v)

    def keep(self, layer: int, features: Float[Tensor, "b t r"]) -> Float[Tensor, "b j r"]:
        """Store what a content-dependent encoding keeps of a layer's new tokens; returns all of it so far."""
        return self._put(self._features, layer, features)

    def _put(self, store: list[Tensor | None], layer: int, new: Tensor) -> Tensor:
        """Token axis: the last but one."""
        start = self.length - new.shape[-2]
        store[layer] = all_of = _grown(store[layer], new, self.length)
        all_of[..., start : self.length, :] = new
        return all_of[..., : self.length, :]


def _grown(store: Tensor | None, like: Tensor, length: int) -> Tensor:
    if store is not None and store.shape[-2] >= length:
        return store
    size = max(16, 1 << (length - 1).bit_length())
    new = like.new_empty(*like.shape[:-2], size, like.shape[-1])
    if store is not None:
        new[..., : store.shape[-2], :] = store
    return new
