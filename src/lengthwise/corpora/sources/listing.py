"""The files of a folder, without hidden ones."""

import itertools
import os
from pathlib import Path

from lengthwise.values import ConfigError

MAX_FILES = 1_000_000


def list_files(folder: Path, glob: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return the relative names of matching files, sorted, and signatures that show when a file changed.

    Hidden files do not count.
    """
    try:
        signatures = {}
        for file in folder.glob(glob):
            name = file.relative_to(folder).as_posix()
            if not any(part.startswith(".") for part in name.split("/")) and file.is_file():
                signatures[name] = signature(file.stat())
    except (ValueError, NotImplementedError, IndexError) as error:
        raise ConfigError(f"the glob {glob!r} is invalid in {folder}: {error}; write one like '**/*.txt'") from error
    except OSError as error:
        raise ConfigError(f"cannot read the folder {folder}: {reason(error)}; make it readable") from error
    if "**" in glob or not signatures:
        _require_readable(folder, glob)
    if not signatures:
        raise ConfigError(
            f"no file in {folder} matches {glob!r} (hidden ones do not count); change the glob or the folder"
        )
    if len(signatures) > MAX_FILES:
        raise ConfigError(
            f"at most {MAX_FILES} files may match {glob!r} in {folder}, got {len(signatures)}; narrow the glob"
        )
    names = tuple(sorted(signatures))
    return names, tuple(signatures[name] for name in names)


def _require_readable(folder: Path, glob: str) -> None:
    """Raise `ConfigError` if a folder cannot be read. A glob would silently skip it, and the text would be incomplete."""
    fixed_parts = itertools.takewhile(lambda part: not set(part) & set("*?["), Path(glob).parts[:-1])
    top = folder.joinpath(*fixed_parts)

    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return
        raise ConfigError(
            f"cannot read the folder {error.filename}: {reason(error)}; make it readable or choose others"
        ) from error

    for _, folders, _ in os.walk(top, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]


def signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def reason(error: OSError) -> str:
    return error.strerror or str(error)
