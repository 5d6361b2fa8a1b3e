"""Tokenizers: what turns documents into tokens. One file per kind, one line per kind in the list below."""

from lengthwise.corpora.tokenizers.base import Tokenizer
from lengthwise.corpora.tokenizers.byte import ByteTokenizer
from lengthwise.corpora.tokenizers.file import FileTokenizer
from lengthwise.values import ConfigError, near_miss

TOKENIZERS: tuple[type[Tokenizer], ...] = (ByteTokenizer, FileTokenizer)  # the first one that knows a name opens it


def open_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a name: "bytes", a file tokenizer.json, or a folder that contains one.

    Raise `ConfigError` for any other name, and for a file that is not a tokenizer.
    """
    for kind in TOKENIZERS:
        if kind.knows(name):
            return kind.open(name)
    forms = ", ".join(kind.form for kind in TOKENIZERS)
    hint = near_miss(name, [kind.form for kind in TOKENIZERS])
    raise ConfigError(f"there is no tokenizer {name!r}{hint}; it must be one of: {forms}")


__all__ = ["TOKENIZERS", "ByteTokenizer", "FileTokenizer", "Tokenizer", "open_tokenizer"]
