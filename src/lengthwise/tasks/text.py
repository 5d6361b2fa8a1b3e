"""Language modelling of bytes or tokens, on the user's own text or on Python's standard library."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lengthwise.config import ConfigError, settings_of
from lengthwise.corpora import in_memory
from lengthwise.metrics import CROSS_ENTROPY
from lengthwise.tasks.base import Baseline, Batch, Task, generator, mean_nats, nats
from lengthwise.tasks.text_data import Documents, identity, is_prepared_text, open_text, unit_of

NGRAMS = {"uniform": 0, "unigram": 1, "bigram": 2, "trigram": 3}  # baselines and their order
FLOOR_ORDER = 2  # n-grams up to this order are floors
SMOOTHING = "interpolated Witten-Bell (Witten and Bell 1991; Chen and Goodman 1999)"


class Text(Task):
    r"""Predict each byte of a piece of text from the bytes before it. `length` counts bytes, or tokens of a prepared
    corpus.

    Length 5, piece "def f"; every target is scored:

        inputs   BOS d e f ␣
        targets  d   e f ␣ f

    The score is the cross-entropy (metric "cross-entropy"): the mean nats per byte of a piece, in one forward pass
    without a sliding window. Token ids: the 256 bytes, and 256 for BOS (an input only). A corpus that `lengthwise
    tokenize` prepared has the ids of its tokenizer instead; then everything below counts tokens where it says bytes.

    Settings:

    - `path`: "python" (Python's manual, docstrings and source, see `lengthwise.corpora.stdlib`), "python:manual",
      "python:docstrings", "python:source", a file, or a folder. In a folder, all files that match `glob` are read,
      except hidden ones. Write ./python for a folder named python. Files of JSON lines (.jsonl, field "text") and
      .parquet have several documents, and .gz, .bz2, .xz and .zst are decompressed. All of them are held in memory. A
      folder that `lengthwise tokenize` wrote may have any size, because it is read from the disk.
    - `validation`: the share of bytes that is held out, in whole files that a hash of their names selects; the tail of
      a single file. A prepared corpus has its own share.
    - `targets`: 0 scores all bytes of a piece. n scores only its last n bytes, and the pieces of all lengths end at the
      same
      places: every length predicts the same bytes, with more or less text before them.
    - `stride`: 0 cuts test text into pieces that do not overlap. n is a sliding window: each piece begins n bytes after
      the one before it, and only its last n bytes are scored.
    - `sha256`: identifies the names and bytes of the text, and stands for `path` and `glob` in a run's key. If it is
      empty, `choose` fills it in. A text that has changed since is refused.

    Training windows are uniform over all positions in all training documents where a window fits; they never cross
    documents. Test pieces follow FIRE's protocol, which uses the same text at every length. Each validation document is
    cut from its beginning into chunks of `chunk` bytes (without a shorter rest). The chunks are shuffled, and each is
    cut into consecutive pieces of `length` bytes (a rest at its end is not used). So all lengths that divide `chunk`
    predict the same bytes, each exactly once, and the first n chunks are the same for all of them. For a length above
    `chunk`, each chunk is one piece of this length, from the documents that are long enough; this is other text, and
    `note` says so. If no validation document is as long as `chunk`, chunks have the largest power of two that fits into
    the longest document.

    This protocol cannot tell whether a model uses a longer context, or only fails at positions that it was not trained
    on: in a longer piece, both change. `targets` separates them. A piece of `length` bytes ends where its chunk ends,
    so a score at length 512 and one at 64 differ only in the text before the same `targets` bytes. There are as many
    pieces as chunks, and an evaluation of `tokens` bytes takes tokens / chunk of them at every length, so it never
    costs more than the protocol above. Lengths must lie between `targets` and `chunk`. Evaluate both protocols of one
    trained model with `EvaluationConfig(..., shifts=({"targets": 64},))`, and other texts with `shifts=({"path":
    "FOLDER"},)`.

    Baselines are n-gram models of the training text, scored on the same bytes of the same pieces: uniform (ln 256 =
    5.545 nats), unigram, bigram and trigram, with interpolated Witten-Bell smoothing (`lengthwise.baselines.corpus`).
    Like the model they know nothing before a piece begins, so the first byte has the unigram's probability in all of
    them but uniform. A model that is no better than the bigram at the training length has not learned the task. For a
    prepared corpus, the unigram has the counts of the whole training text, and bigram and trigram those of documents at
    equal distances with 4 million tokens together.
    """

    metric = CROSS_ENTROPY
    unit = "bytes"
    per_token = True
    excluded_from_key = ("path", "glob")

    vocab_size = 257
    output_size = 257

    def __init__(
        self,
        *,
        path: str = "python",
        glob: str = "**/*",
        validation: float = 0.1,
        sha256: str = "",
        chunk: int = 2048,
        targets: int = 0,
        stride: int = 0,
    ):
        self.check(
            {
                "path": path,
                "glob": glob,
                "validation": validation,
                "sha256": sha256,
                "chunk": chunk,
                "targets": targets,
                "stride": stride,
            }
        )
        self.targets, self.stride = targets, stride
        self.data = open_text(path, glob, validation)
        if sha256 and self.data.sha256 != sha256:
            version = f" of Python {python}" if (python := self.data.facts().get("corpus_python")) else ""
            raise ConfigError(
                f"the text {path}{version} must have the SHA-256 {sha256[:12]}..., got {self.data.sha256[:12]}...: it "
                "has changed; restore the old text, or leave sha256 out"
            )
        self.documents = self.data.documents
        self.unit = self.data.vocabulary.unit  # type: ignore[misc]
        self.vocab_size = self.output_size = self.data.vocabulary.vocab_size
        self.text_tokenizer, self.tokenizer_sha256 = self.data.tokenizer, self.data.tokenizer_sha256
        longest = self.documents["test"].longest
        self.chunk = chunk if longest >= chunk else 1 << (longest.bit_length() - 1)

    @classmethod
    def check(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Check the values, make the path absolute, and fill in the hash. With a `sha256` the text is not read yet."""
        validation, sha256 = settings["validation"], settings["sha256"]
        if not 0 < validation < 1:
            raise ConfigError(f"Text.validation, a share of the text, must be above 0 and below 1, got {validation}")
        if settings["chunk"] < 1:
            raise ConfigError(f"Text.chunk must be at least 1 byte, got {settings['chunk']}")
        for name in ("targets", "stride"):
            if settings[name] < 0:
                raise ConfigError(f"Text.{name} must be at least 0, got {settings[name]}")
        if settings["targets"] and settings["stride"]:
            raise ConfigError(
                f"Text takes targets or stride, got targets {settings['targets']} and stride {settings['stride']}; "
                "omit one"
            )
        path = in_memory.absolute(settings["path"])
        if path != path.encode("utf-8", "replace").decode():
            raise ConfigError(f"the file name {path!r} is not valid UTF-8, so it cannot be stored; rename it")
        file_settings = (
            {} if sha256 else identity(path, settings["glob"], validation, settings_of(cls)["validation"].default)
        )
        return {**settings, "path": path, **file_settings}

    @classmethod
    def changed(cls, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Another text has another hash, and a prepared corpus has its own share of validation."""
        stale: dict[str, Any] = {"sha256": ""} if any(name in changes for name in cls.excluded_from_key) else {}
        if "path" in changes and any(map(is_prepared_text, (settings["path"], str(changes["path"])))):
            stale["validation"] = settings_of(cls)["validation"].default
        return {**settings, **stale, **changes}

    @classmethod
    def unit_of(cls, settings: Mapping[str, Any]) -> str:
        return unit_of(settings["path"])

    def tokens(self, length: int) -> int:
        return length

    def sample(self, generator: torch.Generator, batch: int, length: int, split: str = "train") -> Batch:
        """Draw training windows, or test pieces in random order; after the last piece a new random order begins."""
        self.check_length(length, split)
        documents = self.documents[split]
        if split == "train":
            return self._batch(documents, documents.windows(generator, batch, length), length)
        chunk = max(self.chunk, length)
        pieces = self._pieces(length)
        starts = documents.chunks(chunk)
        shuffles = -(-batch // (pieces * len(starts)))
        order = [torch.randperm(len(starts), generator=generator) for _ in range(shuffles)]
        rows = torch.arange(batch)
        chunks = torch.cat(order)[rows // pieces] if batch else rows
        in_chunk = chunk - length if self.targets else rows % pieces * (self.stride or length)
        return self._batch(documents, starts[chunks] + in_chunk, length, self.targets or self.stride or length)

    def examples(self, seed: int, count: int, length: int, split: str = "test") -> Batch:
        """Return test pieces. The order of the chunks depends on the seed alone, so all lengths use the same text."""
        available = self.available(length, split)
        return self.sample(generator(seed, split), count if available is None else min(count, available), length, split)

    def available(self, length: int, split: str = "test") -> int | None:
        self.check_length(length, split)
        if split == "train":
            return None
        return len(self.documents[split].chunks(max(self.chunk, length))) * self._pieces(length)

    def num_examples(self, tokens: int, length: int) -> int:
        """With `targets` the number is the same at all lengths, so that they score the same bytes."""
        return super().num_examples(tokens, self.chunk if self.targets else length)

    def _pieces(self, length: int) -> int:
        """Return the number of test pieces in a chunk."""
        if self.targets:
            return 1
        return (max(self.chunk, length) - length) // (self.stride or length) + 1

    def token_scores(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, "b t"]:
        return nats(logits, batch)

    def score(self, logits: Float[Tensor, "b t v"], batch: Batch) -> Float[Tensor, " b"]:
        return mean_nats(logits, batch)

    def baselines(self) -> list[Baseline]:
        return [
            Baseline(
                name=name, scores=partial(self._ngram, order), floor=order <= FLOOR_ORDER, fitted_on=self.data.fitted_on
            )
            for name, order in NGRAMS.items()
        ]

    def _ngram(self, order: int, batch: Batch, lengths: Sequence[int]) -> Float[Tensor, "b n"]:
        nats = torch.from_numpy(self.data.nats(batch.targets.numpy(), order))
        return (nats * batch.scored).sum(1, keepdim=True) / batch.scored.sum(1, keepdim=True)

    def render(self, batch: Batch) -> list[dict[str, Any]]:
        pairs = zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True)
        return [{"input": self.readable(i), "target": self.readable(t), "length": len(t)} for i, t in pairs]

    def readable(self, tokens: list[int]) -> str:
        """Return tokens as readable text, like `readable`, with `<BOS>` for the token BOS."""
        start = "<BOS>" if tokens[:1] == [self.data.vocabulary.bos] else ""
        return start + readable(self.data.tokenizer.decode(tokens[1:] if start else tokens))

    def provenance(self) -> dict[str, str | int]:
        return self.data.facts() | {"ngram_smoothing": SMOOTHING}

    def check_length(self, length: int, split: str = "test") -> None:
        super().check_length(length, split)
        longest = self.documents[split].longest
        if length > longest:
            name = "training" if split == "train" else "validation"
            raise ConfigError(
                f"length must be at most {longest} {self.unit}, the longest {name} document of {self.data.name}, got "
                f"{length}; take a shorter length or a longer text"
            )
        if split == "train":
            return
        if self.targets and not self.targets <= length <= self.chunk:
            shorter = f"; the longest validation document has {longest}" if longest < self.chunk * 2 else ""
            raise ConfigError(
                f"with targets={self.targets}, length must be from {self.targets} to the chunk of {self.chunk} "
                f"{self.unit}, got {length}; leave it out, or change targets or chunk{shorter}"
            )
        if self.stride > length:
            raise ConfigError(
                f"with stride={self.stride}, length must be at least {self.stride} {self.unit}, got {length}; take a "
                "smaller stride"
            )

    def note(self, length: int, num_examples: int | None = None) -> str | None:
        prefix = f"length {length}, chunk {self.chunk}"
        if self.targets:
            return (
                f"only the last {self.targets} {self.unit} of each piece are scored; they are the same at every length"
            )
        if self.stride:
            return f"a window slides by {self.stride} {self.unit}, and its last {self.stride} are scored"
        if length > self.chunk:
            return (
                f"{prefix}: only documents of at least this length are used, so the text differs from shorter lengths"
            )
        unused = self.chunk % length
        return f"{prefix}: the last {unused} {self.unit} of each chunk are not used" if unused else None

    def _batch(self, documents: Documents, starts: Int[Tensor, " b"], length: int, scored: int | None = None) -> Batch:
        """Return windows of the documents whose last `scored` tokens count; None: all."""
        targets = documents.read(starts, length)
        inputs = torch.cat([torch.full_like(targets[:, :1], self.data.vocabulary.bos), targets[:, :-1]], 1)
        is_scored = torch.arange(length) >= length - (length if scored is None else scored)
        return Batch(inputs, targets, is_scored.expand(targets.shape))


def readable(data: bytes) -> str:
    r"""Return bytes as readable text: valid UTF-8 unchanged, and escapes such as `\n`, `\\` and `\xe2`."""
    text = data.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
