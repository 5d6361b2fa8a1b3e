"""A new folder that appears complete, or not at all."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lengthwise.values import ConfigError, require_no_address

SUFFIX = ".draft"


def require_new(folder: str | Path, option: str = "--out", fix: str = "") -> Path:
    """Return the path. Raises `ConfigError` unless a folder can be created there. `fix`: what to do if it exists."""
    require_no_address(option, str(folder))
    if not str(folder).strip():
        raise ConfigError(f"{option} is empty; name a folder")
    path = Path(folder)
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists, and nothing is overwritten; {fix or 'name another folder, or delete it'}")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ConfigError(f"there is no folder {parent}; create it, or name another one")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"the folder {parent} is not writable; name another one")
    return path


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a draft, which gets the name of the folder at the end. After an error, nothing is left.

    A kill leaves the draft, which the next call for the same folder deletes. A draft is locked while its process lives.
    """
    path = require_new(folder)
    _delete_abandoned(path)
    draft, lock = _locked_draft(path)
    try:
        yield draft
        copy_folder_permissions(draft)
        os.rename(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    finally:
        os.close(lock)


def copy_folder_permissions(folder: Path) -> None:
    """Give the files of a new folder the folder's permissions to read and write. Those of safetensors are the owner's alone."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(folder.stat().st_mode & 0o666)


def _locked_draft(path: Path) -> tuple[Path, int]:
    """Return a new draft and a descriptor that holds its lock."""
    while True:
        draft = path.absolute().with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
        draft.mkdir()
        with suppress(FileNotFoundError):  # another process deleted the draft before it was locked
            lock = os.open(draft, os.O_RDONLY)
            with suppress(OSError, ImportError):  # a system without locks
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            if draft.exists():
                return draft, lock
            os.close(lock)


def _delete_abandoned(path: Path) -> None:
    """Delete the drafts of processes that were killed."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(SUFFIX)}")
    for draft in path.absolute().parent.iterdir():
        if name.fullmatch(draft.name) is None:
            continue
        with suppress(OSError, ImportError):  # it belongs to a process that lives or to another user, or it is gone
            handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                import fcntl

                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(draft)
            finally:
                os.close(handle)
