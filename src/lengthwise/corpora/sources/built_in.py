"""The text that every machine has: the manual, docstrings and source of Python's standard library."""

from collections.abc import Iterator
from typing import Any

from lengthwise.corpora import stdlib
from lengthwise.corpora.sources.base import Part, Piece, Record, Source, SourceOptions


class BuiltInSource(Source):
    """The text "python", or one of its parts, such as "python:manual" (`lengthwise.corpora.stdlib`)."""

    form = "python"

    def __init__(self, text: str):
        self.name = text
        self.version, self._documents = stdlib.read(stdlib.domains(text))

    @classmethod
    def knows(cls, text: str) -> bool:
        return text == "python" or text.startswith("python:")

    @classmethod
    def open(cls, text: str, options: SourceOptions) -> "BuiltInSource":
        return cls(text)

    def parts(self) -> list[Part]:
        step = 100  # documents
        count = len(self._documents)
        return [(Piece("", start, min(start + step, count)),) for start in range(0, count, step)]

    def read(self, part: Part) -> Iterator[Record]:
        for piece in part:
            yield from self._documents[piece.start : piece.stop]

    def state(self, part: Part) -> list[Any]:
        return [self.name, self.version, [[piece.start, piece.stop] for piece in part]]
