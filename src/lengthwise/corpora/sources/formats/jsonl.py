"""JSON lines: a document per line."""

import json
from collections.abc import Iterator
from pathlib import Path

from lengthwise.corpora.sources.base import MAX_DOCUMENT, Invalid, Piece, Record, SourceOptions, record
from lengthwise.corpora.sources.compression import SUFFIXES, open_stream
from lengthwise.corpora.sources.formats.base import Format
from lengthwise.corpora.sources.formats.plain import BYTE_ORDER_MARK
from lengthwise.values import ConfigError, json_problem

MAX_LINE = 2 * MAX_DOCUMENT  # bytes; escapes make a line longer than its text


class JSONLines(Format):
    """A JSON object per line. Empty lines are skipped. A large file is read in ranges of bytes, if it is not compressed."""

    suffixes = (".jsonl", ".ndjson", ".json")

    def pieces(self, path: Path, name: str, size: int, part: int) -> list[tuple[Piece, int]]:
        if path.suffix in SUFFIXES:
            return super().pieces(path, name, size, part)
        stops = [*range(part, size, part), size]
        starts = [0, *stops[:-1]]
        return [(Piece(name, start, stop), stop - start) for start, stop in zip(starts, stops, strict=True)]

    def read(self, path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
        """Yield the records of the lines that begin in the range."""
        with open_stream(path) as file:
            place = piece.start
            if place:
                file.seek(place - 1)
                place += len(file.readline(MAX_LINE)) - 1  # the rest of a line that belongs to the range before
            compressed = path.suffix in SUFFIXES
            number = 0
            while compressed or place < piece.stop:
                line = file.readline(MAX_LINE + 1)
                if not line:
                    return
                number += 1
                where = f"{piece.file}, line {number}" if piece.start == 0 else f"{piece.file}, line at byte {place:,}"
                if len(line) > MAX_LINE:
                    raise ConfigError(f"{path}, {where.partition(', ')[2]}: it has more than {MAX_LINE:,} bytes")
                text = line.removeprefix(BYTE_ORDER_MARK) if place == 0 else line
                place += len(line)
                if not text.isspace() and text:
                    yield _parsed(text, where, options)


def _parsed(line: bytes, where: str, options: SourceOptions) -> Record:
    try:
        values = json.loads(line.decode())  # of bytes, `json` would guess the encoding
    except (ValueError, RecursionError) as error:
        return Invalid(where, f"it is not a JSON object ({json_problem(error)}); write one object per line")
    if not isinstance(values, dict):
        return Invalid(where, f"it must be a JSON object, got a {type(values).__name__}; write one object per line")
    return record(values, where, options)
