"""KV cache: keys and values of the tokens so far, for decoding."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KVCache:
    """Grows by doubling. Keys are stored rotated or not, as the encoding asks (`cache_rotated_keys`); positions and
    documents are stored once for all layers."""

    def __init__(self, num_layers: int):
        self._keys: list[Tensor | None] = [None] * num_layers
        self._values: list[Tensor | None] = [None] * num_layers
        self.positions: Int[Tensor, "b j"] | None = None
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens stored
        self.furthest = -1  # highest position stored
        self.consecutive = True  # positions are 0 ... length-1

    def extend(
        self, positions: Int[Tensor, "b t"], documents: Int[Tensor, "b t"] | None, *, furthest: int, consecutive: bool
    ) -> None:
        """Note the tokens of one forward pass, before its layers `update`."""
        if self.length and (self.documents is None) != (documents is None):
            raise ValueError("the cache began with documents or without: give them at every step or never")
        old_p, old_d = self.positions, self.documents
        if old_p is not None and old_p.shape[0] != positions.shape[0]:
            rows = max(old_p.shape[0], positions.shape[0])
            old_p, positions = old_p.expand(rows, -1), positions.expand(rows, -1)
        self.positions = positions if old_p is None else torch.cat([old_p, positions], 1)
        if documents is not None:
            self.documents = documents if old_d is None else torch.cat([old_d, documents], 1)
        self.length += positions.shape[1]
        self.furthest = max(self.furthest, furthest)
        self.consecutive = self.consecutive and consecutive

    def update(
        self, layer: int, k: Float[Tensor, "b g t d"], v: Float[Tensor, "b g t d"]
    ) -> tuple[Float[Tensor, "b g j d"], Float[Tensor, "b g j d"]]:
        """Store a layer's new keys and values; returns all of them so far."""
        start = self.length - k.shape[2]
        self._keys[layer] = keys = _grown(self._keys[layer], k, self.length)
        self._values[layer] = values = _grown(self._values[layer], v, self.length)
        keys[:, :, start : self.length], values[:, :, start : self.length] = k, v
        return keys[:, :, : self.length], values[:, :, : self.length]


def _grown(store: Tensor | None, like: Tensor, length: int) -> Tensor:
    if store is not None and store.shape[2] >= length:
        return store
    size = max(16, 1 << (length - 1).bit_length())
    new = like.new_empty(*like.shape[:2], size, like.shape[3])
    if store is not None:
        new[:, :, : store.shape[2]] = store
    return new
