"""The manifest of a prepared corpus: what its files contain, and how it was prepared."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.corpora.tokenizers.file import CONFIG, FILE
from lengthwise.values import ConfigError, cast

NAME = "manifest.json"
FORMAT = "lengthwise corpus 1"
SPLITS = ("train", "validation")
COUNTS = "unigram.counts"  # how often each token occurs in the training split: int64, little-endian
LENGTH_TYPE = np.dtype("<u4")  # of the lengths of documents
TYPES = ("|u1", "<u2", "<u4")


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

    `target_size`: tokens are below this number. `files`: the SHA-256 of the tokenizer's files. `left_out`: how many documents of
    the source are not in the corpus, by reason.
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
        content = [FORMAT, self.tokenizer_sha256, self.bos, *(self.split(name).documents_sha256 for name in SPLITS)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def split(self, name: str) -> Split:
        return self.train if name == "train" else self.validation_split

    def to_bytes(self) -> bytes:
        data = {"format": FORMAT, "sha256": self.sha256, **asdict(self)}
        return json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"

    def expected(self) -> dict[str, tuple[int, str]]:
        """Return the size in bytes and the SHA-256 of every file whose size is known, by name."""
        size = np.dtype(self.dtype).itemsize
        found = {COUNTS: (8 * self.target_size, self.counts_sha256)}
        for name in SPLITS:
            split = self.split(name)
            found[lengths_file(name)] = LENGTH_TYPE.itemsize * split.documents, split.lengths_sha256
            shards = enumerate(split.shards)
            found |= {shard_file(name, n): (size * shard.tokens, shard.sha256) for n, shard in shards}
        return found


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


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raise `ConfigError`, naming what is wrong, if it is missing or damaged."""
    path = folder / NAME
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"{folder} is not a prepared corpus: {NAME}: {error.strerror or error}; prepare one with lengthwise tokenize"
        ) from error
    except (ValueError, RecursionError):
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise ConfigError(
            f"{path} has the format {found!r}, but this version of lengthwise reads {FORMAT!r}; tokenize again"
        )
    try:
        manifest = _manifest({k: v for k, v in data.items() if k not in ("format", "sha256")})
        _check(manifest)
    except ConfigError as error:
        raise _damaged(path, str(error)) from None
    if data.get("sha256") != manifest.sha256:
        raise _damaged(path, "its sha256 is not that of its content")
    return manifest


def _manifest(data: dict[str, Any]) -> Manifest:
    for name in ("train", "validation_split"):
        split = data.get(name)
        if not isinstance(split, dict) or not isinstance(split.get("shards"), list):
            raise ConfigError(f"{name} must be an object with a list of shards")
        shards = tuple(_typed(Shard, shard) for shard in split["shards"])
        data = data | {name: _typed(Split, {**split, "shards": ()}, shards=shards)}
    return _typed(Manifest, data)


def _typed(make: Any, data: Any, **known: Any) -> Any:
    """Return a dataclass from JSON whose keys and types must be exactly those of its fields."""
    types = {f.name: f.type for f in fields(make)}
    if not isinstance(data, dict) or set(data) != set(types):
        raise ConfigError(f"a {make.__name__.lower()} must have the fields {', '.join(types)}")
    values = {
        name: v if v.__class__ is Split or name in known else cast(v, types[name], name) for name, v in data.items()
    }
    return make(**values | known)


def _check(manifest: Manifest) -> None:
    """Raise `ConfigError` for numbers that contradict each other."""
    if manifest.dtype not in TYPES or manifest.target_size > 1 << 8 * np.dtype(manifest.dtype).itemsize:
        raise ConfigError(f"its type {manifest.dtype!r} does not hold {manifest.target_size} tokens")
    if not 0 < manifest.target_size <= manifest.vocab_size <= 1 << 32 or not 0 <= manifest.bos < manifest.vocab_size:
        raise ConfigError("its sizes do not fit together")
    if not 0 < manifest.validation < 1:
        raise ConfigError(f"its validation must be above 0 and below 1, got {manifest.validation}")
    hashes = [manifest.tokenizer_sha256, manifest.counts_sha256, *manifest.files.values()]
    for name in SPLITS:
        split = manifest.split(name)
        hashes += [split.documents_sha256, split.lengths_sha256, *(shard.sha256 for shard in split.shards)]
        if min(split.documents, split.tokens, *(min(shard.documents, shard.tokens) for shard in split.shards)) < 1:
            raise ConfigError(f"its split {name} has no documents")
        for count in ("documents", "tokens"):
            if sum(getattr(shard, count) for shard in split.shards) != getattr(split, count):
                raise ConfigError(f"the shards of {name} do not have its {count}")
    if not all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes):
        raise ConfigError("a hash is not a SHA-256")
    if not set(manifest.files) <= {FILE, CONFIG}:
        raise ConfigError(f"its files must be {FILE} and {CONFIG}, got {', '.join(manifest.files)}")


def _damaged(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"{path} is damaged: {problem}; restore it, or prepare the corpus again with lengthwise tokenize"
    )
