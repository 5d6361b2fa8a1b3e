"""Vega, Vega-Lite and Vega-Embed as one script, out of the vl-convert package: nothing is ever fetched.

Putting it together takes seconds, so it is kept in the user's cache folder (`LENGTHWISE_CACHE` says another); without a
folder that can be written it is made anew each time.
"""

import hashlib
import os
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

FORMAT = "1"  # of the file: the SHA-256 of the script, a line break, the script


@lru_cache(maxsize=1)
def script() -> str:
    """JavaScript that defines `window.vegaEmbed`. It holds no `</script` and no `<!--`."""
    path = _cache_file()
    if path is not None and (kept := _load(path)):
        return kept
    import vl_convert

    made = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    made = made.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    if path is not None:
        _save(path, made)
    return made


def _cache_file() -> Path | None:
    name = f"vega-{version('vl-convert-python')}-{FORMAT}.js"
    with suppress(RuntimeError, OSError):  # no home
        if own := os.environ.get("LENGTHWISE_CACHE"):
            return Path(own) / name
        if sys.platform == "win32":
            home = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            return home / "lengthwise" / "Cache" / name
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "lengthwise" / name
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lengthwise" / name
    return None


def _load(path: Path) -> str | None:
    """The script, if the file is whole: the report is a page for others, so a damaged one must not get into it."""
    try:
        digest, _, text = path.read_bytes().partition(b"\n")
        return text.decode() if hashlib.sha256(text).hexdigest().encode() == digest else None
    except (OSError, ValueError):
        return None


def _save(path: Path, text: str) -> None:
    data = text.encode()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
