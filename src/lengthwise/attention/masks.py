"""`Mask`: which keys are visible to each query, by index and document, never by position ID."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lengthwise.span import PairBlock
from lengthwise.values import ConfigError


@dataclass(frozen=True)
class Mask:
    """Which keys are visible to each query. The queries are the last `queries` of the `keys` tokens.

    `causal`: a query attends only to keys at its own index or before it.
    `documents`: the document IDs of the keys; a token attends only to its own document. Padding is a document of its
    own (for example -1), so that no other token attends to it and its own rows of weights are not empty.
    `window`: a query attends only to the last `window` keys, including itself (sliding window). If not `causal`, also
    to as many keys ahead: key j is visible to query i if |i - j| < window. i and j are indices, not position IDs.
    """

    queries: int
    keys: int
    causal: bool = True
    documents: Int[Tensor, "b j"] | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if type(self.causal) is not bool:
            raise ConfigError(f"causal must be True or False, got {self.causal!r}")
        if self.window is not None and (type(self.window) is not int or not 1 <= self.window < 1 << 62):
            raise ConfigError(
                "window must be a whole number of keys, at least 1 (the query's own), or None for all keys, got "
                f"{self.window!r}"
            )

    @property
    def window_hides_keys(self) -> bool:
        """Whether the window is shorter than the keys."""
        return self.window is not None and self.window < self.keys

    @property
    def causal_only(self) -> bool:
        """Whether only a square causal triangle is hidden, for which kernels have a faster path."""
        return self.causal and self.documents is None and self.queries == self.keys and not self.window_hides_keys

    @property
    def hides_nothing(self) -> bool:
        """Whether every key is visible to every query."""
        return self.documents is None and (not self.causal or self.queries == 1) and not self.window_hides_keys

    def query_blocks(self, rows: int) -> Iterator[PairBlock]:
        """Yield blocks of `rows` queries, with the keys that are visible to one of them within one document."""
        offset = self.keys - self.queries
        for start in range(0, self.queries, rows):
            stop = min(self.queries, start + rows)
            first, last = 0, offset + stop if self.causal else self.keys
            if self.window is not None:
                first = max(0, offset + start - self.window + 1)
                last = min(last, offset + stop - 1 + self.window)
            yield PairBlock(queries=slice(start, stop), keys=slice(first, last))

    def visible(
        self, device: torch.device, queries: slice = slice(None), keys: slice = slice(None)
    ) -> Bool[Tensor, "b i j"]:
        """Return whether each key is visible to each query, for all of them or for slices of them.

        The batch axis is 1 if all rows of the batch have the same mask.
        """
        index = torch.arange(self.keys, device=device)
        query_index, key_index = index[self.keys - self.queries :][queries], index[keys]
        offset = query_index[:, None] - key_index
        visible = offset >= 0 if self.causal else torch.ones_like(offset, dtype=torch.bool)
        if self.window is not None:
            visible = visible & (offset < self.window) & (offset > -self.window)
        if self.documents is None:
            return visible[None]
        documents = self.documents.to(device)
        return visible & (documents[:, query_index, None] == documents[:, None, key_index])
