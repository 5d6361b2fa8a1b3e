"""A new folder that appears complete, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lengthwise.values import ConfigError, require_no_address


def require_new(folder: str | Path, option: str = "--out") -> Path:
    """Return the path. Raises `ConfigError` unless a folder can be created there."""
    require_no_address(option, str(folder))
    if not str(folder).strip():
        raise ConfigError(f"{option} is empty; name a folder")
    path = Path(folder)
    if path.exists() or path.is_symlink():
        raise ConfigError(f"{path} exists, and nothing is overwritten; name another folder, or delete it")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ConfigError(f"there is no folder {parent}; create it, or name another one")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"the folder {parent} is not writable; name another one")
    return path


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """Yield a draft, which gets the name of the folder at the end. After an error, nothing is left."""
    path = require_new(folder)
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        yield draft
        draft.chmod(0o755)
        os.rename(draft, path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
