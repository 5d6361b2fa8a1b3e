"""Documents: the texts of a corpus, each with its name and its origin."""

import hashlib
from collections.abc import Iterable
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


def remove_duplicates(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Remove empty documents and those with the same bytes as an earlier one, so that no document is in both splits."""
    by_digest: dict[bytes, Document] = {}
    for document in documents:
        if document.data:
            by_digest.setdefault(document.digest, document)
    return tuple(by_digest.values())
