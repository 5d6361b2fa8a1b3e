"""A new folder that appears complete, or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lengthwise.values import ConfigError, require_no_address


def require_new(folder: str | Path, fix: str = "") -> Path:
    """Return the path. Raises `ConfigError` unless a folder can be created there. `fix`: what to do if it exists."""
    require_no_address("--out", str(folder))
    if not str(folder).strip():
        raise ConfigError("--out is empty; name a folder")
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

    A kill leaves the draft, a hidden folder `.NAME.HEX.draft` beside the other one.
    """
    path = require_new(folder)
    draft = path.absolute().with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    draft.mkdir()
    try:
        yield draft
        copy_folder_permissions(draft)
        os.rename(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def copy_folder_permissions(folder: Path) -> None:
    """Give the files of a new folder its permissions, because safetensors lets only the owner read them."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(folder.stat().st_mode & 0o666)
