"""Reading compressed files as streams. A file that ends too early is an error, and never the end of the text."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from lengthwise.corpora.sources.base import missing_package
from lengthwise.values import ConfigError

SUFFIXES = (".gz", ".zst")
BUFFER = 1 << 20
CHUNK = 1 << 14  # compressed bytes that are decompressed at once, because they can become thousands of times as many
MAX_WINDOW = 1 << 31  # of a .zst file; `zstd --long=31`


@contextmanager
def open_stream(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed if its name ends in .gz or .zst. Raise `ConfigError` if it is damaged or unreadable."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as text, io.BufferedReader(text, BUFFER) as stream:
                yield stream
        elif path.suffix == ".zst":
            with open(path, "rb") as file, io.BufferedReader(_ZstReader(file, path), BUFFER) as stream:
                yield stream
        else:
            with open(path, "rb", buffering=BUFFER) as plain:
                yield plain
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path} is damaged: {' '.join(str(error).split())}; copy it again") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}; make it readable or leave it out") from error


class _ZstReader(io.RawIOBase):
    """A stream of the text of a .zst file, which may have several frames. zstandard's own reader ignores a truncated last frame."""

    def __init__(self, file: IO[bytes], path: Path):
        try:
            import zstandard
        except ImportError as error:
            raise missing_package(str(path), "zstandard", error) from error
        self._file, self._error = file, zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self._frame: Any = None
        self._compressed, self._text = b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._text:
            if not self._compressed:
                self._compressed = self._file.read(CHUNK)
                if not self._compressed:
                    if self._frame is not None:
                        raise EOFError("it ends before the end of its last frame")
                    return 0
            self._decompress()
        count = min(len(buffer), len(self._text))
        buffer[:count] = self._text[:count]
        self._text = self._text[count:]
        return count

    def _decompress(self) -> None:
        if self._frame is None:
            self._frame = self._decompressor.decompressobj()
        try:
            self._text = memoryview(self._frame.decompress(self._compressed))
        except self._error as error:
            raise EOFError(str(error)) from error
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        self._frame = None if self._frame.eof else self._frame
