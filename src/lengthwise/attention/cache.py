"""KV cache: keys and values of the tokens so far, for decoding."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.attention.encoding_cache import EncodingCache
from lengthwise.config import ConfigError
from lengthwise.span import all_axes


def require_fitting_cache(layers: Sequence[Tensor | None], num_layers: int, rows: int) -> None:
    """Raise `ConfigError` unless a cache (a tensor for each layer) fits the model and the rows of the batch."""
    if len(layers) != num_layers:
        raise ConfigError(f"the cache must be made for the model's {num_layers} layers, got a cache for {len(layers)}")
    cached_rows = next((len(x) for x in layers if x is not None), rows)
    if cached_rows != rows:
        raise ConfigError(
            f"the input must have the {cached_rows} rows that the cache was filled with, got {rows}; use a new cache "
            "for another batch"
        )


def select_rows(x: Tensor | None, rows: Int[Tensor, " n"]) -> Tensor | None:
    """Return the rows of a cached tensor. A single row stands for all rows."""
    return None if x is None else x[rows.clamp(max=len(x) - 1)]


class KVCache:
    """Keys and values of every layer, in tensors that grow by doubling.

    Keys are stored rotated. Positions and documents are stored once for all layers. A layer with a window of w keys
    stores the last w - 1 to 4 w tokens only, however long the text is.

    Some encodings depend on the current length (dynamic NTK, LongRoPE). When their scale changes, the stored keys are
    outdated: they were computed under the older scale, in upper layers also from inputs that were computed under it.
    Only a new pass over all tokens equals one forward pass. So the cache of such a model also stores the `inputs`, and
    the model empties and refills it when the scale changes (counted by `restarts`).

    `encodings`: the `EncodingCache` for the steps of this text. `capacity`: room of the first tensors, in tokens.
    """

    def __init__(self, num_layers: int, capacity: int = 0):
        self.restarts, self.capacity = 0, capacity
        self.encodings = EncodingCache()
        self._clear(num_layers)

    def _clear(self, num_layers: int) -> None:
        self.keys: list[Tensor | None] = [None] * num_layers
        self.values: list[Tensor | None] = [None] * num_layers
        self._features: list[Tensor | None] = [None] * num_layers
        # How many tokens the buffer of a layer with a window holds, for each of the three lists; they are its first
        # ones.
        self._stored = {name: [0] * num_layers for name in ("keys", "values", "_features")}
        self.inputs: Tensor | None = None
        self.positions: Int[Tensor, "b j"] | None = None
        self.axes: Int[Tensor, "b j axes"] | None = None  # of positions with several axes
        self.documents: Int[Tensor, "b j"] | None = None
        self.length = 0  # tokens stored
        self.first, self.highest = 0, -1  # lowest and highest position stored
        self.consecutive = True  # positions are 0 ... length-1

    def restart(self) -> None:
        """Empty the cache, because all tokens so far are about to be processed again."""
        self.restarts += 1
        self._clear(len(self.keys))

    def require(self, num_layers: int, rows: int, depends_on_length: bool) -> None:
        """Raise `ConfigError` unless this cache fits the model and the number of rows in the batch."""
        require_fitting_cache(self.keys, num_layers, rows)
        if self.length and (self.inputs is not None) != depends_on_length:
            raise ConfigError("the cache was filled by another model; create a KVCache for each model and text")

    def state(self) -> dict[str, Any]:
        """Return the state of the cache, for `restore` after a forward pass that failed."""
        names = ("length", "positions", "axes", "documents", "inputs", "first", "highest", "consecutive", "restarts")
        state = {name: getattr(self, name) for name in names}
        state |= {name: list(getattr(self, name)) for name in self._stored}
        return state | {"_stored": {name: list(counts) for name, counts in self._stored.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        """Return to a state that `state` returned."""
        vars(self).update(state)

    def extend(
        self,
        positions: Int[Tensor, "b t"],
        documents: Int[Tensor, "b t"] | None,
        *,
        axes: Int[Tensor, "b t axes"] | None = None,
        first: int,
        highest: int,
        consecutive: bool,
    ) -> None:
        """Add the positions and documents of one forward pass, before its layers call `update`.

        Tokens without axes get their position on every axis, if other tokens have axes.
        """
        if self.length and (self.documents is None) != (documents is None):
            raise ConfigError("documents must be passed at every step of a cache or at none")
        self.axes = _append_axes(self.axes, self.positions, axes, positions)
        self.positions = _append_tokens(self.positions, positions)
        if documents is not None:
            self.documents = _append_tokens(self.documents, documents)
        self.first = min(self.first, first) if self.length else first
        self.length += positions.shape[1]
        self.highest = max(self.highest, highest)
        self.consecutive = self.consecutive and consecutive

    def remember(self, inputs: Int[Tensor, "b t"] | Float[Tensor, "b t w"]) -> None:
        """Store the inputs, for a new pass over all tokens."""
        self.inputs = inputs if self.inputs is None else torch.cat([self.inputs, inputs], 1)

    def update(
        self, layer: int, k: Float[Tensor, "b g t d"], v: Float[Tensor, "b g t d"], window: int | None = None
    ) -> tuple[Float[Tensor, "b g j d"], Float[Tensor, "b g j d"]]:
        """Store a layer's new keys and values and return all of them so far.

        `window`: the layer's window. Then return only those that a new token sees: the new ones and `window` - 1 more.
        """
        return self._store("keys", layer, k, window), self._store("values", layer, v, window)

    def update_features(
        self, layer: int, features: Float[Tensor, "b t r"], window: int | None = None
    ) -> Float[Tensor, "b j r"]:
        """Store the features of a layer's new tokens and return those of the tokens that `update` would return."""
        return self._store("_features", layer, features, window)

    @property
    def rows(self) -> int:
        """The number of rows of the batch; 0 if the cache is empty."""
        return next((len(x) for x in self.keys if x is not None), 0)

    def select_rows(self, rows: Int[Tensor, " n"]) -> None:
        """Keep the rows of the batch with these indices, in this order. A row may appear several times."""
        for layers in (self.keys, self.values, self._features):
            layers[:] = [select_rows(x, rows) for x in layers]
        for name in ("inputs", "positions", "axes", "documents"):
            setattr(self, name, select_rows(getattr(self, name), rows))

    def _store(self, name: str, layer: int, new: Tensor, window: int | None) -> Tensor:
        """Write the new tokens into a layer's buffer and return all tokens. The token axis is the last but one."""
        buffers: list[Tensor | None] = getattr(self, name)
        if window is not None:
            buffers[layer], self._stored[name][layer], seen = _in_window(
                buffers[layer], self._stored[name][layer], new, window
            )
            return seen
        start = self.length - new.shape[-2]
        buffers[layer] = buffer = _with_capacity(buffers[layer], new, self.length, self.capacity)
        buffer[..., start : self.length, :] = new
        return buffer[..., : self.length, :]


