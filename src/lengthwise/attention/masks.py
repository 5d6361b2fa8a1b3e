"""Who sees whom: by index and document, never by position."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Queries are the last `queries` of the `keys`. Causal: a query sees keys up to its own index.

    `documents` (of the keys): a token sees its own document alone. Padding is just a document of its own (say -1), so
    that nobody sees it and its rows still have something to see.
    """

    queries: int
    keys: int
    causal: bool = True
    documents: Int[Tensor, "b j"] | None = None

    @property
    def causal_only(self) -> bool:
        """Nothing but a square causal triangle: kernels have a short way for it."""
        return self.causal and self.documents is None and self.queries == self.keys

    @property
    def hides_nothing(self) -> bool:
        return self.documents is None and (not self.causal or self.queries == 1)

    def visible(self, device: torch.device) -> Bool[Tensor, "b i j"]:
        """The batch axis is 1 where all rows see alike."""
        index = torch.arange(self.keys, device=device)
        seen = torch.ones(self.queries, self.keys, dtype=torch.bool, device=device)
        if self.causal:
            seen = index[self.keys - self.queries :, None] >= index
        if self.documents is None:
            return seen[None]
        documents = self.documents.to(device)
        return seen & (documents[:, self.keys - self.queries :, None] == documents[:, None, :])
