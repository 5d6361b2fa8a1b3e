"""The formats of files: JSON lines, parquet, and plain text, which every other file is. The name of a file decides."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from lengthwise.corpora.sources.base import (
    MAX_DOCUMENT,
    Invalid,
    Piece,
    Record,
    SourceOptions,
    document,
    record_of,
)
from lengthwise.corpora.sources.compression import SUFFIXES, open_stream
from lengthwise.corpora.sources.rows import MAX_LINE, json_row, numbered_lines, parquet_rows, row_groups
from lengthwise.values import ConfigError

JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = ".parquet"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NOT_TEXT = "it is not text, because it contains a zero byte; unpack an archive, or leave the file out with --glob"


def is_compressed(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def suffix_of(name: str) -> str:
    """Return the suffix that decides the format: that before .gz and the like."""
    path = PurePosixPath(name.lower())
    return path.with_suffix("").suffix if is_compressed(name) else path.suffix


def pieces(path: Path, name: str, size: int, piece_bytes: int) -> list[tuple[Piece, int]]:
    """Return ranges of a file that can be read independently, each with its size in bytes: about `piece_bytes`, if
    possible.

    They are ranges of bytes of JSON lines that are not compressed, row groups of a parquet file, and all of any other
    file.
    """
    if suffix_of(name) == PARQUET:
        groups = row_groups(path)
        return [(Piece(name, n, n + 1), size // groups) for n in range(groups)]
    if suffix_of(name) in JSON_LINES and not is_compressed(name):
        starts = range(0, max(size, 1), piece_bytes)
        return [(Piece(name, n, min(n + piece_bytes, size)), min(piece_bytes, size - n)) for n in starts]
    return [(Piece(name, 0, size), size)]


def read(path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
    """Yield the records of a range of a file. Raise `ConfigError` for a damaged file."""
    if suffix_of(piece.file) == PARQUET:
        return _read_parquet(path, piece, options)
    if suffix_of(piece.file) in JSON_LINES:
        return _read_json_lines(path, piece, options)
    return _read_text(path, piece)


def _read_text(path: Path, piece: Piece) -> Iterator[Record]:
    """Yield a file as a document, without a byte order mark. Line ends stay as they are. Its origin is its name."""
    with open_stream(path) as file:
        data = file.read(MAX_DOCUMENT + len(BYTE_ORDER_MARK) + 1).removeprefix(BYTE_ORDER_MARK)
    yield Invalid(piece.file, NOT_TEXT) if b"\0" in data else document(piece.file, piece.file, data)


def _read_json_lines(path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
    """Yield the objects of the lines that begin in the range. Empty lines are skipped."""
    with open_stream(path) as file:
        start = piece.start
        if start:
            file.seek(start - 1)
            start += len(file.readline(MAX_LINE)) - 1  # the rest of a line that belongs to the range before
        for number, place, line in numbered_lines(file, str(path), start):
            if place >= piece.stop and not is_compressed(piece.file):
                return
            if line.isspace():
                continue
            name = f"{piece.file}, line {number}" if not piece.start else f"{piece.file}, line at byte {place:,}"
            try:
                row = json_row(line)
            except ConfigError as error:
                yield Invalid(name, str(error))
            else:
                yield record_of(row, name, options)


def _read_parquet(path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
    fields = [name for name in (options.field, options.origin) if name]
    for number, row in parquet_rows(path, fields, range(piece.start, piece.stop)):
        name = f"{piece.file}, row {number}"
        yield Invalid(name, "it is not UTF-8 text") if row is None else record_of(row, name, options)
