"""Finds the compiled kernel and loads it; compiles it where there is none that can be used.

It is looked for beside the source, where installing puts it (hatch_build.py at the root of the repository, for wheels
and for editable installs), and then in the cache folder (cache_folder.py). Where it is in neither place, as in a bare
clone, the first use compiles it into the cache folder, or for this process alone if that cannot be used. Nothing is
written beside the source, where uninstalling would leave it.

A library is loaded only if its content has the hash that is in its name.
"""

import contextlib
import ctypes
import sys
import tempfile
import warnings
from pathlib import Path

from lengthwise import cache_folder
from lengthwise.cache_folder import CacheError
from lengthwise.native import building
from lengthwise.native.building import CannotBuild

_INSIDE = ("lengthwise", "torch", "jaxtyping", "beartype")
_LOCKED = 300.0  # seconds to wait for another process that compiles


def load() -> ctypes.CDLL:
    """Return the library, found or compiled. Raise `CannotBuild` where there is none."""
    library = _first_in(building.FOLDER)
    with contextlib.suppress(CacheError):  # `_compile` says why
        library = library or _first_in(cache_folder.folder())
    return library or _compile()


def _first_in(folder: Path) -> ctypes.CDLL | None:
    """Return a library of a folder that is intact and loads. One that is damaged is deleted."""
    for path in building.candidates(folder):
        try:
            if building.name(path.read_bytes()) == path.name:
                return ctypes.CDLL(str(path))
            path.unlink()
        except OSError:  # one that another machine made may not load here
            continue
    return None


def _compile() -> ctypes.CDLL:
    """Compile the library into the cache folder and load it, or for this process alone if the folder cannot be used."""
    building.compiler()  # raises `CannotBuild` before anything is created or printed
    content = b""
    try:
        folder = cache_folder.folder(create=True)
        with cache_folder.locked(folder / ".lengthwise.lock", _LOCKED, what="compiling the attention kernel"):
            if library := _first_in(folder):  # another process was faster
                return library
            content = _compiled("once; ")
            path = folder / building.name(content)
            cache_folder.write(path, content)
            return ctypes.CDLL(str(path))
    except CacheError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{cache_folder.location()} ({error.strerror or error})"
    return _for_this_process(content or _compiled(), reason)


def _compiled(how_often: str = "") -> bytes:
    print(f"lengthwise: compiling the attention kernel ({how_often}10 to 60 seconds)", file=sys.stderr, flush=True)
    return building.compiled()


def _for_this_process(content: bytes, reason: str) -> ctypes.CDLL:
    try:
        with tempfile.TemporaryDirectory(prefix="lengthwise-") as private:
            path = Path(private, building.name(content))
            path.write_bytes(content)
            library = ctypes.CDLL(str(path))  # which stays when its file is deleted
    except OSError as error:
        raise CannotBuild(f"the library cannot be stored: {reason}; {error.strerror or error}") from None
    warnings.warn(
        "lengthwise compiles its attention kernel in every process (10 to 60 seconds each), because it cannot store "
        f"the library: {reason}. Set LENGTHWISE_CACHE to a folder that you can write to",
        stacklevel=user_stacklevel(),
    )
    return library


def user_stacklevel() -> int:
    """Return the `stacklevel` for a warning of the calling function that points at the line of the user that led to it.

    Lines of torch, through which calls of modules go, and of jaxtyping are not the user's.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    return level
