"""Small corpora for the tests."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.corpora.manifest import Manifest
from lengthwise.corpora.prepare import Preparation
from lengthwise.corpora.prepared import PreparedCorpus
from lengthwise.corpora.sources import SourceOptions, open_source

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "the",
    "dog",
    "ran",
    "to",
    "the",
    "red",
    "door",
    "of",
    "an",
    "old",
    "house",
]


def story(number: int) -> str:
    """A text of 1 to 60 words, another one for each number."""
    return " ".join(WORDS[(number * k + k * k) % len(WORDS)] for k in range(1 + number * 7 % 60)) + f" {number}.\n"


def json_lines(path: Path, texts: Iterable[Any]) -> Path:
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    return path


def prepare(source: Path | str, output: Path, *, tokenizer: str = "bytes", **settings: Any) -> Manifest:
    options = {name: settings.pop(name) for name in ("field", "origin", "glob", "split") if name in settings}
    opened = open_source(str(source), SourceOptions(**options))
    return Preparation(source=opened, tokenizer=tokenizer, output=output, **settings).run()


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def documents(corpus: PreparedCorpus, split: str) -> list[bytes]:
    lengths = corpus.lengths(split)
    starts = np.cumsum(lengths) - lengths
    reader = corpus.reader(split)
    pairs = zip(starts, lengths.tolist(), strict=True)
    return [corpus.tokenizer.decode(reader.read(np.array([s]), n)[0].tolist()) for s, n in pairs]
