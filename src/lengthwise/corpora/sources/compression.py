"""Reading compressed files as streams. A file that ends too early is an error, and never the end of the text."""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from lengthwise.values import ConfigError, missing_package

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
ZSTD = ".zst"
SUFFIXES = (*OPENERS, ZSTD)
BUFFER = 1 << 20
MAX_WINDOW = 31  # bits, of a .zst file; `zstd --long=31`


@contextmanager
def open_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that is compressed as its name says. Raise `ConfigError` if it is damaged or unreadable."""
    suffix = path.suffix.lower()
    opener = OPENERS.get(suffix, partial(open, buffering=0))
    damaged: tuple[type[Exception], ...] = (EOFError, zlib.error, lzma.LZMAError)
    if suffix == ZSTD:
        zstd = _zstd(path)
        opener = partial(zstd.open, options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW})
        damaged += (zstd.ZstdError,)
    try:
        with opener(path, "rb") as text, io.BufferedReader(text, BUFFER) as stream:
            yield stream
    except damaged as error:
        raise _damaged(path, error) from error
    except OSError as error:
        if error.errno is None:  # what gzip and bz2 raise for content that is not theirs
            raise _damaged(path, error) from error
        raise ConfigError(f"cannot read {path}: {error.strerror or error}; make it readable or leave it out") from error


def _damaged(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{path} is damaged: {' '.join(str(error).split())}; copy it again")


def _zstd(path: Path) -> ModuleType:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as error:
        raise missing_package(str(path), "backports.zstd", "data", error) from error
    return zstd
