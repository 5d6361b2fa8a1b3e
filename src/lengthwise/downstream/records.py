"""Files of JSON lines of any size: checked and indexed in one pass, then read row by row."""

import hashlib
import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.sources.listing import reason, signature
from lengthwise.corpora.sources.rows import json_row, numbered_lines
from lengthwise.values import ConfigError

Check = Callable[[dict[str, Any]], str]  # returns the ID of a row; raises `ConfigError` for a row that cannot be used


@dataclass(frozen=True)
class Records:
    """The rows of a file. `starts` and `stops`: the bytes of each row.

    `by_id`: the numbers of the rows with each ID, in the order of the file. `sha256`: the hash of the file's bytes.
    """

    path: Path
    starts: NDArray[np.int64] = field(repr=False)
    stops: NDArray[np.int64] = field(repr=False)
    by_id: dict[str, tuple[int, ...]] = field(repr=False)
    sha256: str
    content: bytes | None = field(repr=False)  # of a file that exists in memory only

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, number: int) -> dict[str, Any]:
        """Return a row. Raise `ConfigError` if the file has changed so that the row cannot be read."""
        start, stop = int(self.starts[number]), int(self.stops[number])
        with _opened(self.path, self.content) as file:
            file.seek(start)
            line = file.read(stop - start)
        try:
            return json_row(line)
        except ConfigError:
            raise ConfigError(f"{self.path} has changed while it was in use; start again") from None


def find_file(path: str, folders: Sequence[str], name: str) -> Path:
    """Return the file `name` in the folder `path`, or in a folder of it with one of these names.

    Raise `ConfigError` if there is none.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise ConfigError(f"{path} {what}; name the folder with the file {name} (unzip an archive first)")
    candidates = [name, *(f"{inner}/{name}" for inner in folders)]
    for candidate in candidates:
        if (folder / candidate).is_file():
            return folder / candidate
    raise ConfigError(f"{path} has no file {name}; expected one of: {', '.join(candidates)} (unzip an archive first)")


def records(path: Path, check: Check) -> Records:
    """Return the rows of a file. Every row is checked; errors name the file and the line.

    The result is reused as long as the file does not change.
    """
    try:
        return _records(path, check, signature(path.stat()))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}; copy it again") from error


@lru_cache(maxsize=8)  # a study opens the same files many times
def _records(path: Path, check: Check, file_signature: tuple[int, ...]) -> Records:
    return index(path, check, None)


def index(path: Path, check: Check, content: bytes | None) -> Records:
    """Read a file once and return its rows. Empty lines are skipped. `content`: that of a file in memory."""
    sha = hashlib.sha256()
    places: list[tuple[int, int]] = []
    by_id: dict[str, list[int]] = {}
    with _opened(path, content) as file:
        for number, start, line in numbered_lines(file, str(path)):
            sha.update(line)
            if line.isspace():
                continue
            try:
                identity = check(json_row(line))
            except ConfigError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None
            by_id.setdefault(identity, []).append(len(places))
            places.append((start, start + len(line)))
    if not places:
        raise ConfigError(f"{path} has no rows; give a file with a JSON object on each line")
    starts, stops = np.array(places, np.int64).T
    rows = {identity: tuple(numbers) for identity, numbers in by_id.items()}
    return Records(path, starts, stops, rows, sha.hexdigest(), content)


def _opened(path: Path, content: bytes | None) -> AbstractContextManager[IO[bytes]]:
    return open(path, "rb") if content is None else io.BytesIO(content)
