"""The interface of tokenizers."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from lengthwise.values import ConfigError

TokenArray = NDArray[np.unsignedinteger]


class Tokenizer(ABC):
    """A function from documents to token IDs.

    `name`: for messages. `sha256`: identifies what the tokenizer computes; two tokenizers with the same hash give the
    same tokens.

    `bos`: the ID that stands before the first token of a sequence. It is the tokenizer's own one if it has one, and
    otherwise the number after its last token. `encode` never returns it. `eos`: the tokenizer's ID for the end of a
    sequence, or None if it has none; then `bos` can mark a boundary, as the only special token of GPT-2 does.

    `vocab_size`: the number of IDs 0, 1, ..., with `bos`. It is the smallest size of a model's embedding.
    """

    form: ClassVar[str]  # how users write the name of such a tokenizer
    unit: ClassVar[str] = "tokens"  # what the length of a sequence counts

    any_bytes: ClassVar[bool] = False  # whether documents need not be text

    name: str
    sha256: str
    vocab_size: int
    bos: int
    eos: int | None = None

    @classmethod
    @abstractmethod
    def knows(cls, name: str) -> bool:
        """Return whether the name is that of a tokenizer of this kind."""

    @classmethod
    @abstractmethod
    def open(cls, name: str) -> "Tokenizer":
        """Return the tokenizer of the name. Raise `ConfigError` if there is none, or if it is damaged."""

    @abstractmethod
    def encode(self, documents: Sequence[bytes]) -> list[TokenArray]:
        """Return the tokens of each document, without special tokens; `dtype` is their type.

        Raise `NotText` for a document that is not valid UTF-8, unless the tokenizer takes any bytes.
        """

    @abstractmethod
    def decode(self, tokens: Iterable[int]) -> bytes:
        """Return the text of the tokens. Special tokens appear by their names, such as `<BOS>`."""

    @property
    def target_size(self) -> int:
        """The number of IDs 0, 1, ... that a document can contain: without a `bos` that follows the vocabulary."""
        return self.vocab_size - 1 if self.bos == self.vocab_size - 1 else self.vocab_size

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The smallest type that holds all IDs of documents."""
        return np.dtype(np.min_scalar_type(max(self.target_size - 1, 0))).newbyteorder("<")

    def files(self) -> dict[str, bytes]:
        """Return files, by name, from whose folder `FileTokenizer` opens the same tokenizer again. Empty for bytes."""
        return {}


class NotText(ConfigError):
    """A document that is not valid UTF-8. `index`: which one of the documents."""

    def __init__(self, index: int, error: UnicodeDecodeError):
        super().__init__(
            f"it is not UTF-8 text (byte 0x{error.object[error.start]:02x} at offset {error.start:,}); convert it, "
            "leave it out, or use the tokenizer bytes"
        )
        self.index = index


def decoded(documents: Sequence[bytes]) -> list[str]:
    """Return the documents as strings. Raise `NotText` for the first one that is not valid UTF-8."""
    texts = []
    for index, document in enumerate(documents):
        try:
            texts.append(document.decode())
        except UnicodeDecodeError as error:
            raise NotText(index, error) from None
    return texts