def _append_tokens(old: Tensor | None, new: Tensor) -> Tensor:
    """Concatenate [b|1, t] or [b|1, t, axes] tensors along the tokens; the batch axis becomes the larger of the two."""
    if old is None:
        return new
    rows = max(old.shape[0], new.shape[0])
    return torch.cat([x.expand(rows, *x.shape[1:]) for x in (old, new)], 1)


def _append_axes(
    old: Tensor | None, old_positions: Tensor | None, new: Tensor | None, positions: Tensor
) -> Tensor | None:
    """Return the axes of all tokens, or None if no token has axes."""
    some = old if new is None else new
    if some is None:
        return None
    if old is not None and new is not None and old.shape[2] != new.shape[2]:
        raise ConfigError(f"positions must have the {old.shape[2]} axes of the cached tokens, got {new.shape[2]}")
    if old is None and old_positions is not None:
        old = all_axes(old_positions, some.shape[2])
    return _append_tokens(old, all_axes(positions, some.shape[2]) if new is None else new)


def _in_window(buffer: Tensor | None, stored: int, new: Tensor, window: int) -> tuple[Tensor, int, Tensor]:
    """Return a buffer with the new tokens, the number of its tokens, and all tokens that a new one sees.

    The buffer is written only behind its `stored` tokens, so that a cache can return to an earlier state.
    """
    tokens, before = new.shape[-2], min(stored, window - 1)
    if buffer is not None and stored + tokens <= buffer.shape[-2]:
        buffer[..., stored : stored + tokens, :] = new
        return buffer, stored + tokens, buffer[..., stored - before : stored + tokens, :]
    seen = new if buffer is None or not before else torch.cat([buffer[..., stored - before : stored, :], new], -2)
    last = seen[..., max(0, seen.shape[-2] - window + 1) :, :]
    count = last.shape[-2]
    grown = last.new_empty(*last.shape[:-2], max(16, 1 << (2 * count).bit_length()), last.shape[-1])
    grown[..., :count, :] = last
    return grown, count, seen


def _with_capacity(store: Tensor | None, like: Tensor, length: int, capacity: int) -> Tensor:
    """Return `store`, or a larger copy for at least `length` tokens. The first has room for `capacity`."""
    if store is not None and store.shape[-2] >= length:
        return store
    size = capacity if store is None and capacity >= length else max(16, 1 << (length - 1).bit_length())
    new = like.new_empty(*like.shape[:-2], size, like.shape[-1])
    if store is not None:
        new[..., : store.shape[-2], :] = store
    return new
