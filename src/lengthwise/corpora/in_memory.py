"""Text in memory: a file, a folder, or Python's standard library. It is split by file and identified by a hash."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from lengthwise.corpora import stdlib
from lengthwise.corpora.documents import Document
from lengthwise.corpora.sources import formats
from lengthwise.corpora.sources.base import Invalid, SourceOptions
from lengthwise.corpora.sources.compression import SUFFIXES
from lengthwise.corpora.sources.listing import list_files, reason, signature
from lengthwise.values import ConfigError

MAX_BYTES = 4 << 30  # a corpus is held in memory
RECORDS = (".jsonl", ".ndjson", ".parquet", *SUFFIXES)  # of the names of files whose bytes are not the text itself


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order, without empty or duplicate ones.

    `name`: the file, folder or built-in text. `python`: the Python version that built-in text comes from.
    """

    name: str
    documents: tuple[Document, ...] = field(repr=False)
    python: str | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of the documents' names and bytes in order. The name of a single document does not count."""
        sha = hashlib.sha256()
        for document in self.documents:
            name = document.name.encode("utf-8", "surrogateescape") if len(self.documents) > 1 else b""
            sha.update(len(name).to_bytes(8, "big") + name + document.digest)
        return sha.hexdigest()

    @cached_property
    def size(self) -> int:
        return sum(len(document.data) for document in self.documents)

    def split(self, validation: float) -> tuple[list[bytes], list[bytes]]:
        """Return (training, validation) documents. No file is in both, and both have at least one byte.

        Files are held out in the order of the SHA-256 of their origin until they contain the share `validation` of all
        bytes. A file that would raise it above 1.5 times this share stays in training. If no file fits, the smallest is
        held out. The only file of a corpus is cut: its tail is for validation, starting after a line break if there is
        one nearby.
        """
        sizes: dict[str, int] = {}
        for document in self.documents:
            sizes[document.origin] = sizes.get(document.origin, 0) + len(document.data)
        if len(sizes) == 1:
            cuts = [(document.data, _cut(document.data, validation)) for document in self.documents]
            return [data[:cut] for data, cut in cuts], [data[cut:] for data, cut in cuts]
        target_bytes, held_bytes = validation * self.size, 0
        held_out: set[str] = set()
        for origin in sorted(sizes, key=_hash):
            fits = held_bytes + sizes[origin] <= 1.5 * target_bytes
            if held_bytes < target_bytes and fits and len(held_out) < len(sizes) - 1:
                held_out.add(origin)
                held_bytes += sizes[origin]
        held_out = held_out or {min(sizes, key=lambda origin: (sizes[origin], _hash(origin)))}
        return (
            [document.data for document in self.documents if document.origin not in held_out],
            [document.data for document in self.documents if document.origin in held_out],
        )


def remove_duplicates(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Remove empty documents and those with the same bytes as an earlier one, so that no document is in both splits."""
    by_digest: dict[bytes, Document] = {}
    for document in documents:
        if document.data:
            by_digest.setdefault(document.digest, document)
    return tuple(by_digest.values())


def _hash(origin: str) -> bytes:
    return hashlib.sha256(origin.encode("utf-8", "surrogateescape")).digest()


def _cut(data: bytes, validation: float) -> int:
    """Return where the tail begins: after a line break in its first half, or else between two characters."""
    point = min(max(round(len(data) * (1 - validation)), 1), len(data) - 1)
    line_break = data.find(b"\n", point, point + (len(data) - point) // 2)
    if line_break >= 0:
        return line_break + 1
    while point < len(data) - 1 and data[point] & 0xC0 == 0x80:  # inside a UTF-8 character
        point += 1
    return point


def is_built_in(path: str) -> bool:
    return path == "python" or path.startswith("python:")


def absolute(path: str) -> str:
    """Return the absolute path; the name of a built-in text is returned unchanged."""
    if is_built_in(path):
        stdlib.domains(path)
        return path
    if not path.strip():
        raise ConfigError(f'the text must be a file, a folder, or "python", got {path!r}')
    try:
        return str(Path(path).expanduser().resolve())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot resolve the path {path!r}: {error}") from error


def read(path: str, glob: str) -> Corpus:
    """Return the corpus at `path`: "python", "python:manual", "python:docstrings", "python:source", a file, or a
    folder.

    No encoding is assumed. Files are read again only if their size or modification time has changed. Raises
    `ConfigError`, in one line, for a path that is missing, empty, unreadable or too big, and for a folder in which
    nothing matches `glob`.
    """
    path = absolute(path)
    if is_built_in(path):
        return _built_in(path)
    location = Path(path)
    try:
        if location.is_dir():
            return _read(path, glob, *list_files(location, glob))
        status = location.stat()
        if not location.is_file():
            raise ConfigError(f"the text {path} is neither a file nor a folder; give one of these")
    except FileNotFoundError:
        raise ConfigError(f"there is no text at {path}; give a file or a folder that exists") from None
    except OSError as error:
        raise ConfigError(f"cannot read the text at {path}: {reason(error)}") from error
    return _read(path, "", (location.name,), (signature(status),))


@lru_cache(maxsize=2)  # a study reads the same text many times
def _read(path: str, glob: str, names: tuple[str, ...], signatures: tuple[tuple[int, ...], ...]) -> Corpus:
    size = sum(signature[0] for signature in signatures)
    if size > MAX_BYTES:
        raise ConfigError(
            f"the text at {path} must have at most {MAX_BYTES:,} bytes, got {size:,}; prepare it with lengthwise "
            "tokenize"
        )
    location = Path(path)
    documents: list[Document] = []
    for name in names:
        file = location / name if glob else location
        try:
            if name.lower().endswith(RECORDS):
                documents += _records(file, name)
            else:
                documents.append(Document(name, name, file.read_bytes()))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {reason(error)}; make it readable or choose others") from error
    unique = remove_duplicates(documents)
    if sum(len(document.data) for document in unique) < 2:
        problem = "is empty" if not unique else "has a single byte"
        raise ConfigError(
            f"the text at {path} {problem}, so it cannot be split into training and validation; give more text"
        )
    return Corpus(location.name, unique)


def _records(file: Path, name: str) -> Iterator[Document]:
    """Yield the documents of a file that is compressed or has several of them. Each record is a group of its own."""
    size = 0
    for piece, _ in formats.pieces(file, name, file.stat().st_size, MAX_BYTES):
        for record in formats.read(file, piece, SourceOptions()):
            if isinstance(record, Invalid):
                raise ConfigError(
                    f"{record.name}: {record.problem}; for a corpus with another field, use lengthwise tokenize --field"
                )
            size += len(record.data)
            if size > MAX_BYTES:
                raise ConfigError(
                    f"the text in {file} must have at most {MAX_BYTES:,} bytes; prepare it with lengthwise tokenize"
                )
            yield Document(record.name, record.origin or record.name, record.data)


@lru_cache(maxsize=4)
def _built_in(path: str) -> Corpus:
    version, documents = stdlib.read(stdlib.domains(path))
    return Corpus(path, remove_duplicates(documents), version)
