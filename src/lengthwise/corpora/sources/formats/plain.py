"""Plain text: a file is a document."""

from collections.abc import Iterator
from pathlib import Path

from lengthwise.corpora.documents import Document
from lengthwise.corpora.sources.base import MAX_DOCUMENT, Invalid, Piece, Record, SourceOptions, too_large
from lengthwise.corpora.sources.compression import open_stream
from lengthwise.corpora.sources.formats.base import Format

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class PlainText(Format):
    """A document per file, without a UTF-8 byte order mark. Line ends stay as they are. Its origin is the name of the file."""

    suffixes = ()

    def read(self, path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
        with open_stream(path) as file:
            data = file.read(MAX_DOCUMENT + 1)
        if len(data) > MAX_DOCUMENT:
            yield too_large(piece.file)
        elif b"\0" in data:
            yield Invalid(piece.file, "it is not text, because it contains a zero byte; leave it out with --glob")
        else:
            yield Document(piece.file, piece.file, data.removeprefix(BYTE_ORDER_MARK))
