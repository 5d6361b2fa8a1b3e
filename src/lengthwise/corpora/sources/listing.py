"""The files of a folder, without hidden ones."""

import os
from pathlib import Path

from lengthwise.values import ConfigError


def list_files(folder: Path, glob: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Return the relative names of matching files, sorted, and signatures that show when a file changed.

    Hidden files do not count.
    """
    signatures = {}
    try:
        if "**" in glob:  # a glob would silently skip a folder that cannot be read, and the text would be incomplete
            for _, folders, _ in os.walk(folder, onerror=_raise):
                folders[:] = [name for name in folders if not name.startswith(".")]
        for file in folder.glob(glob):
            name = file.relative_to(folder).as_posix()
            if not any(component.startswith(".") for component in name.split("/")) and file.is_file():
                signatures[name] = signature(file.stat())
    except (ValueError, NotImplementedError, IndexError) as error:
        raise ConfigError(f"the glob {glob!r} is invalid in {folder}: {error}; write one like '**/*.txt'") from error
    except OSError as error:
        place = error.filename or folder
        raise ConfigError(f"cannot read the folder {place}: {reason(error)}; make it readable") from error
    if not signatures:
        raise ConfigError(
            f"no file in {folder} matches {glob!r} (hidden ones do not count); change the glob or the folder"
        )
    names = tuple(sorted(signatures))
    return names, tuple(signatures[name] for name in names)


def _raise(error: OSError) -> None:
    raise error


def signature(status: os.stat_result) -> tuple[int, ...]:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def reason(error: OSError) -> str:
    return error.strerror or str(error)
