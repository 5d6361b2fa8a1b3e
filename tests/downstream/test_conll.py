"""CoNLL files and the invented corpus, against a second program and by hand; what is refused."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lengthwise.config import ConfigError
from lengthwise.downstream.conll import TaggedSentence, read_conll
from lengthwise.downstream.invented_names import SENTENCES, invented_sentences

SCRIPT = Path(__file__).parents[1] / "vectors" / "tagging" / "tagging.py"


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The separate program, which cannot import lengthwise: it also runs in an interpreter without site packages."""
    spec = importlib.util.spec_from_file_location("tagging_reference", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    subprocess.run([sys.executable, "-I", "-S", SCRIPT], check=True, capture_output=True)
    return module


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "sentences.conll"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_invented_corpus_is_that_of_the_separate_program(reference: ModuleType, seed: int) -> None:
    assert invented_sentences(seed, SENTENCES).conll() == reference.conll(reference.invented(seed, SENTENCES))


def test_the_invented_corpus() -> None:
    data = invented_sentences(0, SENTENCES)
    assert len(data) == len(set(data.sentences)) == 1400
    assert len(data.words) == 265
    assert sum(len(sentence.words) for sentence in data.sentences) / 1400 == pytest.approx(21.14, abs=0.01)
    assert data.labels == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert invented_sentences(0, 3).sentences == data.sentences[:3]
    assert invented_sentences(1, 3).sentences != data.sentences[:3]
    # Whoever knows all words up to a word knows its label, because no two sentences begin alike and differ in labels
    # there.
    labels: dict[tuple[str, ...], set[str]] = {}
    for sentence in data.sentences:
        for n, label in enumerate(sentence.labels):
            labels.setdefault(sentence.words[: n + 1], set()).add(label)
    assert all(len(some) == 1 for some in labels.values())


def test_a_file_by_hand(tmp_path: Path, reference: ModuleType) -> None:
    text = (
        "\ufeff-DOCSTART- -X- -X- O\r\n\r\nNew\tNNP\tB-LOC\r\nYork\tNNP\tI-LOC\r\n\r\n\n"
        "a b\tB-X \nc\tI-X\n-DOCSTART-\nEU NNP  B-ORG\nrejects VBZ O\nGerman\xa0call I-ORG-2"
    )
    with pytest.raises(ConfigError, match=r"line 12: I-ORG-2 must follow B-ORG-2 or I-ORG-2 \(IOB2\), got it after O"):
        read_conll(write(tmp_path, text))
    text = text.replace("I-ORG-2", "B-ORG-2")
    data = read_conll(write(tmp_path, text))
    assert data.sentences == (
        TaggedSentence(("New", "York"), ("B-LOC", "I-LOC")),
        TaggedSentence(("a b", "c"), ("B-X", "I-X")),
        TaggedSentence(("EU", "rejects", "German\xa0call"), ("B-ORG", "O", "B-ORG-2")),
    )
    assert data.labels == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-ORG-2", "I-ORG-2", "B-X", "I-X")
    assert read_conll(write(tmp_path, data.conll())) == data
    rows = reference.read(text.removeprefix("\ufeff").replace("\xa0", "_"))
    assert [[word.replace("_", "\xa0") for word, _ in row] for row in rows] == [list(s.words) for s in data.sentences]
    assert [[label for _, label in row] for row in rows] == [list(s.labels) for s in data.sentences]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    before = read_conll(write(tmp_path, "a O\n"))
    assert read_conll(write(tmp_path, "a O\nb O\n")).sha256 != before.sha256


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a O\n\nParis\n", "{path}, line 3: a line must have a token and its label, got 'Paris'; write for example"),
        ("a O\nParis\t\n", "{path}, line 2: a line must have a token and its label, got 'Paris'"),
        ("a O\n\tB-LOC\n", "{path}, line 2: a line must have a token and its label, got"),
        ("", "{path} must have at least one sentence, got none; write a token and its label on each line"),
        ("\n\n-DOCSTART- O\n", "{path} must have at least one sentence, got none"),
        ("a NN\n", "{path}, line 1: a label must be O, B-TYPE or I-TYPE (IOB2), got 'NN' for the token 'a'"),
        ("a B-\n", "{path}, line 1: a label must be O, B-TYPE or I-TYPE (IOB2), got 'B-'"),
        ("a S-LOC\n", "{path}, line 1: a label must be O, B-TYPE or I-TYPE (IOB2), got 'S-LOC'"),
        ("a I-LOC\n", "{path}, line 1: I-LOC must follow B-LOC or I-LOC (IOB2), got it after O; write B-LOC"),
        ("a B-PER\nb I-LOC\n", "{path}, line 2: I-LOC must follow B-LOC or I-LOC (IOB2), got it after B-PER"),
        ("a B-PER\n\nb I-PER\n", "{path}, line 3: I-PER must follow B-PER or I-PER (IOB2), got it after O"),
        (b"a O\n\xff O\n", "{path} must be UTF-8 text, got byte 0xff; convert it"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path: Path, text: str | bytes, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_conll(path)
    assert str(error.value).startswith(says.format(path=path))
    assert "\n" not in str(error.value)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^there is no file .*absent; name a CoNLL file that exists$"):
        read_conll(str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"^cannot read .*; name a CoNLL file$"):
        read_conll(str(tmp_path))
