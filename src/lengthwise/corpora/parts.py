"""Tokenising one part of a source, which is the step that a kill can lose.

A finished part is two files: `KEY.part`, the tokens of its documents and an index of them, and `KEY.json`, which is
written last. The key is a hash of everything that determines the content: the files of the source with their sizes and
modification times, the fields, and the tokenizer. So a part is never used for anything else, and a part whose file has
changed is tokenised again.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.corpora.documents import Document
from lengthwise.corpora.sources import Invalid, Part, Record, Source
from lengthwise.corpora.tokenizers import Tokenizer
from lengthwise.corpora.tokenizers.base import NotText, decoded
from lengthwise.corpora.writing import HashedFile, atomic_file, write_file
from lengthwise.values import ConfigError

VERSION = 1  # of the content of a part
BATCH_BYTES = 1 << 20  # of documents that are encoded at once
BATCH_DOCUMENTS = 1 << 10
INDEX = np.dtype([("digest", "V16"), ("origin", "<u8"), ("tokens", "<u8"), ("bytes", "<u8")])


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all parts have in common. `leave_out_invalid`: count records that cannot be used, and raise no error."""

    source: Source
    tokenizer: Tokenizer
    folder: Path
    leave_out_invalid: bool = False

    def key(self, part: Part) -> str:
        content = [VERSION, self.tokenizer.sha256, self.leave_out_invalid, self.source.state(part)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]

    def is_finished(self, key: str) -> bool:
        return (self.folder / f"{key}.json").exists() and (self.folder / f"{key}.part").exists()

    def tokenize(self, part: Part) -> None:
        """Write the files of a part. Raise `ConfigError` for a record that cannot be used."""
        key = self.key(part)
        with atomic_file(self.folder / f"{key}.part") as file:
            writer = _Writer(file, self.tokenizer)
            for record in valid_records(
                self.source, part, any_bytes=self.tokenizer.any_bytes, leave_out_invalid=self.leave_out_invalid
            ):
                if isinstance(record, Invalid):
                    writer.left_out["invalid"] += 1
                else:
                    writer.add(record)
            writer.flush()
            index = np.concatenate([np.zeros(0, INDEX), *writer.rows])
            file.write(index.tobytes())
        facts = {"documents": len(index), "tokens": writer.tokens, "left_out": dict(sorted(writer.left_out.items()))}
        write_file(self.folder / f"{key}.json", json.dumps(facts).encode())

    def index(self, key: str) -> np.ndarray[Any, Any]:
        """Return the index of a finished part: a row for each document."""
        facts = self._facts(key)
        start = facts["tokens"] * self.tokenizer.dtype.itemsize
        return np.fromfile(self.folder / f"{key}.part", INDEX, facts["documents"], offset=start)

    def left_out(self, key: str) -> Counter[str]:
        """Return how many documents of a finished part were left out, by reason."""
        return Counter(self._facts(key)["left_out"])

    def _facts(self, key: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{key}.json").read_bytes())


def valid_records(source: Source, part: Part, *, any_bytes: bool, leave_out_invalid: bool) -> Iterator[Record]:
    """Yield the records of a part. Documents that are not text are `Invalid`, unless `any_bytes`.

    Raise `ConfigError` for the first invalid record, unless they are to be left out.
    """
    for record in source.read(part):
        if isinstance(record, Document) and not any_bytes:
            try:
                decoded([record.data])
            except NotText as error:
                record = Invalid(record.name, str(error))
        if isinstance(record, Invalid) and not leave_out_invalid:
            raise ConfigError(
                f"{source.name}: {record.name}: {record.problem}; or leave such documents out with --skip-invalid"
            )
        yield record


@dataclass
class _Writer:
    """Encodes documents in batches and writes their tokens."""

    file: HashedFile
    tokenizer: Tokenizer
    rows: list[np.ndarray[Any, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    _batch: list[Document] = field(default_factory=list)
    _size: int = 0

    def add(self, document: Document) -> None:
        if not document.data:
            self.left_out["empty"] += 1
            return
        self._batch.append(document)
        self._size += len(document.data)
        if self._size >= BATCH_BYTES or len(self._batch) >= BATCH_DOCUMENTS:
            self.flush()

    def flush(self) -> None:
        rows = np.zeros(len(self._batch), INDEX)
        encoded = self.tokenizer.encode([document.data for document in self._batch]) if self._batch else []
        for row, document, tokens in zip(rows, self._batch, encoded, strict=True):
            row["digest"] = np.void(hashlib.sha256(document.data).digest()[:16])
            row["origin"] = origin_hash(document)
            row["tokens"], row["bytes"] = len(tokens), len(document.data)
            self.file.write(tokens.tobytes())
            self.tokens += len(tokens)
        self.rows.append(rows)
        self._batch, self._size = [], 0


def origin_hash(document: Document) -> int:
    """Return a number from 0 to 2^64 - 1 that decides the split: from the origin, or from the text if there is none."""
    content = document.origin.encode("utf-8", "surrogateescape") if document.origin else document.data
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
