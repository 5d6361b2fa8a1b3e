"""Text as documents: a file, a folder, or Python's standard library; read whole, split by file, pinned by a hash."""

import hashlib
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from lengthwise.config import ConfigError
from lengthwise.tasks import stdlib

MOST_BYTES = 4 << 30  # a corpus is kept in memory
MOST_FILES = 1_000_000


@dataclass(frozen=True)
class Document:
    """`name` within the corpus; `origin` is what the split goes by: documents made from one file share it."""

    name: str
    origin: str
    data: bytes = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order, no two with the same bytes and none empty.

    `name` says where it is from; `python` is the version that built-in text belongs to.
    """

    name: str
    documents: tuple[Document, ...] = field(repr=False)
    python: str | None = None

    @cached_property
    def sha256(self) -> str:
        """The hash of the documents' names and bytes in order. A single document's name does not count."""
        whole = hashlib.sha256()
        for document in self.documents:
            name = document.name.encode("utf-8", "surrogateescape") if len(self.documents) > 1 else b""
            whole.update(len(name).to_bytes(8, "big") + name + document.digest)
        return whole.hexdigest()

    @cached_property
    def size(self) -> int:
        return sum(len(document.data) for document in self.documents)

    def split(self, validation: float) -> tuple[list[bytes], list[bytes]]:
        """(training, validation) documents: no file is in both, and both have at least one byte.

        Files are held out in the order of the SHA-256 of their origin until they have that share of all bytes; one that
        would make it more than half as much again stays in training. Where none fits, the smallest is held out. The
        only file of a corpus is cut: its tail, from a line break on if there is one near, is validation.
        """
        sizes: dict[str, int] = {}
        for document in self.documents:
            sizes[document.origin] = sizes.get(document.origin, 0) + len(document.data)
        if len(sizes) == 1:
            cuts = [(document.data, _cut(document.data, validation)) for document in self.documents]
            return [data[:cut] for data, cut in cuts], [data[cut:] for data, cut in cuts]
        wanted, held = validation * self.size, 0
        chosen: set[str] = set()
        for origin in sorted(sizes, key=_place):
            if held < wanted and held + sizes[origin] <= 1.5 * wanted and len(chosen) < len(sizes) - 1:
                chosen.add(origin)
                held += sizes[origin]
        chosen = chosen or {min(sizes, key=lambda origin: (sizes[origin], _place(origin)))}
        return (
            [document.data for document in self.documents if document.origin not in chosen],
            [document.data for document in self.documents if document.origin in chosen],
        )


def _place(origin: str) -> bytes:
    return hashlib.sha256(origin.encode("utf-8", "surrogateescape")).digest()


def _cut(data: bytes, validation: float) -> int:
    """Where the tail begins: after the first line break in the first half of the tail, else between two characters."""
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
    """The path written out in full; a built-in corpus' name stays as it is."""
    if is_built_in(path):
        stdlib.domains(path)
        return path
    if not path.strip() or "\0" in path:
        raise ConfigError(f'the text is {path!r}, which is no path; give a file, a folder, or "python"')
    try:
        return str(Path(path).expanduser().resolve())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot make sense of the path {path!r}: {error}") from error


def read(path: str, glob: str) -> Corpus:
    """The corpus at `path`: "python", "python:manual", "python:docstrings", "python:source", a file, or a folder.

    Bytes are bytes: no encoding is assumed. Read again only when a file's size or time has changed. `ConfigError` in
    one line for a path that is missing, empty, unreadable, too big, or a folder where nothing matches `glob`.
    """
    path = absolute(path)
    if is_built_in(path):
        return _built_in(path)
    where = Path(path)
    try:
        if where.is_dir():
            return _read(path, glob, *_listing(where, glob))
        status = where.stat()
        if not where.is_file():
            raise ConfigError(f"the text {path} is neither a file nor a folder; give one of these")
    except FileNotFoundError:
        raise ConfigError(f"there is no text at {path}; give a file or a folder that exists") from None
    except OSError as error:
        raise ConfigError(f"cannot read the text at {path}: {_why(error)}") from error
    return _read(path, "", (where.name,), (_signature(status),))


def _listing(folder: Path, glob: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Relative names of the files that match, sorted, with what tells a changed file. Hidden ones do not count."""
    try:
        found = {}
        for file in folder.glob(glob):
            name = file.relative_to(folder).as_posix()
            if not any(part.startswith(".") for part in name.split("/")) and file.is_file():
                found[name] = _signature(file.stat())
    except (ValueError, NotImplementedError, IndexError) as error:
        raise ConfigError(f"the glob {glob!r} is of no use in {folder}: {error}; write one like '**/*.txt'") from error
    except OSError as error:
        raise ConfigError(f"cannot read the folder {folder}: {_why(error)}; make it readable") from error
    if "**" in glob or not found:
        _require_readable(folder, glob)
    if not found:
        raise ConfigError(
            f"no file in {folder} matches {glob!r} (hidden ones do not count); change the glob or the folder"
        )
    if len(found) > MOST_FILES:
        raise ConfigError(f"{folder} has {len(found)} files that match {glob!r}, more than {MOST_FILES}; narrow it")
    names = tuple(sorted(found))
    return names, tuple(found[name] for name in names)


def _require_readable(folder: Path, glob: str) -> None:
    """A glob passes over folders that it may not enter, and the text would be another one than is meant."""
    named = itertools.takewhile(lambda part: not set(part) & set("*?["), Path(glob).parts[:-1])
    top = folder.joinpath(*named)

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return
        raise ConfigError(
            f"cannot read the folder {error.filename}: {_why(error)}; make it readable or choose others"
        ) from error

    for _, folders, _ in os.walk(top, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]


def _signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


@lru_cache(maxsize=2)  # a study asks for the same text many times
def _read(path: str, glob: str, names: tuple[str, ...], signatures: tuple[tuple[int, ...], ...]) -> Corpus:
    size = sum(signature[0] for signature in signatures)
    if size > MOST_BYTES:
        raise ConfigError(
            f"the text at {path} has {size:,} bytes, more than the {MOST_BYTES:,} that fit; use a part of it"
        )
    where = Path(path)
    documents = []
    for name in names:
        file = where / name if glob else where
        try:
            documents.append(Document(name, name, file.read_bytes()))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {_why(error)}; make it readable or choose others") from error
    kept = distinct(documents)
    if sum(len(document.data) for document in kept) < 2:
        what = "is empty" if not kept else "has a single byte"
        raise ConfigError(f"the text at {path} {what}; it cannot be split into training and validation; give more")
    return Corpus(where.name, kept)


@lru_cache(maxsize=4)
def _built_in(path: str) -> Corpus:
    version, parts = stdlib.read(stdlib.domains(path))
    return Corpus(path, distinct(Document(*part) for part in parts), version)


def distinct(documents: Iterable[Document]) -> tuple[Document, ...]:
    """Without empty documents and those that equal an earlier one byte for byte: no text gets into both splits."""
    kept: dict[bytes, Document] = {}
    for document in documents:
        if document.data:
            kept.setdefault(document.digest, document)
    return tuple(kept.values())


def _why(error: OSError) -> str:
    return error.strerror or str(error)
