"""The file of an SQLite database, and the files that SQLite keeps beside it: what they must be before SQLite may open them."""

import os
import re
from pathlib import Path

from sqlalchemy import URL

from lengthwise.store.errors import StoreError
from lengthwise.values import EXAMPLE

FILE_NAME = "results.db"
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_SMALLEST = 512  # bytes; SQLite would treat a smaller file as an empty database and overwrite it
# Starts each part of a rollback journal, and ends a journal with a super-journal.
_JOURNAL = bytes.fromhex("d9d505f920a163d7")


def file_of(url: URL) -> str:
    if not url.database or url.database == ":memory:":
        raise StoreError("results in sqlite:// would be lost when the program ends; give a file: sqlite:///results.db")
    if url.query or url.host or url.username:
        raise StoreError(f"a SQLite URL must have no options; write sqlite:///{url.database}")
    return url.database


def database_file(path: Path) -> Path:
    """Return the database file: the path itself, or `results.db` in the folder at the path, which may not exist yet."""
    try:
        path = path.expanduser().absolute()
        str(path).encode()  # a name that is not text would fail later, in the database
        if path.is_dir() or not (path.suffix in _DATABASE_SUFFIXES or path.is_file()):
            path /= FILE_NAME
            if path.is_symlink():  # in a folder from somebody else, it may lead to the user's own results
                raise StoreError(
                    f"{path} must not be a link, since results would be written elsewhere; give the file that it leads to"
                )
        if path.is_dir():
            raise StoreError(f"{path} must be a database file, but it is a folder; move it away or give another folder")
        if path.exists() and not path.is_file():
            raise StoreError(f"{path} must be a regular file, but it is a pipe or a device; give another folder")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{str(path)!r} cannot be a results folder ({error}); give another folder") from error
    return path


def prepare(path: Path, create: bool) -> None:
    try:
        if not create and not path.exists():
            raise StoreError(f"there are no results at {path}; run a study first, or give the folder that has results")
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and 0 < path.stat().st_size < _SMALLEST:
            raise StoreError(not_a_database(str(path)))
        for suffix in ("-journal", "-wal", "-shm"):
            beside = Path(f"{path}{suffix}")
            if beside.exists() and not beside.is_file():
                raise StoreError(
                    f"{beside} is not a regular file, so SQLite cannot use it; remove it, or give other results"
                )
        if _names_another_file(journal := Path(f"{path}-journal")):
            raise StoreError(
                f"{journal} names another file, which SQLite would delete; lengthwise never writes such a journal, so remove it, "
                "or give another results folder"
            )
    except (OSError, ValueError) as error:
        if isinstance(error, StoreError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"the results folder {path.parent} cannot be used ({reason}); give another folder") from error


# File systems over a network, by their names in Linux. There, SQLite's processes cannot share the memory of its write-ahead log,
# and its locks are unreliable: https://sqlite.org/wal.html, "WAL does not work over a network filesystem".
_NETWORK = {
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "nfs",
    "nfs4",
    "panfs",
    "pvfs2",
    "smb3",
    "smbfs",
}
_NETWORK |= {f"fuse.{name}" for name in (*_NETWORK, "gcsfuse", "juicefs", "rclone", "s3fs", "sshfs")}


def require_local(path: Path) -> None:
    """Raise `StoreError` for a database file on a network file system. Only Linux tells."""
    if (kind := _file_system(path)) in _NETWORK:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where SQLite loses data; give a results folder on a local disk, or a "
            f"database server with --store {EXAMPLE}"
        )


def _file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the type of the file system that has the path, or None if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        target = path.resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    found, depth = None, -1
    for line in lines:  # "36 35 98:0 /root /mount/point options - type source options", see proc_pid_mountinfo(5)
        before, dash, after = line.partition(" - ")
        fields = before.split()
        if not dash or len(fields) < 5 or not after:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        if len(point.parts) >= depth and target.is_relative_to(point):  # a later mount hides an earlier one
            found, depth = after.split()[0], len(point.parts)
    return found


def _names_another_file(journal: Path) -> bool:
    """Return whether a rollback journal ends with the name of a super-journal, which SQLite deletes when it opens the database.

    See "The Rollback Journal" in SQLite's documentation of its file format.
    """
    try:
        with open(os.open(journal, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL))
            file.seek(start)
            return start > 0 and file.read(len(_JOURNAL)) == _JOURNAL
    except FileNotFoundError:
        return False


def not_a_database(name: str) -> str:
    return f"{name} is not a SQLite database; give the results folder or its .db file, or another name for a new one"


def identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which change when it is replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
