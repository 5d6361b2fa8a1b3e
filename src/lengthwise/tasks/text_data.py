"""The data of the task `Text`: documents in memory, or in a prepared corpus of any size."""

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.baselines.corpus import NgramModel
from lengthwise.config import ConfigError
from lengthwise.corpora import in_memory
from lengthwise.corpora.manifest import SPLITS, Manifest, is_prepared
from lengthwise.corpora.prepared import PreparedCorpus
from lengthwise.corpora.tokenizers import ByteTokenizer, Tokenizer

MAX_ORDER = 3  # of n-grams
NGRAM_TOKENS = 1 << 22  # of a prepared corpus whose n-grams are counted; counting takes up to 300 MB
MAX_CACHED = 2  # texts whose n-gram counts a process keeps
fitted_models: OrderedDict[str, NgramModel] = OrderedDict()  # by `fitted_on`


class Documents:
    """The documents of a split, one after another. Their tokens are numbered from 0.

    `read(starts, length)` returns `length` tokens from each start, int64 [b, length]; each window lies within one
    document. Memory for the places of documents is 24 bytes each.
    """

    def __init__(self, lengths: Int[Tensor, " d"], read: Callable[[Int[Tensor, " b"], int], Int[Tensor, "b t"]]):
        self.lengths, self.read = lengths, read
        self.starts = lengths.cumsum(0) - lengths
        self.longest = int(lengths.max())
        self._window_counts: tuple[int, Tensor] | None = None  # length, and the number of windows up to each document
        self._chunks: dict[int, Tensor] = {}

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.lengths.sum())

    def windows(self, generator: torch.Generator, batch: int, length: int) -> Int[Tensor, " b"]:
        """Draw the starts of `batch` windows, uniformly over all positions where a window fits into a document."""
        if self._window_counts is None or self._window_counts[0] != length:
            self._window_counts = length, (self.lengths - length + 1).clamp(min=0).cumsum(0)
        counts = self._window_counts[1]
        window = torch.randint(int(counts[-1]), (batch,), generator=generator)
        document = torch.searchsorted(counts, window, right=True)
        # counts[document] includes this document's windows, so the start is counted back from its last window.
        return self.starts[document] + self.lengths[document] - length + 1 - (counts[document] - window)

    def chunks(self, size: int) -> Int[Tensor, " m"]:
        """Return the starts of all complete chunks of this size, document by document."""
        if size not in self._chunks:
            count = self.lengths // size
            first = (count.cumsum(0) - count).repeat_interleave(count)
            self._chunks[size] = self.starts.repeat_interleave(count) + (torch.arange(len(first)) - first) * size
        return self._chunks[size]


def documents_in_memory(documents: list[bytes]) -> Documents:
    """Return documents of bytes, which are in memory as one tensor."""
    data = torch.frombuffer(bytearray(b"".join(documents)), dtype=torch.uint8)
    lengths = torch.tensor([len(document) for document in documents])
    return Documents(lengths, lambda starts, length: data[starts[:, None] + torch.arange(length)].long())


def documents_on_disk(corpus: PreparedCorpus, split: str) -> Documents:
    """Return the documents of a split of a prepared corpus, whose tokens are read when they are needed."""
    reader = corpus.reader(split)
    lengths = torch.from_numpy(corpus.lengths(split))
    return Documents(lengths, lambda starts, length: torch.from_numpy(reader.read(starts.numpy(), length)))


class TextData(ABC):
    """What `Text` needs to know about its text.

    `name`: for messages. `sha256`: identifies the documents, their tokens and, for a prepared corpus, their split.
    `validation`: the share that is held out. `documents`: by split, "train" and "test". `vocabulary`: what has the
    `unit`, `vocab_size`, `target_size` and `bos` of the tokenizer.
    """

    name: str
    sha256: str
    validation: float
    documents: dict[str, Documents]
    tokenizer_sha256: str = ""  # of a trained tokenizer
    vocabulary: Tokenizer | Manifest

    @property
    def fitted_on(self) -> str:
        """Identifies the text that n-grams are counted in."""
        return f"{self.sha256} {self.validation}"

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which only showing text needs."""

    @abstractmethod
    def facts(self) -> dict[str, str | int]:
        """Return what a run stores about its text."""

    @abstractmethod
    def ngram_text(self) -> tuple[NDArray[np.unsignedinteger], list[int]]:
        """Return the tokens in which n-grams are counted, and the lengths of their documents."""

    def nats(self, targets: NDArray[np.int64], order: int) -> NDArray[np.float64]:
        """Return -log P of every target [b, t] in an n-gram model of this order; 0 is the uniform distribution."""
        return self._ngram_model().nats(targets, order)

    def _ngram_model(self) -> NgramModel:
        """Return the n-gram model of the training text. It is cached, because all runs of a study have one text."""
        key = self.fitted_on
        if key not in fitted_models:
            tokens, lengths = self.ngram_text()
            fitted_models[key] = NgramModel(tokens, lengths, order=MAX_ORDER, symbols=self.vocabulary.target_size)
        fitted_models.move_to_end(key)
        while len(fitted_models) > MAX_CACHED:
            fitted_models.popitem(last=False)
        return fitted_models[key]


class TextInMemory(TextData):
    """Bytes of a file, a folder or Python's standard library."""

    def __init__(self, path: str, glob: str, validation: float):
        self.corpus = in_memory.read(path, glob)
        self.name, self.sha256, self.validation = self.corpus.name, self.corpus.sha256, validation
        self.vocabulary = ByteTokenizer()
        splits = zip(("train", "test"), self.corpus.split(validation), strict=True)
        self.documents = {split: documents_in_memory(documents) for split, documents in splits}

    @property
    def tokenizer(self) -> Tokenizer:
        return ByteTokenizer()

    def facts(self) -> dict[str, str | int]:
        facts: dict[str, str | int] = {"corpus": self.name, "corpus_sha256": self.sha256}
        if self.corpus.python:
            facts["corpus_python"] = self.corpus.python
        facts |= {"corpus_documents": len(self.corpus.documents), "corpus_bytes": self.corpus.size}
        for split, documents in self.documents.items():
            facts |= {f"{split}_documents": len(documents.lengths), f"{split}_bytes": documents.size}
        return facts

    def ngram_text(self) -> tuple[NDArray[np.unsignedinteger], list[int]]:
        documents = self.corpus.split(self.validation)[0]
        return np.frombuffer(b"".join(documents), np.uint8), list(map(len, documents))


