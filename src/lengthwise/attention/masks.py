"""Who sees whom: by index and document, never by position."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lengthwise.values import ConfigError


@dataclass(frozen=True)
class Mask:
    """Queries are the last `queries` of the `keys`. Causal: a query sees keys up to its own index.

    `documents` (of the keys): a token sees its own document alone. Padding is just a document of its own (say -1), so
    that nobody sees it and its rows still have something to see.

    `window`: a query sees the `window` last keys alone, itself among them (sliding window); without `causal` as many
    ahead of it too, so that key j is seen from i where |i - j| < window. Of indices, as everything here.
    """

    queries: int
    keys: int
    causal: bool = True
    documents: Int[Tensor, "b j"] | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        if type(self.causal) is not bool:
            raise ConfigError(f"causal is {self.causal!r}; it has to be True or False")
        if self.window is not None and (type(self.window) is not int or not 1 <= self.window < 1 << 62):
            raise ConfigError(
                f"window is {self.window!r}; it has to be a whole number of keys, at least 1 (the query's own), or None for all"
            )

    @property
    def narrow(self) -> bool:
        """The window hides something."""
        return self.window is not None and self.window < self.keys

    @property
    def causal_only(self) -> bool:
        """Nothing but a square causal triangle: kernels have a short way for it."""
        return self.causal and self.documents is None and self.queries == self.keys and not self.narrow

    @property
    def hides_nothing(self) -> bool:
        return self.documents is None and (not self.causal or self.queries == 1) and not self.narrow

    def visible(
        self, device: torch.device, queries: slice = slice(None), keys: slice = slice(None)
    ) -> Bool[Tensor, "b i j"]:
        """For all queries and keys, or some. The batch axis is 1 where all rows see alike."""
        index = torch.arange(self.keys, device=device)
        own, index = index[self.keys - self.queries :][queries], index[keys]
        back = own[:, None] - index
        seen = back >= 0 if self.causal else torch.ones_like(back, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (back < self.window) & (back > -self.window)
        if self.documents is None:
            return seen[None]
        documents = self.documents.to(device)
        return seen & (documents[:, own, None] == documents[:, None, index])
