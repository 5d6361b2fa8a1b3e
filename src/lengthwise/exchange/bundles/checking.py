"""Open a bundle and check everything in it, before any store is opened."""

import hashlib
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.exchange.bundles.layout import (
    FILES,
    LAYOUT,
    MANIFEST,
    MOST_BYTES,
    MOST_OF_LINE,
    MOST_OF_MANIFEST,
    cells_from_json,
)
from lengthwise.exchange.bundles.references import References
from lengthwise.store import checks
from lengthwise.store.checks import Unreadable, each_of, escaped, parse, record, whole
from lengthwise.store.columns import check_cells
from lengthwise.store.transfer import TABLES
from lengthwise.values import ConfigError

MOST_OF_PART = 2**20  # bytes that are read at once
DAMAGED = (OSError, EOFError, ValueError, RuntimeError, OverflowError, struct.error, zipfile.BadZipFile, zlib.error)
_FILE = record({"rows": whole(low=0), "size": whole(low=0), "sha256": checks.hash256}, closed=True)
_MANIFEST = record(
    {"bundle": whole(low=1), "lengthwise": checks.word, "study": checks.printable_word, "files": each_of(FILES, _FILE)}
)


@dataclass(frozen=True)
class Bundle:
    """An open bundle whose content was checked. `study`: its name. `rows`: the number of rows by table."""

    path: Path
    study: str
    rows: Mapping[str, int]
    _file: zipfile.ZipFile
    _manifest: Mapping[str, Any]

    def tables(self) -> dict[str, Iterator[dict[str, Any]]]:
        """Return the rows by table. They are read once more; if the hashes still fit, they are those that were checked."""
        return {table: self._cells(name, table, check=False) for name, table in FILES.items()}

    def _cells(self, name: str, table: str, *, check: bool) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self._lines(name), 1):
            try:
                row = cells_from_json(TABLES[table], parse(line.decode("ascii", "strict")))
                if check:
                    check_cells(TABLES[table], row)
            except ValueError as error:
                raise _error(self.path, f"{name}, line {number}, {error}") from None
            yield row

    def _lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file. Raises `ConfigError` at the end if they are not those of the manifest."""
        digest, size, rows = hashlib.sha256(), 0, 0
        with damage_named(self.path, f"{name} is damaged"), self._file.open(name) as file:
            while line := file.readline(MOST_OF_LINE):
                if not line.endswith(b"\n"):
                    raise _error(self.path, f"{name} has been modified: a line has no end")
                digest.update(line)
                size, rows = size + len(line), rows + 1
                yield line
        self._require_unmodified(name, rows, size, digest.hexdigest())

    def check_hash(self, name: str) -> None:
        """Raise `ConfigError` unless a file is that of the manifest."""
        digest, size, rows = hashlib.sha256(), 0, 0
        with damage_named(self.path, f"{name} is damaged"), self._file.open(name) as file:
            while part := file.read(MOST_OF_PART):
                digest.update(part)
                size, rows = size + len(part), rows + part.count(b"\n")
        self._require_unmodified(name, rows, size, digest.hexdigest())

    def _require_unmodified(self, name: str, rows: int, size: int, digest: str) -> None:
        if {"rows": rows, "size": size, "sha256": digest} != self._manifest["files"][name]:
            raise _error(self.path, f"{name} has been modified: its size or hash is not that of {MANIFEST}")


@contextmanager
def checked_bundle(path: Path) -> Iterator[Bundle]:
    """Open a bundle and check its names, sizes, hashes and rows. Raises `ConfigError`, naming what is wrong, in one line."""
    with ExitStack() as opened:
        with damage_named(path, "it cannot be read"):
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # a pipe would block
            handle = opened.enter_context(open(os.open(path, flags), "rb"))
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            raise _error(path, "it is not a regular file")
        with damage_named(path, "it is not a bundle, or it is damaged"):
            file = opened.enter_context(zipfile.ZipFile(handle))
            _check_names(path, file)
            manifest = _manifest(path, file)
        rows = {table: int(manifest["files"][name]["rows"]) for name, table in FILES.items()}
        bundle = Bundle(path, manifest["study"], rows, file, manifest)
        _check_rows(bundle)
        yield bundle


@contextmanager
def damage_named(path: Path, what: str) -> Iterator[None]:
    """Turn the exceptions of `zipfile` for damaged files, of which there are many kinds, into one line."""
    try:
        yield
    except ConfigError:
        raise
    except DAMAGED as problem:
        reason = problem.strerror if isinstance(problem, OSError) else escaped(str(problem), 200).strip("'\"")
        raise _error(path, f"{what} ({reason or 'it ends too early'})") from None


def _error(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} cannot be imported: {reason}; nothing was imported")


def _check_names(path: Path, file: zipfile.ZipFile) -> None:
    """Raise `ConfigError` unless the file has exactly the names of a bundle, of plain files of limited size."""
    known, found = {MANIFEST, *FILES}, set[str]()
    for entry in file.infolist():
        name = escaped(entry.orig_filename)
        if entry.orig_filename not in known or entry.filename != entry.orig_filename:
            raise _error(path, f"it contains {name}; a bundle has only {', '.join(sorted(known))}, and no folders")
        if entry.filename in found:
            raise _error(path, f"it contains {name} twice")
        if stat.S_ISLNK(entry.external_attr >> 16) or entry.is_dir():
            raise _error(path, f"{name} is a link or a folder")
        if entry.flag_bits & 0x1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _error(path, f"{name} is encrypted, or compressed in another way than by deflate")
        found.add(entry.filename)
    if missing := sorted(known - found):
        raise _error(path, f"{missing[0]} is missing")
    if sum(entry.file_size for entry in file.infolist()) > MOST_BYTES:
        raise _error(path, f"its files have more than {MOST_BYTES:,} bytes")


def _manifest(path: Path, file: zipfile.ZipFile) -> dict[str, Any]:
    with file.open(MANIFEST) as part:
        text = part.read(MOST_OF_MANIFEST + 1)
    try:
        if len(text) > MOST_OF_MANIFEST:
            raise Unreadable(f"has more than {MOST_OF_MANIFEST:,} bytes")
        manifest: dict[str, Any] = parse(text.decode())
        if isinstance(manifest, dict) and manifest.get("bundle") not in (None, LAYOUT):
            raise Unreadable(
                f"has version {escaped(manifest['bundle'])} of the layout, and this Lengthwise reads version {LAYOUT}; export the "
                "study again with the same version of Lengthwise"
            )
        _MANIFEST(manifest)
    except (Unreadable, UnicodeDecodeError) as problem:
        reason = "is not UTF-8 text" if isinstance(problem, UnicodeDecodeError) else str(problem)
        raise _error(path, f"{MANIFEST} {reason}") from None
    for entry in file.infolist():
        if entry.filename != MANIFEST and entry.file_size != manifest["files"][entry.filename]["size"]:
            raise _error(path, f"{entry.filename} has been modified: its size is not that of {MANIFEST}")
    return manifest


def _check_rows(bundle: Bundle) -> None:
    """Read all files once. Hashes come first, so that a modified file is named as such whatever was modified in it."""
    for name in FILES:
        bundle.check_hash(name)
    references = References(bundle.study)
    for name, table in FILES.items():
        rows = bundle._cells(name, table, check=True)
        for number, row in enumerate(rows, 1):
            if (reason := references.reason_against(table, row)) is not None:
                raise _error(bundle.path, f"{name}, line {number}, {reason}")
    if references.studies != 1:
        raise _error(bundle.path, f"studies.jsonl has {references.studies} studies instead of one")
