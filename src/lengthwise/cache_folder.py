"""The folder for files that can be made again: the compiled CPU kernel, the chart library, extracted text, and verdicts on
the GPU kernels.

It is `$LENGTHWISE_CACHE`, or else `lengthwise` in the system's folder for caches: `$XDG_CACHE_HOME` if that is an absolute
path, or `~/.cache`; `~/Library/Caches` on macOS; `%LOCALAPPDATA%` on Windows.

Its files are executed or shown to others, so it is used only if this user and root alone can have written them:

- The folder and each file in it belong to this user or root, and neither group nor others may write to them.
- No other user can replace the folder or a folder above it: these belong to this user or root too, and whoever else may
  write to one of them is stopped by the sticky bit, as in /tmp. A group that consists of this user alone does not count.
- Symbolic links are followed before anything is checked, and the path that they lead to is the one that is used. A file in
  the folder is never a link.

On Windows nothing is checked: `%LOCALAPPDATA%` is the user's own. Where the folder cannot be used, one warning says why, and
the program goes on without it.

This module imports the standard library alone, because the build hook loads it by its path before anything is installed.
"""

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

_DRAFT = ".lengthwise-"  # what the names of unfinished files begin with
_ABANDONED = 3600.0  # seconds after which an unfinished file counts as left behind by a killed process
_warned: set[str] = set()


class CacheError(Exception):
    """The cache folder, or a file in it, cannot be used. The message is one line that says why."""


# ---- the folder ---------------------------------------------------------------------------------------------------


def location() -> Path:
    """Return the path of the cache folder, whether or not it exists. Raise `CacheError` if there is no place for one."""
    if own := os.environ.get("LENGTHWISE_CACHE"):
        path = os.path.expanduser(own)
        if path.startswith("~"):
            raise CacheError(f"LENGTHWISE_CACHE is {own!r}, and there is no such home folder")
        return Path(path).absolute()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _home() / "AppData" / "Local") / "lengthwise" / "Cache"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "lengthwise"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    return (Path(base) if os.path.isabs(base) else _home() / ".cache") / "lengthwise"


def _home() -> Path:
    home = os.path.expanduser("~")  # where Path.home() raises, this returns "~"
    if not os.path.isabs(home):
        raise CacheError("this user has no home folder, neither in HOME nor in the system's list of users")
    return Path(home)


def folder(*, create: bool = False) -> Path | None:
    """Return the cache folder, without symbolic links in its path; None if there is none and `create` is false.

    Raise `CacheError` if it must not be used or cannot be made.
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
        raise CacheError(f"LENGTHWISE_CACHE or HOME is no path: {error}") from error
    return path


def _make(path: Path) -> None:
    """Make a folder and those above it for this user alone, as the XDG specification asks, whatever the umask."""
    if not path.exists():
        _make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


def _require_own(path: Path, status: os.stat_result) -> None:
    """Raise `CacheError` if somebody besides this user and root can have written to the file or folder."""
    if sys.platform == "win32":
        return
    if status.st_uid not in (0, os.geteuid()):
        raise CacheError(f"{path} belongs to another user (user ID {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError(f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):o})")


def _require_irreplaceable(path: Path, status: os.stat_result) -> None:
    """Raise `CacheError` if somebody besides this user and root can rename or delete what belongs to them in a folder."""
    guarded = status.st_mode & stat.S_ISVTX or (not status.st_mode & stat.S_IWOTH and _is_private(status.st_gid))
    if guarded and sys.platform != "win32" and status.st_uid in (0, os.geteuid()):
        return
    _require_own(path, status)


def _is_private(group: int) -> bool:
    """Whether a group consists of this user or root alone. Many systems let such a group write to all that its user makes."""
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
    """Return what `store` was given, or None if there is no such file or it is damaged.

    A folder or file that must not be used counts as none, with a warning, once.
    """
    try:
        found = folder()
        kept = read(found / name) if found else b""
    except FileNotFoundError:
        return None
    except (CacheError, OSError) as error:
        warn(error)
        return None
    digest, _, data = kept.partition(b"\n")
    return data if hashlib.sha256(data).hexdigest().encode() == digest else None


def store(name: str, data: bytes) -> None:
    """Keep `data` for `load`, whole or not at all. A folder that cannot be used is a warning, once."""
    try:
        found = folder(create=True)
        assert found
        write(found / name, hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
    except (CacheError, OSError) as error:
        warn(error)


def warn(error: CacheError | OSError) -> None:
    """Warn, once for each reason, that files are not kept."""
    reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    if reason not in _warned:
        _warned.add(reason)
        warnings.warn(
            f"lengthwise makes anew in every process what its cache would keep: {reason}. Set LENGTHWISE_CACHE to a folder "
            "that you alone can write to",
            stacklevel=3,
        )


def read(path: Path, *, own: bool = True) -> bytes:
    """Return a regular file's content. `own`: raise `CacheError` if others can have written to it, or if it is a link."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # a named pipe would block
    flags |= getattr(os, "O_NOFOLLOW", 0) if own else 0
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())  # of what was opened, which cannot be exchanged any more
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"{path} is not a regular file")
        if own:
            _require_own(path, status)
        return file.read()


def write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that appears whole or not at all, also if the process or the machine fails meanwhile."""
    _remove_abandoned(path.parent)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=_DRAFT)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Have the folder's new name reach the disk, where the system can open folders."""
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
    """Hold an exclusive lock on a file, which is made where there is none; wait for it at most `seconds`. Where that has to wait,
    it says so once on stderr; `what`: what the other process does.

    Yield False if another process still holds it then, and True where the file system has no such locks.
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
    until, said = time.monotonic() + seconds, False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            if not said:
                print(f"lengthwise: waiting for another process, which is {what}", file=sys.stderr, flush=True)
                said = True
            time.sleep(0.05)
        except OSError:  # some network file systems
            return True
