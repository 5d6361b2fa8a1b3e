"""Tokenizers: what turns documents into tokens. One file per kind, one line per kind in the list below."""

from lengthwise.corpora.tokenizers.base import Tokenizer
from lengthwise.corpora.tokenizers.byte import ByteTokenizer
from lengthwise.corpora.tokenizers.file import FileTokenizer
from lengthwise.corpora.tokenizers.trained import FORM, train, trained_size
from lengthwise.values import ConfigError, near_miss

TOKENIZERS: tuple[type[Tokenizer], ...] = (ByteTokenizer, FileTokenizer)  # the first one that knows a name opens it


def open_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a name: "bytes", a file tokenizer.json, or a folder that contains one.

    Raise `ConfigError` for any other name, and for a file that is not a tokenizer. The name "bpe:SIZE" stands for a
    tokenizer that is trained on a corpus, so it cannot be opened (see `train`).
    """
    if trained_size(name) is not None:
        raise ConfigError(
            f"the tokenizer {name} is trained on a corpus; prepare one with lengthwise tokenize, and give its folder"
        )
    for kind in TOKENIZERS:
        if kind.knows(name):
            return kind.open(name)
    forms = [*(kind.form for kind in TOKENIZERS), FORM]
    raise ConfigError(f"there is no tokenizer {name!r}{near_miss(name, forms)}; it must be one of: {', '.join(forms)}")


__all__ = ["TOKENIZERS", "ByteTokenizer", "FileTokenizer", "Tokenizer", "open_tokenizer", "train", "trained_size"]
