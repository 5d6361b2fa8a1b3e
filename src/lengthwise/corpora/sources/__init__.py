"""Sources: where documents come from. One file per kind, one line per kind in the list below.

Files have formats (`formats.py`), and text and JSON lines may be compressed (`compression.py`).
"""

from dataclasses import replace
from pathlib import Path

from lengthwise.corpora.catalog import CATALOG
from lengthwise.corpora.sources.base import Invalid, Part, Piece, Record, Source, SourceOptions
from lengthwise.corpora.sources.built_in import BuiltInSource
from lengthwise.corpora.sources.files import FileSource
from lengthwise.corpora.sources.hugging_face import HuggingFaceSource
from lengthwise.values import ConfigError

SOURCES: tuple[type[Source], ...] = (
    BuiltInSource,
    HuggingFaceSource,
    FileSource,
)  # the first that knows a text opens it


def open_source(text: str, options: SourceOptions) -> Source:
    """Return the source that a text names. Raise `ConfigError` if there is none.

    The name of a ready configuration (`CATALOG`) stands for a dataset of the hub, unless a file or folder has this
    name. The configuration provides the fields, if the options have their defaults.
    """
    if (published := CATALOG.get(text)) and not Path(text).exists():
        field = published.field if options.field == SourceOptions.field else options.field
        text, options = published.source, replace(options, field=field, origin=options.origin or published.origin)
    for kind in SOURCES:
        if kind.knows(text):
            return kind.open(text, options)
    forms = ", ".join(kind.form for kind in SOURCES)
    raise ConfigError(f"there is no source {text!r}; it must be one of: {forms}, or {', '.join(CATALOG)}")


__all__ = ["SOURCES", "Invalid", "Part", "Piece", "Record", "Source", "SourceOptions", "open_source"]
