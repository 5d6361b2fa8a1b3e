"""Writing large files: a file is complete or absent, even if the process is killed or the machine fails meanwhile."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

UNFINISHED = ".unfinished"  # at the end of the name of a file that is being written


class HashedFile:
    """A file that is being written, and the SHA-256 of its content so far."""

    def __init__(self, file: IO[bytes]):
        self._file, self._hash = file, hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def atomic_file(path: Path) -> Iterator[HashedFile]:
    """Write a file under another name, and give it its name when it is complete and on the disk."""
    draft = path.with_name(path.name + UNFINISHED)
    try:
        with open(draft, "wb") as file:
            yield HashedFile(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_file(path: Path, data: bytes) -> str:
    """Write a small file atomically and return its SHA-256."""
    with atomic_file(path) as file:
        file.write(data)
    return file.sha256


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to the disk, if the system can open folders."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
