"""The file of an option such as `--output`, checked before a command computes anything."""

import os
from collections.abc import Sequence
from pathlib import Path

from lengthwise.config import ConfigError
from lengthwise.values import join_names, near_miss, require_no_address

BEGINNINGS = {  # in small letters
    "HTML page": b"<!doctype html",
    "SVG picture": b"<svg",
    "PNG picture": b"\x89png",
    "PDF file": b"%pdf",
}


def output_file(text: str, kind: str, option: str = "--output") -> Path:
    """Return the path of the file that the option names. `kind`: what will be written, a key of `BEGINNINGS`.

    Raise `ConfigError` if the path is not that of a file in an existing folder, or if the file is anything but an older
    file of this kind, such as the results database.
    """
    path = _require_file(text, option)
    if path.exists():
        with open(path, "rb") as file:
            beginning = file.read(100).lstrip().lower()
        if beginning and not beginning.startswith(BEGINNINGS[kind]):
            raise ConfigError(
                f"{option} {text} exists and is not an older {kind}, so it is not overwritten; delete it, or name "
                "another file"
            )
    return path


def picture_file(text: str, endings: Sequence[str], option: str = "--plot") -> Path:
    """Return the path of a picture, as `output_file` does. Raise `ConfigError` if it has none of the endings."""
    suffix = Path(text).suffix.lower()
    if suffix not in endings:
        names, near = join_names(endings).replace(" and ", " or "), near_miss(suffix, endings) if suffix else ""
        raise ConfigError(f"{option} must end in {names}, got {text[:80]!r}{near}; name such a file")
    kind = "HTML page" if suffix == ".html" else "PDF file" if suffix == ".pdf" else f"{suffix[1:].upper()} picture"
    return output_file(text, kind, option)


def new_file(text: str, force: bool, option: str = "--out") -> Path:
    """Return the path of an option. Raise `ConfigError` if it cannot be written or, without `force`, exists."""
    path = _require_file(text, option)
    if not force and (path.exists() or path.is_symlink()):
        raise ConfigError(f"{option} {text} exists; name another file, or overwrite it with --force")
    return path


def _require_file(text: str, option: str) -> Path:
    """Return the path. Raise `ConfigError` unless it is that of a writable regular file in an existing folder."""
    require_no_address(option, text)
    path = Path(text)
    if not text.strip():
        raise ConfigError(f"{option} is empty; name a file, or omit the option")
    if path.is_dir():
        raise ConfigError(f"{option} must be a file, got the folder {text!r}; name a file in it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"{option} {text}: there is no folder {path.parent}; create it, or name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"{option} {text} is not writable; name another file")
    if path.exists() and not path.is_file():
        raise ConfigError(f"{option} {text} must be a regular file, but it is a pipe or a device; name another file")
    return path
