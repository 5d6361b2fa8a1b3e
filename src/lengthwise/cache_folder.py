"""The cache folder, for files that can be created again: the compiled CPU kernel, the chart library, extracted text, and the GPUs
where the GPU kernels were tested.

It is `$LENGTHWISE_CACHE`, or else `lengthwise` in the system's folder for caches, as platformdirs finds it: on Linux in
`$XDG_CACHE_HOME` if that is an absolute path, or `~/.cache`.

The program executes some of these files and copies others into reports. It therefore uses the folder only if no user other than
this one and root can have written to it:

- The folder and each file in it belong to this user or root, and neither group nor others may write to them.
- No other user can replace the folder or a folder above it. These belong to this user or root too, and if somebody else may
  write to one of them, it has the sticky bit, as /tmp has. A group that consists only of this user is allowed.
- Symbolic links in the path are resolved before the checks, and the resolved path is used. A file in the folder is never a
  link.

On Windows nothing is checked, because `%LOCALAPPDATA%` belongs to the user. If the folder cannot be used, one warning says
why, and the program continues without it.

This module imports nothing else of lengthwise, because the build hook loads it by its path before the package is installed.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import platformdirs

OWN = 0o644  # permissions of a file in the folder, to which no other user may write
_DRAFT = ".lengthwise-"  # prefix of the names of unfinished files
_ABANDONED = 3600.0  # seconds after which an unfinished file is considered abandoned by a killed process
_warned: set[str] = set()


class CacheError(Exception):
    """The cache folder, or a file in it, cannot be used. The message is one line that says why."""


# ---- the folder ---------------------------------------------------------------------------------------------------


def location() -> Path:
    """Return the path of the cache folder, whether or not it exists. Raise `CacheError` if there is no home folder for it."""
    if setting := os.environ.get("LENGTHWISE_CACHE"):
        path = os.path.expanduser(setting)
        if path.startswith("~"):
            raise CacheError(f"LENGTHWISE_CACHE is {setting!r}, and there is no such home folder")
        return Path(path).absolute()
    try:
        return Path(platformdirs.user_cache_dir("lengthwise", appauthor=False))
    except RuntimeError as error:
        raise CacheError("this user has no home folder, neither in HOME nor in the system's list of users") from error


def folder(*, create: bool = False) -> Path | None:
    """Return the cache folder, without symbolic links in its path; None if there is none and `create` is false.

    Raise `CacheError` if it is not safe to use or cannot be created.
    """
    try:
        path = Path(os.path.realpath(location()))
        if create:
            _make(path)
        elif not path.exists():
            return None
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise CacheError(f"{path} is not a folder")
        _require_own(path, status)
        for above in path.parents:
            _require_irreplaceable(above, os.lstat(above))
    except OSError as error:
        raise CacheError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:  # a null character
        raise CacheError(f"LENGTHWISE_CACHE or HOME is not a valid path: {error}") from error
    return path


def _make(path: Path) -> None:
    """Create a folder and its parents with access only for this user, as the XDG specification requires, whatever the umask."""
    if not path.exists():
        _make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _require_own(path: Path, status: os.stat_result) -> None:
    """Raise `CacheError` if somebody other than this user and root can have written to the file or folder."""
    if sys.platform == "win32":
        return
    if status.st_uid not in (0, os.geteuid()):
        raise CacheError(f"{path} belongs to another user (user ID {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):o})")


def _require_irreplaceable(path: Path, status: os.stat_result) -> None:
    """Raise `CacheError` if somebody other than this user and root can rename or delete entries of a folder."""
    protected = status.st_mode & stat.S_ISVTX or (not status.st_mode & stat.S_IWOTH and _is_private(status.st_gid))
    if protected and sys.platform != "win32" and status.st_uid in (0, os.geteuid()):
        return
    _require_own(path, status)


def _is_private(group: int) -> bool:
    """Return whether a group consists only of this user or root. On many systems such a group may write to its user's files."""
    try:
        import grp
        import pwd

        members = grp.getgrgid(group)
        names = [pwd.getpwuid(user).pw_name for user in (0, os.geteuid())]
    except (ImportError, KeyError):
        return False
    return any(members.gr_name == name and set(members.gr_mem) <= {name} for name in names)


# ---- files --------------------------------------------------------------------------------------------------------


def load(name: str) -> bytes | None:
    """Return the data that `store` wrote, or None if there is no such file or it is damaged.

    Also return None, with one warning, if the folder or file is not safe to use.
    """
    try:
        path = folder()
        content = read(path / name) if path else b""
    except FileNotFoundError:
        return None
    except (CacheError, OSError) as error:
        warn(error)
        return None
    digest, _, data = content.partition(b"\n")
    return data if hashlib.sha256(data).hexdigest().encode() == digest else None


def store(name: str, data: bytes) -> None:
    """Write `data` for `load`, completely or not at all. Warn once if the folder cannot be used."""
    try:
        path = folder(create=True)
        assert path
        write(path / name, hashlib.sha256(data).hexdigest().encode() + b"\n" + data, OWN)
    except (CacheError, OSError) as error:
        warn(error)


def warn(error: CacheError | OSError) -> None:
    """Warn once for each reason that files are not cached."""
    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(
            f"lengthwise cannot use its cache, so every process computes its content again: {reason}. Set LENGTHWISE_CACHE to "
            "a folder that only you can write to",
            stacklevel=3,
        )


def read(path: Path, *, own: bool = True) -> bytes:
    """Return a regular file's content. If `own`, raise `CacheError` if others can have written to it, or if it is a link."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # a named pipe would block
    flags |= getattr(os, "O_NOFOLLOW", 0) if own else 0
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())  # of the open file, because the path may now lead to another one
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"{path} is not a regular file")
        if own:
            _require_own(path, status)
        return file.read()


def write(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically: it is complete or absent, even if the process or the machine fails meanwhile.

    `mode`: its permissions, of which the umask takes some away.
    """
    with writing(path, mode) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a draft of a file, which gets its name at the end, as in `write`. After an error, an older file stays."""
    _remove_abandoned(path.parent)
    draft = path.with_name(_DRAFT + secrets.token_hex(8))
    try:
        with open(draft, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Flush a folder's new entry to the disk, if the system can open folders."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_abandoned(path: Path) -> None:
    for draft in path.glob(f"{_DRAFT}*"):
        with contextlib.suppress(OSError):
            if time.time() - draft.stat().st_mtime > _ABANDONED:
                draft.unlink()


@contextlib.contextmanager
def locked(path: Path, seconds: float, *, what: str) -> Iterator[bool]:
    """Hold an exclusive lock on a file, which is created if necessary, and wait for it for at most `seconds`.

    If it has to wait, print one line on stderr; `what` describes what the other process is doing. Yield False if another process
    still holds the lock afterwards, and True if the lock was taken or the file system has no such locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        yield _lock(handle, seconds, what)
    finally:
        os.close(handle)  # which frees the lock


def _lock(handle: int, seconds: float, what: str) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    end, printed = time.monotonic() + seconds, False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            if not printed:
                print(f"lengthwise: waiting for another process, which is {what}", file=sys.stderr, flush=True)
                printed = True
            time.sleep(0.05)
        except OSError:  # some network file systems
            return True
