"""A document of a corpus: a text with its name and its origin."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Document:
    """A text with its name in the corpus. Documents with the same `origin` (one file) are always in the same split.

    An empty origin stands for the text itself: equal texts are in the same split.
    """

    name: str
    origin: str
    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()
