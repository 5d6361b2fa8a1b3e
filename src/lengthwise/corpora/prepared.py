"""Prepared corpora: folders of tokens, as `lengthwise tokenize` writes them."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lengthwise.corpora.manifest import COUNTS, LENGTH_TYPE, NAME, lengths_file, read_manifest
from lengthwise.corpora.shards import TokenReader
from lengthwise.corpora.tokenizers import ByteTokenizer, FileTokenizer, Tokenizer
from lengthwise.corpora.tokenizers.file import CONFIG, FILE
from lengthwise.corpora.writing import sha256_of
from lengthwise.values import ConfigError

ADVICE = "restore it from a copy, or prepare the corpus again with lengthwise tokenize"


class PreparedCorpus:
    """A folder of tokens. Opening it reads the manifest and the sizes of all files; tokens are read when they are
    needed.

    Raise `ConfigError` if the manifest or a file is missing or has another size, with the name of the file.
    """

    def __init__(self, folder: Path):
        self.folder, self.manifest = folder, read_manifest(folder)
        for name, (size, _) in self.manifest.expected().items():
            actual = file_size(folder / name)
            if actual is None:
                raise ConfigError(f"the corpus {folder} lacks its file {name}; {ADVICE}")
            if actual != size:
                raise ConfigError(f"{folder / name} is damaged: it must have {size:,} bytes, got {actual:,}; {ADVICE}")

    def lengths(self, split: str) -> NDArray[np.int64]:
        """Return the lengths of all documents of a split, in tokens."""
        lengths = np.fromfile(self.folder / lengths_file(split), LENGTH_TYPE).astype(np.int64)
        if int(lengths.sum()) != self.manifest.split(split).tokens or not lengths.all():
            raise ConfigError(
                f"{self.folder / lengths_file(split)} is damaged: its lengths are not those of the shards; {ADVICE}"
            )
        return lengths

    def reader(self, split: str) -> TokenReader:
        return TokenReader(self.folder, self.manifest, split)

    def unigram_counts(self) -> NDArray[np.int64]:
        """Return how often each token occurs in the training split."""
        return np.fromfile(self.folder / COUNTS, "<i8").astype(np.int64)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the tokens come from. Raise `ConfigError` if its files are damaged."""
        if not self.manifest.files:
            return ByteTokenizer()
        tokenizer = FileTokenizer.open(str(self.folder))
        if tokenizer.sha256 != self.manifest.tokenizer_sha256:
            raise ConfigError(f"the tokenizer in {self.folder} is not the one that prepared the corpus; {ADVICE}")
        return tokenizer


def file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def damages(corpus: Path, show: Callable[[str, float, float], None]) -> list[str]:
    """Return what is wrong with the files of a prepared corpus, one line for each; every byte is read.

    Raise `ConfigError` if its manifest is missing or damaged. `show` receives the progress.
    """
    manifest = read_manifest(corpus)
    expected: dict[str, tuple[int | None, str]] = {**manifest.expected()}
    expected |= {name: (None, manifest.files[name]) for name in (FILE, CONFIG) if name in manifest.files}
    problems = []
    for number, (name, (size, sha256)) in enumerate(expected.items()):
        show(f"checking {name}", number, len(expected))
        actual = file_size(corpus / name)
        if actual is None:
            problems.append(f"{name} is missing")
        elif size is not None and actual != size:
            problems.append(f"{name} must have {size:,} bytes, got {actual:,}")
        elif sha256_of(corpus / name) != sha256:
            problems.append(f"{name} has another SHA-256 than {NAME} says")
    return problems
