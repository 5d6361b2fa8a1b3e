"""Files of labelled sentences in the CoNLL format: a token and its label on a line, empty lines between sentences."""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from lengthwise.corpora.sources.listing import signature
from lengthwise.values import ConfigError

OUTSIDE = "O"
DOCUMENT = "-DOCSTART-"  # a line that begins with it begins a document
LABEL = re.compile(r"O|[BI]-\S+")


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a sentence and the IOB2 label of each: "B-PER" begins a person, "I-PER" continues it, "O": none."""

    words: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class TaggedSentences:
    """Sentences in the order of their file, at least one, each with at least one word."""

    sentences: tuple[TaggedSentence, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.sentences)

    @cached_property
    def sha256(self) -> str:
        """The hash of all words and labels."""
        return hashlib.sha256(self.conll().encode()).hexdigest()

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The different words, sorted."""
        return tuple(sorted({word for sentence in self.sentences for word in sentence.words}))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """O, and B and I of every type, sorted by type. A type has both, also if only one occurs."""
        types = {label[2:] for sentence in self.sentences for label in sentence.labels} - {""}
        return (OUTSIDE, *(f"{prefix}-{name}" for name in sorted(types) for prefix in "BI"))

    def first(self, count: int) -> "TaggedSentences":
        """Return the first `count` sentences."""
        return TaggedSentences(self.sentences[:count])

    def conll(self) -> str:
        """Return the sentences as a CoNLL file, with a tab between token and label."""
        rows = (zip(sentence.words, sentence.labels, strict=True) for sentence in self.sentences)
        return "\n".join("".join(f"{word}\t{label}\n" for word, label in pairs) for pairs in rows)


def read_conll(path: str) -> TaggedSentences:
    """Return the sentences of a CoNLL file.

    The columns of a line are separated by tabs or, if it has none, by spaces; the first is the token and the last its
    label. Lines that begin with -DOCSTART- are skipped, and end a sentence as empty lines do. Raises `ConfigError` for
    a file that is missing, not UTF-8 or without sentences, and names the line without a label or with one that is not
    IOB2. The file is read again only if it has changed.
    """
    try:
        return _read(Path(path), signature(Path(path).stat()))
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; name a CoNLL file that exists") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}; name a CoNLL file") from None


@lru_cache(maxsize=4)  # a study reads the same file many times
def _read(path: Path, file_signature: tuple[int, ...]) -> TaggedSentences:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} must be UTF-8 text, got byte 0x{error.object[error.start]:02x}; convert it"
        ) from None
    sentences: list[TaggedSentence] = []
    words: list[str] = []
    labels: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.rstrip(" \t\r")
        if line and not line.startswith(DOCUMENT):
            columns = re.split("\t" if "\t" in line else " +", line)
            try:
                labels.append(_label(columns, labels[-1] if labels else OUTSIDE))
            except ConfigError as error:
                raise ConfigError(f"{path}, line {number}: {error}") from None
            words.append(columns[0])
        elif words:
            sentences.append(TaggedSentence(tuple(words), tuple(labels)))
            words, labels = [], []
    if not sentences:
        raise ConfigError(f"{path} must have at least one sentence, got none; write a token and its label on each line")
    return TaggedSentences(tuple(sentences))


def _label(columns: list[str], previous: str) -> str:
    """Return the label of a line. Raise `ConfigError` unless IOB2 allows it after `previous`."""
    token, label = columns[0], columns[-1]
    if len(columns) < 2 or not token:
        raise ConfigError(
            f"a line must have a token and its label, got {' '.join(columns)!r}; write for example 'Paris B-LOC'"
        )
    if not LABEL.fullmatch(label):
        raise ConfigError(
            f"a label must be O, B-TYPE or I-TYPE (IOB2), got {label!r} for the token {token!r}; correct it"
        )
    if label[0] == "I" and previous[2:] != label[2:]:
        raise ConfigError(
            f"{label} must follow B-{label[2:]} or {label} (IOB2), got it after {previous}; write B-{label[2:]} where "
            "an entity begins"
        )
    return label
