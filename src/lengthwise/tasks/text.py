"""Language modelling of bytes: the user's own text, or the one that every machine has."""

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
from lengthwise.tasks import corpus
from lengthwise.tasks.base import Baseline, Batch, Task, generator, mean_nats, require_length, require_split

BOS = 256
NGRAMS = {"uniform": 0, "unigram": 1, "bigram": 2, "trigram": 3}  # baselines, and the bytes that each counts together
FLOOR = 2  # a model that does no better than the counts of so many bytes has not learned to read
SMOOTHING = "interpolated Witten-Bell (Witten and Bell 1991; Chen and Goodman 1999)"
KEPT = 2  # texts whose counts a process keeps
_models: OrderedDict[tuple[str, float], NgramModel] = OrderedDict()  # by the text's hash and the share that is held out


class Text(Task):
    r"""Predict each byte of a piece of text from the bytes before it. `length` counts bytes.

    Length 5, piece "def f"; every target is scored:

        inputs   BOS d e f ␣
        targets  d   e f ␣ f

    The score is log perplexity: mean nats per byte of a piece, in one forward, without a sliding window. Token ids: the
    256 bytes, and 256 for BOS (an input only).

    `path`: "python" (Python's manual, docstrings and source, see `lengthwise.tasks.stdlib`), "python:manual",
    "python:docstrings", "python:source", a file, or a folder, of which the files that match `glob` are read (hidden
    ones do not count; a folder called python is written ./python). `validation` is the share of the bytes that is held
    out, by whole files, chosen by a hash of their names; of a single file it is the tail. `sha256` pins the names and
    bytes; left empty, `choose` writes it down, and a text that has changed since is refused. In a run's key it stands
    for path and glob.

    Training windows are uniform over all places in all training documents where one fits, and never reach across
    documents. Test pieces follow FIRE's protocol, the same text at every length: validation documents are cut from
    their beginning into chunks of `chunk` bytes (a last, shorter one is left out), chunks are shuffled, and each is cut
    into consecutive pieces of `length` bytes (what is left at its end is not used). So all lengths that divide `chunk`
    predict the same bytes, each exactly once, and the first n chunks are the same for all. A length over `chunk` makes
    its own chunks, each one piece, from the documents that are long enough: other text, and `note` says so. If no
    validation document is as long as `chunk`, chunks are as long as the greatest power of two that one has.

    Beside a model stand counts of the training text, scored on the same bytes of the same pieces: uniform (ln 256 = 5.545 nats),
    unigram, bigram and trigram, with interpolated Witten-Bell smoothing (`lengthwise.baselines.corpus`). They know what the model
    knows: at the beginning of a piece nothing, so that the first byte has unigram's probability in all of them. A model that
    is no better than the bigram at the trained length has not learned to read.
    """

    metric = "log perplexity"
    better = "lower"
    unit = "bytes"
    per_token = True
    excluded_from_key = ("path", "glob")

    vocab_size = 257
    output_size = 257

    def __init__(
        self, *, path: str = "python", glob: str = "**/*", validation: float = 0.1, sha256: str = "", chunk: int = 2048
    ):
        _require(validation, sha256, chunk)
        self.corpus, self.validation = corpus.read(path, glob), validation
        if sha256 and self.corpus.sha256 != sha256:
            by = f" as Python {self.corpus.python} has it" if self.corpus.python else ""
            raise ConfigError(
                f"the text {path}{by} has the SHA-256 {self.corpus.sha256[:12]}..., not {sha256[:12]}...: "
                "it has changed since; bring that text back, or start anew without sha256"
            )
        train, test = self.corpus.split(validation)
        self.documents = {"train": _Documents(train), "test": _Documents(test)}
        longest = self.documents["test"].longest
        self.chunk = chunk if longest >= chunk else 1 << (longest.bit_length() - 1)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Values, the path made absolute, and the hash of what lies there. With a hash given, nothing is read yet."""
        path, sha256 = settings["path"], settings["sha256"]
        _require(settings["validation"], sha256, settings["chunk"])
        path = corpus.absolute(path)
        return {**settings, "path": path, "sha256": sha256 or corpus.read(path, settings["glob"]).sha256}

    def tokens(self, length: int) -> int:
        return length

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        """Training windows, or test pieces in a fresh shuffle (which starts again where all pieces are used up)."""
        self.check_length(length, split)
        documents = self.documents[split]
        if split == "train":
            return self._batch(documents, documents.windows(generator, batch, length), length)
        chunk = max(self.chunk, length)
        pieces = chunk // length
        starts = documents.chunks(chunk)
        shuffles = -(-batch // (pieces * len(starts)))
        order = [torch.randperm(len(starts), generator=generator) for _ in range(shuffles)]
        wanted = torch.arange(batch)
        at = torch.cat(order)[wanted // pieces] if batch else wanted
        return self._batch(documents, starts[at] + wanted % pieces * length, length)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """The order of the chunks depends on the seed alone, so that every length is asked about the same text."""
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
            Baseline(name=name, scores=partial(self._ngram, order), floor=order <= FLOOR, fitted_on=fitted_on)
            for name, order in NGRAMS.items()
        ]

    def _ngram(self, order: int, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        nats = torch.from_numpy(self._counted().nats(batch.targets.numpy(), order))
        return (nats * batch.scored).sum(1, keepdim=True) / batch.scored.sum(1, keepdim=True)

    def _counted(self) -> NgramModel:
        """The counts of the training text, once in a process: every run of a study has the same text."""
        key = self.corpus.sha256, self.validation
        if key not in _models:
            train = self.documents["train"]
            _models[key] = NgramModel(train.data.numpy(), train.lengths.tolist(), order=max(NGRAMS.values()))
        _models.move_to_end(key)
        while len(_models) > KEPT:
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
        require_split(split)
        require_length(length, self.unit)
        longest = self.documents[split].longest
        if length > longest:
            word = "training" if split == "train" else "validation"
            raise ConfigError(
                f"a length of {length} bytes is more than the longest {word} document of {self.corpus.name} has "
                f"({longest}); ask for shorter ones or give longer text"
            )

    def note(self, length: int, found: int | None = None) -> str | None:
        where = f"length {length}, chunk {self.chunk}"
        if length > self.chunk:
            return f"{where}: only documents that long are asked, so the text is not that of shorter lengths"
        left = self.chunk % length
        return f"{where}: the last {left} bytes of each chunk are not asked" if left else None

    def _batch(self, documents: "_Documents", starts: Int[Tensor, " b"], length: int) -> Batch:
        targets = documents.data[starts[:, None] + torch.arange(length)].long()
        inputs = torch.empty_like(targets)
        inputs[:, 0] = BOS
        inputs[:, 1:] = targets[:, :-1]
        return Batch(inputs, targets, torch.ones_like(targets, dtype=torch.bool))


class _Documents:
    """The documents of a split, end to end in one tensor."""

    def __init__(self, documents: list[bytes]):
        self.data: UInt8[Tensor, " n"] = torch.frombuffer(bytearray(b"".join(documents)), dtype=torch.uint8)
        self.lengths = torch.tensor([len(document) for document in documents])
        self.starts = self.lengths.cumsum(0) - self.lengths
        self.longest = int(self.lengths.max())
        self._fit: tuple[int, Tensor] | None = None
        self._chunks: dict[int, Tensor] = {}

    def windows(self, generator: torch.Generator, batch: int, length: int) -> Int[Tensor, " b"]:
        """Where `batch` windows begin, uniform over all places where one fits into a document."""
        if self._fit is None or self._fit[0] != length:
            self._fit = length, (self.lengths - length + 1).clamp(min=0).cumsum(0)
        places = self._fit[1]
        drawn = torch.randint(int(places[-1]), (batch,), generator=generator)
        document = torch.searchsorted(places, drawn, right=True)
        # places[document] are up to and with this document: counted back from its last window
        return self.starts[document] + self.lengths[document] - length + 1 - (places[document] - drawn)

    def chunks(self, size: int) -> Int[Tensor, " m"]:
        """Where the whole chunks of that size begin, document by document."""
        if size not in self._chunks:
            count = self.lengths // size
            first = (count.cumsum(0) - count).repeat_interleave(count)
            self._chunks[size] = self.starts.repeat_interleave(count) + (torch.arange(len(first)) - first) * size
        return self._chunks[size]


def readable(tokens: list[int]) -> str:
    r"""Bytes as people read them: UTF-8 as it stands; `\n`, `\t`, `\\`, and `\xe2` for the rest; `<BOS>`."""
    start = "<BOS>" if tokens[:1] == [BOS] else ""
    text = bytes(tokens[1:] if start else tokens).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return start + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _require(validation: float, sha256: str, chunk: int) -> None:
    if not 0 < validation < 1:
        raise ConfigError(f"Text.validation is {validation}; it is a share of the text, more than 0 and less than 1")
    if chunk < 1:
        raise ConfigError(f"Text.chunk is {chunk}; it has to be at least 1 byte")
    if sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ConfigError(f"Text.sha256 is {sha256!r}; it is 64 lower-case hexadecimal digits, or empty")
