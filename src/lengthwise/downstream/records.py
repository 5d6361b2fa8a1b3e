"""Files of JSON lines in a folder or in a zip archive, of any size: checked and indexed in one pass, then read row by row."""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.sources.listing import reason, signature
from lengthwise.corpora.sources.rows import json_row, numbered_lines
from lengthwise.values import ConfigError

MAX_UNPACKED = 1 << 30  # bytes of a file in a zip archive, which is held in memory
ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)

Check = Callable[[dict[str, Any]], str]  # returns the ID of a row; raises `ConfigError` for a row that cannot be used


@dataclass(frozen=True)
class Location:
    """A file: `path` itself, or its member `member` if it is a zip archive."""

    path: Path
    member: str = ""

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.path}, {self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader | io.BytesIO]:
        """Open the file for reading. A file in an archive is unpacked into memory. Raise `ConfigError` if it is unreadable."""
        if self.member:
            yield io.BytesIO(unpack(self))
            return
        try:
            with open(self.path, "rb") as file:
                yield file
        except OSError as error:
            raise ConfigError(f"cannot read {self.name}: {reason(error)}; copy it again") from error


@dataclass(frozen=True)
class Records:
    """The rows of a file. `starts` and `stops`: the bytes of each row.

    `by_id`: the numbers of the rows with each ID, in the order of the file. `sha256`: the hash of the file's bytes.
    """

    location: Location
    starts: NDArray[np.int64] = field(repr=False)
    stops: NDArray[np.int64] = field(repr=False)
    by_id: dict[str, tuple[int, ...]] = field(repr=False)
    sha256: str
    content: bytes | None = field(repr=False)  # the whole file, if it comes from an archive

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, number: int) -> dict[str, Any]:
        """Return a row. Raise `ConfigError` if the file has changed since it was indexed so that the row cannot be read."""
        start, stop = int(self.starts[number]), int(self.stops[number])
        with _opened(self.location, self.content) as file:
            file.seek(start)
            line = file.read(stop - start)
        try:
            return json_row(line)
        except ConfigError:
            raise ConfigError(f"{self.location.name} has changed while it was in use; start again") from None


def find_file(path: str, folders: Sequence[str], name: str) -> Location:
    """Return where the file `name` is: in the folder or archive `path`, or in a folder or archive of it with one of these names.

    Raise `ConfigError` if there is none.
    """
    location = Path(path)
    candidates = [name, *(f"{folder}/{name}" for folder in folders)]
    if location.is_file():
        if zipfile.is_zipfile(location):
            return _member(location, candidates)
        raise ConfigError(
            f"{path} must be a folder or a zip archive with the file {name}, got another file; name its folder"
        )
    if not location.is_dir():
        raise ConfigError(f"there is no folder or zip archive {path}; name the one with the file {name}")
    for candidate in candidates:
        if (location / candidate).is_file():
            return Location(location / candidate)
    for folder in folders:
        if (location / f"{folder}.zip").is_file():
            return _member(location / f"{folder}.zip", candidates)
    expected = [*candidates, *(f"{folder}.zip" for folder in folders)]
    raise ConfigError(f"{path} has no file {name}; expected one of: {', '.join(expected)}")


def _member(path: Path, candidates: Sequence[str]) -> Location:
    with opened_archive(path) as archive:
        members = archive.namelist()
    for candidate in candidates:
        if candidate in members:
            return Location(path, candidate)
    known = ", ".join(members[:8]) or "none"
    raise ConfigError(f"the archive {path} has no file {' or '.join(candidates)}; its files are: {known}")


@contextmanager
def opened_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive. Raise `ConfigError` for a damaged one, here and while its files are read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except ARCHIVE_ERRORS as error:
        raise ConfigError(
            f"the archive {path} cannot be read: {' '.join(str(error).split()) or type(error).__name__}; copy it again"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}") from error


def unpack(location: Location) -> bytes:
    """Return the content of a file in an archive."""
    with opened_archive(location.path) as archive, archive.open(location.member) as file:
        content = file.read(MAX_UNPACKED + 1)
    if len(content) > MAX_UNPACKED:
        raise ConfigError(
            f"{location.name} has more than {MAX_UNPACKED:,} bytes; unpack the archive and name the folder with its files"
        )
    return content


def records(location: Location, check: Check) -> Records:
    """Return the rows of a file. Every row is checked; errors name the file and the line.

    The result is reused as long as the file does not change.
    """
    try:
        return _records(location, check, signature(location.path.stat()))
    except OSError as error:
        raise ConfigError(f"cannot read {location.name}: {reason(error)}") from error


@lru_cache(maxsize=8)  # a study opens the same files many times
def _records(location: Location, check: Check, file_signature: tuple[int, ...]) -> Records:
    return index(location, check, unpack(location) if location.member else None)


def index(location: Location, check: Check, content: bytes | None) -> Records:
    """Read a file once and return its rows. Empty lines are skipped. `content`: that of the file, if it is in memory."""
    sha = hashlib.sha256()
    places: list[tuple[int, int]] = []
    by_id: dict[str, list[int]] = {}
    with _opened(location, content) as file:
        for number, start, line in numbered_lines(file, location.name):
            sha.update(line)
            if line.isspace():
                continue
            try:
                identity = check(json_row(line))
            except ConfigError as error:
                raise ConfigError(f"{location.name}, line {number}: {error}") from None
            by_id.setdefault(identity, []).append(len(places))
            places.append((start, start + len(line)))
    if not places:
        raise ConfigError(f"{location.name} has no rows; give a file with a JSON object on each line")
    starts, stops = np.array(places, np.int64).T
    rows = {identity: tuple(numbers) for identity, numbers in by_id.items()}
    return Records(location, starts, stops, rows, sha.hexdigest(), content)


def _opened(location: Location, content: bytes | None) -> AbstractContextManager[io.BufferedReader | io.BytesIO]:
    return location.open() if content is None else io.BytesIO(content)
