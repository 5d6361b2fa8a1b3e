"""The cache folder, for files that can be created again: the compiled CPU kernel, the chart library, extracted text,
and the GPUs where the GPU kernels were tested. Atomic writes and locks of files, for it and for others.

It is `$LENGTHWISE_CACHE`, or else `lengthwise` in the system's folder for caches, as platformdirs finds it: on Linux in
`$XDG_CACHE_HOME` if that is an absolute path, or `~/.cache`. If it cannot be used, one warning says why, and the
program continues without it.

This module imports nothing else of lengthwise, because the build hook loads it by its path before the package is
installed.
"""

import contextlib
import hashlib
import os
import secrets
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import platformdirs

_warned: set[str] = set()


class CacheError(Exception):
    """There is no home folder for the cache folder. The message is one line that says why."""


def location() -> Path:
    """Return the path of the cache folder, which may not exist. Raise `CacheError` without a home folder."""
    if setting := os.environ.get("LENGTHWISE_CACHE"):
        path = os.path.expanduser(setting)
        if path.startswith("~"):
            raise CacheError(f"LENGTHWISE_CACHE is {setting!r}, and there is no such home folder")
        return Path(path).absolute()
    try:
        return Path(platformdirs.user_cache_dir("lengthwise", appauthor=False))
    except RuntimeError as error:
        raise CacheError("this user has no home folder, neither in HOME nor in the system's list of users") from error


def folder(*, create: bool = False) -> Path:
    """Return the cache folder. With `create`, create it for this user alone; raise `OSError` if that fails."""
    path = location()
    if create:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def load(name: str) -> bytes | None:
    """Return what `store` wrote. None if it is missing, damaged or, with a warning, unreadable."""
    try:
        content = (folder() / name).read_bytes()
    except FileNotFoundError:
        return None
    except (CacheError, OSError) as error:
        _warn(error)
        return None
    digest, _, data = content.partition(b"\n")
    return data if hashlib.sha256(data).hexdigest().encode() == digest else None


def store(name: str, data: bytes) -> None:
    """Write `data` for `load`, after its checksum. Warn once if the folder cannot be used."""
    try:
        write(folder(create=True) / name, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    except (CacheError, OSError) as error:
        _warn(error)


def _warn(error: CacheError | OSError) -> None:
    """Warn once for each reason that files are not cached."""
    reason = f"{location()}: {error.strerror}" if isinstance(error, OSError) else str(error)
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(
            f"lengthwise cannot use its cache, so every process computes its content again: {reason}. Set "
            "LENGTHWISE_CACHE to a folder that you can write to",
            stacklevel=3,
        )


def write(path: Path, data: bytes) -> None:
    """Write a file atomically: it is complete or absent, even if the process or the machine fails meanwhile."""
    with writing(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Yield a draft of a file, which gets its name at the end, as in `write`. After an error, an older file stays."""
    draft = path.with_name(f".lengthwise-{secrets.token_hex(8)}")
    try:
        with open(draft, "x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path, seconds: float, *, what: str) -> Iterator[bool]:
    """Hold an exclusive lock on a file, which is created if necessary, and wait for it for at most `seconds`.

    If it has to wait, print one line on stderr; `what` describes what the other process is doing. Yield False if
    another process still holds the lock afterwards, and True if the lock was taken or the file system has no such
    locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
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