class PreparedText(TextData):
    """Tokens of a folder that `lengthwise tokenize` wrote. Raise `ConfigError` if it is damaged or incomplete."""

    def __init__(self, path: str):
        self.corpus = PreparedCorpus(Path(path))
        manifest = self.corpus.manifest
        self.name, self.sha256, self.validation = self.corpus.folder.name, manifest.sha256, manifest.validation
        self.tokenizer_sha256 = manifest.tokenizer_sha256
        self.vocabulary = manifest
        self.documents = {
            split: documents_on_disk(self.corpus, name) for split, name in zip(("train", "test"), SPLITS, strict=True)
        }

    @property
    def tokenizer(self) -> Tokenizer:
        return self.corpus.tokenizer

    @property
    def fitted_on(self) -> str:
        return f"{super().fitted_on} {NGRAM_TOKENS}"

    def facts(self) -> dict[str, str | int]:
        manifest = self.corpus.manifest
        facts: dict[str, str | int] = {"corpus": self.name, "corpus_sha256": self.sha256}
        facts |= {"corpus_tokenizer": manifest.tokenizer, "corpus_tokenizer_sha256": manifest.tokenizer_sha256}
        for split, name in zip(("train", "test"), SPLITS, strict=True):
            split_manifest = manifest.split(name)
            facts |= {
                f"{split}_documents": split_manifest.documents,
                f"{split}_tokens": split_manifest.tokens,
                f"{split}_bytes": split_manifest.bytes,
            }
        return facts

    def nats(self, targets: NDArray[np.int64], order: int) -> NDArray[np.float64]:
        """See `TextData.nats`. The unigram has the counts of the whole training split, and needs no other."""
        size = self.vocabulary.target_size
        if order == 0:
            return np.full(targets.shape, math.log(size))
        if order > 1:
            return super().nats(targets, order)
        counts = self.corpus.unigram_counts()
        distinct = np.count_nonzero(counts)
        return np.log(counts.sum() + distinct) - np.log(counts[targets] + distinct / size)

    def ngram_text(self) -> tuple[NDArray[np.unsignedinteger], list[int]]:
        """Return every n-th document, with the smallest n that gives about `NGRAM_TOKENS` tokens."""
        documents = self.documents["train"]
        step = -(-documents.size // NGRAM_TOKENS)
        lengths = documents.lengths[::step]
        lengths = torch.minimum(lengths, (NGRAM_TOKENS - lengths.cumsum(0) + lengths).clamp(min=0))
        used = lengths > 0
        pairs = zip(documents.starts[::step][used], lengths[used].tolist(), strict=True)
        tokens = [documents.read(start[None], length)[0].numpy() for start, length in pairs]
        return np.concatenate(tokens).astype(self.corpus.manifest.dtype), lengths[used].tolist()


def open_text(path: str, glob: str, validation: float) -> TextData:
    """Return the text at `path`. `validation` does not count for a prepared corpus, which has its own split."""
    path = in_memory.absolute(path)
    return PreparedText(path) if is_prepared_text(path) else TextInMemory(path, glob, validation)


def is_prepared_text(path: str) -> bool:
    """Return whether the text at `path` is a corpus that `lengthwise tokenize` wrote."""
    return not in_memory.is_built_in(path) and is_prepared(Path(path))


def identity(path: str, glob: str, validation: float, default: float) -> dict[str, Any]:
    """Return the hash of a text and the share that is held out.

    Raise `ConfigError` if a prepared corpus has another share; `default` stands for any share.
    """
    if not is_prepared_text(path):
        return {"sha256": in_memory.read(path, glob).sha256, "validation": validation}
    manifest = PreparedCorpus(Path(path)).manifest
    if validation not in (default, manifest.validation):
        raise ConfigError(
            f"the corpus {path} was prepared with validation={manifest.validation}, got {validation}; leave validation "
            "out, or prepare another corpus with lengthwise tokenize --validation"
        )
    return {"sha256": manifest.sha256, "validation": manifest.validation}


def unit_of(path: str) -> str:
    """Return what a length counts: "bytes", or "tokens" of a prepared corpus."""
    return PreparedCorpus(Path(path)).manifest.unit if is_prepared_text(path) else ByteTokenizer.unit
