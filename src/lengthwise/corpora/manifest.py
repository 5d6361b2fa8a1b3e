"""The manifest of a prepared corpus: what its files contain, and how it was prepared."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.values import ConfigError

NAME = "manifest.json"
FORMAT = "lengthwise corpus 2"
IDENTITY = "lengthwise corpus 1"  # part of the hash of a corpus, which does not depend on the format of the manifest
SPLITS = ("train", "validation")
COUNTS = "unigram.counts"  # how often each token occurs in the training split: int64, little-endian
LENGTH_TYPE = np.dtype("<u4")  # of the lengths of documents


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A file of tokens: the documents of a range, without anything between them. A document is never in two shards."""

    documents: int
    tokens: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Split:
    """The documents of one split. `documents_sha256`: the hash of the hashes of their texts, in order."""

    documents: int
    tokens: int
    bytes: int
    documents_sha256: str
    lengths_sha256: str
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A prepared corpus. It contains no path and no date, so that the same preparation writes the same bytes.

    `target_size`: tokens are below this number. `files`: the SHA-256 of the tokenizer's files. `left_out`: how many
    documents of the source are not in the corpus, by reason.
    """

    tokenizer: str
    tokenizer_sha256: str
    unit: str
    dtype: str
    vocab_size: int
    target_size: int
    bos: int
    eos: int | None
    validation: float
    train: Split
    validation_split: Split
    counts_sha256: str
    files: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    @cached_property
    def sha256(self) -> str:
        """The identity of the corpus: its tokenizer and its documents, in order, with their splits.

        It does not depend on where the corpus lies, on the size of shards, or on how many workers prepared it.
        """
        content = [IDENTITY, self.tokenizer_sha256, self.bos, *(self.split(name).documents_sha256 for name in SPLITS)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def split(self, name: str) -> Split:
        return self.train if name == "train" else self.validation_split

    def to_bytes(self) -> bytes:
        content = asdict(self)
        data = {"format": FORMAT, "sha256": self.sha256, "checksum": checksum(content), **content}
        return json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"

    def expected(self) -> dict[str, tuple[int, str]]:
        """Return the size in bytes and the SHA-256 of every file whose size is known, by name."""
        size = np.dtype(self.dtype).itemsize
        files = {COUNTS: (8 * self.target_size, self.counts_sha256)}
        for name in SPLITS:
            split = self.split(name)
            files[lengths_file(name)] = LENGTH_TYPE.itemsize * split.documents, split.lengths_sha256
            shards = enumerate(split.shards)
            files |= {shard_file(name, n): (size * shard.tokens, shard.sha256) for n, shard in shards}
        return files


def shard_file(split: str, number: int) -> str:
    """Return the name of a shard. Names are never read from a manifest, which somebody else may have written."""
    return f"{split}-{number:05}.tokens"


def lengths_file(split: str) -> str:
    return f"{split}.lengths"


def is_prepared(folder: Path) -> bool:
    """Return whether a folder contains the manifest of a prepared corpus, whatever its version or condition."""
    try:
        with open(folder / NAME, "rb") as file:
            return b'"format": "lengthwise corpus' in file.read(100)
    except OSError:
        return False


def checksum(content: dict[str, Any]) -> str:
    """Return the hash of a manifest's content, which shows whether the file is as it was written."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raise `ConfigError`, naming what is wrong, if it is missing or damaged."""
    path = folder / NAME
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{folder} is not a prepared corpus: {NAME}: {error.strerror or error}; prepare one with lengthwise "
            "tokenize"
        ) from error
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    format_name = data.get("format") if isinstance(data, dict) else None
    if format_name != FORMAT:
        raise ConfigError(
            f"{path} has the format {format_name!r}, but this version of lengthwise reads {FORMAT!r}; tokenize again"
        )
    content = {name: value for name, value in data.items() if name not in ("format", "sha256", "checksum")}
    if data.get("checksum") != checksum(content):
        raise _damaged(path, "its checksum is not that of its content")
    for name in ("train", "validation_split"):
        split = content[name]
        content[name] = Split(**{**split, "shards": tuple(Shard(**shard) for shard in split["shards"])})
    return Manifest(**content)


def _damaged(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{path} is damaged: {problem}; restore it, or prepare the corpus again with lengthwise tokenize"
    )
