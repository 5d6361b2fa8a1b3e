"""Tokenizers of the package `tokenizers`, which also are those of transformers: a file tokenizer.json."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.corpora.tokenizers.base import TokenArray, Tokenizer, decoded
from lengthwise.values import ConfigError, missing_package

if TYPE_CHECKING:
    import tokenizers

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
PIECE = 1 << 22  # characters of a document that are encoded at once, because tokens take about 100 bytes each meanwhile
# Special tokens that stand for the beginning and the end of a sequence, if no tokenizer_config.json names them.
BOS_NAMES = ("<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>", "[CLS]")
EOS_NAMES = ("</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "[SEP]")


class FileTokenizer(Tokenizer):
    """A tokenizer.json, or a folder with one, as `save_pretrained` of transformers writes it.

    The special tokens `bos` and `eos` are those of tokenizer_config.json in the same folder. Without that file they are
    the special tokens with a usual name, such as `<s>`. A document that contains the name of a special token is split
    like any other text, so that no document can contain a special token. Truncation and padding, which the file may
    declare, are off, and so is a post-processor, which would add special tokens. A document of more than 4 million
    characters is encoded in pieces, cut after a line break if possible, so that memory stays bounded; a token never
    spans a cut.

    Source of the format: https://github.com/huggingface/tokenizers, version 0.23.
    """

    form = "a file tokenizer.json, or a folder that contains one"

    def __init__(self, name: str, content: bytes, config: bytes = b""):
        self.name = name
        self._content, self._config = content, config
        self._tokenizer = _load(name, content)
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values(), default=-1) + 1  # more than there are tokens, if some IDs are unused
        special = {t.content: n for n, t in self._tokenizer.get_added_tokens_decoder().items() if t.special}
        settings = _settings(name, config)
        bos = _special(settings, "bos_token", vocabulary, special, BOS_NAMES)
        self.bos = size if bos is None else bos
        self.eos = _special(settings, "eos_token", vocabulary, special, EOS_NAMES)
        self.vocab_size = size + (bos is None)
        identity = json.dumps([hashlib.sha256(content).hexdigest(), self.bos, self.eos])
        self.sha256 = hashlib.sha256(identity.encode()).hexdigest()

    @classmethod
    def knows(cls, name: str) -> bool:
        return name.endswith(".json") or Path(name).expanduser().exists()

    @classmethod
    def open(cls, name: str) -> "FileTokenizer":
        path = Path(name).expanduser()
        file = path / FILE if path.is_dir() else path
        if path.is_dir() and not file.exists():
            raise ConfigError(
                f"the folder {name} has no {FILE}; save it with transformers' `save_pretrained` of a fast tokenizer"
            )
        content, config = _read(file), b""
        if (file.parent / CONFIG).is_file():
            config = _read(file.parent / CONFIG)
        return cls(path.name if path.name != FILE else f"{path.absolute().parent.name}/{FILE}", content, config)

    def encode(self, documents: Sequence[bytes]) -> list[TokenArray]:
        texts = decoded(documents)
        if all(len(text) <= PIECE for text in texts):
            return self._encode(texts)
        return [np.concatenate([self._encode([piece])[0] for piece in pieces(text, PIECE)]) for text in texts]

    def _encode(self, texts: Sequence[str]) -> list[TokenArray]:
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype) for encoding in encodings]

    def __reduce__(self) -> Any:
        return FileTokenizer, (self.name, self._content, self._config)

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Return the text of the tokens. A token that is a part of a character is shown as U+FFFD."""
        text: list[str] = []
        ids: list[int] = []
        for token in tokens:
            if token == self.bos:
                text += [self._tokenizer.decode(ids, skip_special_tokens=False), "<BOS>"]
                ids = []
            else:
                ids.append(token)
        return "".join([*text, self._tokenizer.decode(ids, skip_special_tokens=False)]).encode()

    def files(self) -> dict[str, bytes]:
        return {FILE: self._content} | ({CONFIG: self._config} if self._config else {})


def pieces(text: str, size: int) -> Iterator[str]:
    """Yield consecutive pieces of at most `size` characters; a piece ends after a line break if there is one in it."""
    start = 0
    while len(text) - start > size:
        stop = text.rfind("\n", start, start + size) + 1 or start + size
        yield text[start:stop]
        start = stop
    yield text[start:]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the tokenizer {file}: {error.strerror or error}; name another file") from error


def _load(name: str, content: bytes) -> "tokenizers.Tokenizer":
    try:
        from tokenizers import Tokenizer as Implementation
    except ImportError as error:
        raise missing_package(f"the tokenizer {name}", "tokenizers", "data", error) from error
    try:
        tokenizer = Implementation.from_buffer(content)
    except Exception as error:  # the package raises this class itself
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(
            f"the tokenizer {name} is not a tokenizer.json of the package tokenizers ({reason}); give one that "
            "`save_pretrained` of a fast tokenizer wrote"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # the name of a special token in a document is ordinary text
    return tokenizer


def _settings(name: str, config: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(config) if config else {}
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise ConfigError(f"the {CONFIG} of the tokenizer {name} is not a JSON object; repair or remove it")
    return settings


def _special(
    settings: dict[str, Any], key: str, vocabulary: dict[str, int], special: dict[str, int], names: Sequence[str]
) -> int | None:
    """Return the ID of a special token, or None if the tokenizer has none."""
    value = settings.get(key)
    if isinstance(value, dict):  # an added token with its properties
        value = value.get("content")
    if isinstance(value, str):
        return vocabulary.get(value)
    return None if key in settings else next((special[n] for n in names if n in special), None)
