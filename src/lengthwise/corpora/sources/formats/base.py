"""The interface of formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from lengthwise.corpora.sources.base import Piece, Record, SourceOptions


class Format(ABC):
    """How documents are read from a file. `suffixes`: of the names of such files, before .gz or .zst; empty for all others."""

    suffixes: ClassVar[tuple[str, ...]]

    def pieces(self, path: Path, name: str, size: int, part: int) -> list[tuple[Piece, int]]:
        """Return ranges of the file that can be read independently, each with its size in bytes: about `part`, if possible."""
        return [(Piece(name, 0, size), size)]

    @abstractmethod
    def read(self, path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
        """Yield the records of a range. Raise `ConfigError` for a damaged file."""
