"""Files of text: one file, or the files of a folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.corpora.sources import formats
from lengthwise.corpora.sources.base import Part, Piece, Record, Source, SourceOptions, part_bytes
from lengthwise.corpora.sources.listing import list_files, reason, signature
from lengthwise.values import ConfigError


class FileSource(Source):
    """One file, or all files of a folder that match the glob, in the order of their names, except hidden ones."""

    form = "a file or a folder"

    def __init__(self, path: Path, options: SourceOptions):
        self.path, self.options = path, options
        self.name = path.name
        try:
            if path.is_dir():
                names, signatures = list_files(path, options.glob)
                self.folder = path if "/" in options.glob else None
                self._folder = path
            else:
                names, signatures = (path.name,), (signature(path.stat()),)
                self._folder = path.parent
                if not path.is_file():
                    raise ConfigError(f"the source {path} is neither a file nor a folder; give one of these")
        except FileNotFoundError:
            raise ConfigError(f"there is no file or folder {path}; give one that exists") from None
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {reason(error)}; make it readable") from error
        self._signatures = dict(zip(names, signatures, strict=True))

    @classmethod
    def knows(cls, text: str) -> bool:
        return bool(text.strip())

    @classmethod
    def open(cls, text: str, options: SourceOptions) -> "FileSource":
        return cls(Path(text).expanduser().absolute(), options)

    def parts(self) -> list[Part]:
        parts: list[Part] = []
        pieces: list[Piece] = []
        total = 0
        target = part_bytes(sum(size for size, *_ in self._signatures.values()))
        for name, (size, *_) in self._signatures.items():
            for piece, weight in formats.pieces(self._folder / name, name, size, target):
                pieces.append(piece)
                total += weight
                if total >= target:
                    parts.append(tuple(pieces))
                    pieces, total = [], 0
        return [*parts, tuple(pieces)] if pieces else parts

    def read(self, part: Part) -> Iterator[Record]:
        for piece in part:
            yield from formats.read(self._folder / piece.file, piece, self.options)

    def state(self, part: Part) -> list[Any]:
        options = [self.options.field, self.options.origin]
        return [options, [[p.file, p.start, p.stop, *self._signatures[p.file][:2]] for p in part]]
