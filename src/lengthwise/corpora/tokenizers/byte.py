"""Bytes as tokens."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from lengthwise.corpora.tokenizers.base import TokenArray, Tokenizer


class ByteTokenizer(Tokenizer):
    """The 256 bytes, and 256 for `bos`. It takes any bytes, whether they are text or not."""

    form = "bytes"
    unit = "bytes"
    any_bytes = True

    name = "bytes"
    sha256 = hashlib.sha256(b"bytes").hexdigest()
    vocab_size = 257
    bos = 256

    @classmethod
    def knows(cls, name: str) -> bool:
        return name == cls.name

    @classmethod
    def open(cls, name: str) -> "ByteTokenizer":
        return cls()

    def encode(self, documents: Sequence[bytes]) -> list[TokenArray]:
        return [np.frombuffer(document, np.uint8) for document in documents]

    def decode(self, tokens: Iterable[int]) -> bytes:
        return b"".join(b"<BOS>" if token == self.bos else bytes([token]) for token in tokens)
