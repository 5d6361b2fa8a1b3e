"""The interface of sources: where the documents of a corpus come from."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lengthwise.corpora.documents import Document
from lengthwise.corpora.sources.rows import field_of, text_field
from lengthwise.values import ConfigError

MAX_DOCUMENT = 1 << 28  # bytes; a document is held in memory
PARTS = 128  # that a source is divided into, about; more if it is very large
MIN_PART, MAX_PART = 1 << 20, 1 << 26  # bytes


@dataclass(frozen=True)
class Invalid:
    """What a source has in place of a document that cannot be used, such as a line that is not JSON.

    `name`: where it is. `problem`: what is wrong and what to do, as the end of a message.
    """

    name: str
    problem: str


Record = Document | Invalid


@dataclass(frozen=True)
class SourceOptions:
    """How the documents of a source are found.

    `field`: the field of a record that contains the text; `meta.text` is the field `text` of the object `meta`.
    `origin`: a field whose value groups documents, which are then in the same split; without it, every record is its
    own group. `glob`: the files of a folder. `split`: the split of a Hugging Face dataset.
    """

    field: str = "text"
    origin: str = ""
    glob: str = "**/*"
    split: str = "train"


@dataclass(frozen=True)
class Piece:
    """A range of one file: bytes, row groups or shards, as its format counts. The name is relative to the source."""

    file: str
    start: int
    stop: int


Part = tuple[Piece, ...]


def part_bytes(size: int) -> int:
    """Return the size of the parts of a source: a power of two, which a small change of the source rarely changes."""
    return min(max(1 << (size // PARTS).bit_length(), MIN_PART), MAX_PART)


class Source(ABC):
    """Documents in a fixed order, divided into parts that can be read independently. It can be sent to other processes.

    `name`: for messages and manifests; it contains no folder of this machine. `folder`: a folder in which every new
    file would become a part of the source, or None.
    """

    form: ClassVar[str]  # how users write the name of such a source
    name: str
    folder: Path | None = None

    @classmethod
    @abstractmethod
    def knows(cls, text: str) -> bool:
        """Return whether the text is the name of a source of this kind."""

    @classmethod
    @abstractmethod
    def open(cls, text: str, options: SourceOptions) -> "Source":
        """Return the source. Raise `ConfigError` if it does not exist or cannot be reached."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """Return all parts, in order. They depend on the source alone."""

    @abstractmethod
    def read(self, part: Part) -> Iterator[Record]:
        """Yield the records of a part in order. Raise `ConfigError` for a file that is unreadable or damaged."""

    @abstractmethod
    def state(self, part: Part) -> list[Any]:
        """Return plain data that changes when the documents of a part may have changed."""


def record_of(row: Mapping[str, Any], name: str, options: SourceOptions) -> Record:
    """Return the document of a row. A row whose text is null is an empty document."""
    try:
        text = "" if field_of(row, options.field) is None else text_field(row, options.field)
        origin = field_of(row, options.origin) if options.origin else None
    except ConfigError as error:
        return Invalid(name, str(error))
    return document(name, "" if origin is None else str(origin), text.encode())


def document(name: str, origin: str, data: bytes) -> Record:
    if len(data) > MAX_DOCUMENT:
        return Invalid(name, f"a document must have at most {MAX_DOCUMENT:,} bytes; divide it into several documents")
    return Document(name, origin, data)
