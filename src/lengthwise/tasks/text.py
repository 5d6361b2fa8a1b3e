"""Language modelling of bytes, on the user's own text or on Python's standard library."""

import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from lengthwise.baselines.corpus import NgramModel
from lengthwise.config import ConfigError
from lengthwise.corpora import in_memory as corpus
from lengthwise.metrics import CROSS_ENTROPY
from lengthwise.tasks.base import Baseline, Batch, Task, generator, mean_nats

BOS = 256
NGRAMS = {"uniform": 0, "unigram": 1, "bigram": 2, "trigram": 3}  # baselines and their order
FLOOR_ORDER = 2  # n-grams up to this order are floors
SMOOTHING = "interpolated Witten-Bell (Witten and Bell 1991; Chen and Goodman 1999)"
MAX_CACHED = 2  # texts whose n-gram counts a process keeps
_models: OrderedDict[tuple[str, float], NgramModel] = OrderedDict()  # by the text's hash and its validation share


class Text(Task):
    r"""Predict each byte of a piece of text from the bytes before it. `length` counts bytes.

    Length 5, piece "def f"; every target is scored:

        inputs   BOS d e f ␣
        targets  d   e f ␣ f

    The score is the cross-entropy (metric "cross-entropy"): the mean nats per byte of a piece, in one forward pass without a
    sliding window. Token ids: the 256 bytes, and 256 for BOS (an input only).

    Settings:

    - `path`: "python" (Python's manual, docstrings and source, see `lengthwise.corpora.stdlib`), "python:manual",
      "python:docstrings", "python:source", a file, or a folder. In a folder, all files that match `glob` are read, except hidden
      ones. Write ./python for a folder named python.
    - `validation`: the share of bytes that is held out, in whole files that a hash of their names selects; the tail of a single
      file.
    - `sha256`: identifies the names and bytes of the text, and stands for `path` and `glob` in a run's key. If it is empty,
      `choose` fills it in. A text that has changed since is refused.

    Training windows are uniform over all positions in all training documents where a window fits; they never cross documents. Test
    pieces follow FIRE's protocol, which uses the same text at every length. Each validation document is cut from its beginning into
    chunks of `chunk` bytes (without a shorter rest). The chunks are shuffled, and each is cut into consecutive pieces of `length`
    bytes (a rest at its end is not used). So all lengths that divide `chunk` predict the same bytes, each exactly once, and the
    first n chunks are the same for all of them. For a length above `chunk`, each chunk is one piece of this length, from the
    documents that are long enough; this is other text, and `note` says so. If no validation document is as long as `chunk`, chunks
    have the largest power of two that fits into the longest document.

    Baselines are n-gram models of the training text, scored on the same bytes of the same pieces: uniform (ln 256 = 5.545 nats),
    unigram, bigram and trigram, with interpolated Witten-Bell smoothing (`lengthwise.baselines.corpus`). Like the model they know
    nothing before a piece begins, so the first byte has the unigram's probability in all of them but uniform. A model that is no
    better than the bigram at the training length has not learned the task.
    """

    metric = CROSS_ENTROPY
    unit = "bytes"
    per_token = True
    excluded_from_key = ("path", "glob")

    vocab_size = 257
    output_size = 257

    def __init__(
        self, *, path: str = "python", glob: str = "**/*", validation: float = 0.1, sha256: str = "", chunk: int = 2048
    ):
        self.check({"path": path, "glob": glob, "validation": validation, "sha256": sha256, "chunk": chunk})
        self.corpus, self.validation = corpus.read(path, glob), validation
        if sha256 and self.corpus.sha256 != sha256:
            version = f" of Python {self.corpus.python}" if self.corpus.python else ""
            raise ConfigError(
                f"the text {path}{version} must have the SHA-256 {sha256[:12]}..., got {self.corpus.sha256[:12]}...: it has "
                "changed; restore the old text, or leave sha256 out"
            )
        train, test = self.corpus.split(validation)
        self.documents = {"train": _Documents(train), "test": _Documents(test)}
        longest = self.documents["test"].longest
        self.chunk = chunk if longest >= chunk else 1 << (longest.bit_length() - 1)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Check the values, make the path absolute, and fill in the text's hash. With a `sha256` the text is not read yet."""
        validation, sha256 = settings["validation"], settings["sha256"]
        if not 0 < validation < 1:
            raise ConfigError(f"Text.validation, a share of the text, must be above 0 and below 1, got {validation}")
        if settings["chunk"] < 1:
            raise ConfigError(f"Text.chunk must be at least 1 byte, got {settings['chunk']}")
        if sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
            raise ConfigError(f"Text.sha256 must be 64 lower-case hexadecimal digits, or empty, got {sha256!r}")
        path = corpus.absolute(settings["path"])
        return {**settings, "path": path, "sha256": sha256 or corpus.read(path, settings["glob"]).sha256}

    def tokens(self, length: int) -> int:
        return length

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        """Draw training windows, or test pieces in random order; after the last piece a new random order begins."""
        self.check_length(length, split)
        documents = self.documents[split]
        if split == "train":
            return self._batch(documents, documents.windows(generator, batch, length), length)
        chunk = max(self.chunk, length)
        pieces = chunk // length
        starts = documents.chunks(chunk)
        shuffles = -(-batch // (pieces * len(starts)))
        order = [torch.randperm(len(starts), generator=generator) for _ in range(shuffles)]
        rows = torch.arange(batch)
        chunks = torch.cat(order)[rows // pieces] if batch else rows
        return self._batch(documents, starts[chunks] + rows % pieces * length, length)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """Return test pieces. The order of the chunks depends on the seed alone, so all lengths use the same text."""
        available = self.available(length, split)
        return self.sample(generator(seed, split), count if available is None else min(count, available), length, split)

    def available(self, length: int, split: str = "test") -> int | None:
        self.check_length(length, split)
        if split == "train":
            return None
        chunk = max(self.chunk, length)
        return len(self.documents[split].chunks(chunk)) * (chunk // length)

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return mean_nats(logits, batch)

    def baselines(self) -> list[Baseline]:
        fitted_on = f"{self.corpus.sha256} {self.validation}"
        return [
            Baseline(name=name, scores=partial(self._ngram, order), floor=order <= FLOOR_ORDER, fitted_on=fitted_on)
            for name, order in NGRAMS.items()
        ]

    def _ngram(self, order: int, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        nats = torch.from_numpy(self._ngram_model().nats(batch.targets.numpy(), order))
        return (nats * batch.scored).sum(1, keepdim=True) / batch.scored.sum(1, keepdim=True)

    def _ngram_model(self) -> NgramModel:
        """Return the n-gram model of the training text. A process caches it, because all runs of a study have the same text."""
        key = self.corpus.sha256, self.validation
        if key not in _models:
            train = self.documents["train"]
            _models[key] = NgramModel(train.data.numpy(), train.lengths.tolist(), order=max(NGRAMS.values()))
        _models.move_to_end(key)
        while len(_models) > MAX_CACHED:
            _models.popitem(last=False)
        return _models[key]

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        pairs = zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        return [{"input": readable(i), "target": readable(t), "length": len(t)} for i, t in pairs]

    def provenance(self) -> dict[str, str | int]:
        facts: dict[str, str | int] = {"corpus": self.corpus.name, "corpus_sha256": self.corpus.sha256}
        if self.corpus.python:
            facts["corpus_python"] = self.corpus.python
        facts |= {"corpus_documents": len(self.corpus.documents), "corpus_bytes": self.corpus.size}
        for split, documents in self.documents.items():
            facts |= {f"{split}_documents": len(documents.lengths), f"{split}_bytes": len(documents.data)}
        return facts | {"ngram_smoothing": SMOOTHING}

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        longest = self.documents[split].longest
        if length > longest:
            name = "training" if split == "train" else "validation"
            raise ConfigError(
                f"length must be at most {longest} bytes, the longest {name} document of {self.corpus.name}, got {length}; take a "
                "shorter length or a longer text"
            )

    def note(self, length: int, num_examples: int | None = None) -> str | None:
        prefix = f"length {length}, chunk {self.chunk}"
        if length > self.chunk:
            return (
                f"{prefix}: only documents of at least this length are used, so the text differs from shorter lengths"
            )
        unused = self.chunk % length
        return f"{prefix}: the last {unused} bytes of each chunk are not used" if unused else None

    def _batch(self, documents: "_Documents", starts: Int[Tensor, " b"], length: int) -> Batch:
        targets = documents.data[starts[:, None] + torch.arange(length)].long()
        inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], 1)
        return Batch(inputs, targets, torch.ones_like(targets, dtype=torch.bool))


class _Documents:
    """The documents of a split, concatenated in one tensor."""

    def __init__(self, documents: list[bytes]):
        self.data: UInt8[Tensor, " n"] = torch.frombuffer(bytearray(b"".join(documents)), dtype=torch.uint8)
        self.lengths = torch.tensor([len(document) for document in documents])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.longest = int(self.lengths.max())
        self._window_counts: tuple[int, Tensor] | None = None  # length, and the number of windows up to each document
        self._chunks: dict[int, Tensor] = {}

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


def readable(tokens: list[int]) -> str:
    r"""Return bytes as readable text: valid UTF-8 unchanged, escapes such as `\n`, `\\` and `\xe2`, and `<BOS>`."""
    start = "<BOS>" if tokens[:1] == [BOS] else ""
    text = bytes(tokens[1:] if start else tokens).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return start + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
