"""Formats of files: what their documents are. One file per format, one line per format in the list below."""

from pathlib import PurePosixPath

from lengthwise.corpora.sources.compression import SUFFIXES
from lengthwise.corpora.sources.formats.base import Format
from lengthwise.corpora.sources.formats.jsonl import JSONLines
from lengthwise.corpora.sources.formats.parquet import Parquet
from lengthwise.corpora.sources.formats.plain import PlainText

FORMATS: tuple[Format, ...] = (JSONLines(), Parquet(), PlainText())  # the last one takes all other files


def format_of(name: str) -> Format:
    """Return the format of a file, which its name determines."""
    stem = PurePosixPath(name.lower())
    if stem.suffix in SUFFIXES:
        stem = stem.with_suffix("")
    return next(form for form in FORMATS if stem.suffix in form.suffixes or not form.suffixes)


__all__ = ["FORMATS", "Format", "format_of"]
