"""Corpora with tokenizers of their own: which text trains a tokenizer, and where two tokenizers must not meet."""

import string
from pathlib import Path

import pytest

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.corpora.prepared import PreparedCorpus
from lengthwise.encodings import NoPE
from lengthwise.evaluation.questions import check_lengths
from lengthwise.studies import Study, continued
from lengthwise.tasks import Text
from tests.corpora.small_corpora import prepare


def letters(folder: Path, files: int = 6, seed: int = 0) -> Path:
    """Files of which each has four letters of its own."""
    folder.mkdir()
    for n in range(files):
        own = string.ascii_lowercase[4 * n : 4 * n + 4]
        words = [own[(i * i + seed) % 4] + own[(i + seed) % 4] + own[(i // 3) % 4] for i in range(400)]
        (folder / f"{n}.txt").write_text(" ".join(words))
    return folder


@pytest.mark.parametrize("validation", [0.01, 0.9999999])
def test_a_tokenizer_is_trained_on_training_documents_alone(tmp_path: Path, validation: float) -> None:
    """Also where the rule has to move a document to the other side, as in most small sources."""
    corpus = tmp_path / "corpus"
    prepare(letters(tmp_path / "text"), corpus, tokenizer="bpe:300", validation=validation)
    prepared = PreparedCorpus(corpus)
    vocabulary = {
        prepared.tokenizer.decode([token]).decode(errors="replace")
        for token in range(257, prepared.manifest.vocab_size)
    }
    merged = {text for text in vocabulary if len(text.strip()) > 1}
    held_out, trained = 0, 0
    for n in range(6):
        own = set(string.ascii_lowercase[4 * n : 4 * n + 4])
        found = {text for text in merged if set(text.strip()) <= own}
        held_out, trained = held_out + (not found), trained + bool(found)
    documents = prepared.manifest.split("train").documents, prepared.manifest.split("validation").documents
    assert (trained, held_out) == documents
    assert min(documents) == 1


@pytest.fixture
def corpora(tmp_path: Path) -> list[str]:
    paths = []
    for n in range(2):
        corpus = tmp_path / f"corpus{n}"
        prepare(letters(tmp_path / f"text{n}", seed=n), corpus, tokenizer="bpe:270", validation=0.2 + 0.3 * n)
        paths.append(str(corpus))
    return paths


def run_on(path: str) -> Run:
    return Run(
        encoding=choose(NoPE),
        task=choose(Text, path=path, chunk=64),
        model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
        training=TrainingConfig(train_length=16, steps=1, batch_size=2),
    )


def test_another_tokenizer_of_the_same_size_is_refused(corpora: list[str]) -> None:
    run = run_on(corpora[0])
    with pytest.raises(ConfigError, match=r"has another tokenizer than the trained task Text.*, so the same") as caught:
        check_lengths(run, [16], [{"path": corpora[1]}])
    assert corpora[0] in str(caught.value) and corpora[1] in str(caught.value)
    assert str(caught.value).count("lengthwise tokenize") == 1
    (child,) = continued([run], steps=0, task=choose(Text, path=corpora[1], chunk=64))
    with pytest.raises(ConfigError, match="has another tokenizer than the parent run"):
        Study(name="two", runs=(run, child), evaluation=EvaluationConfig(lengths=(16,), tokens=64)).check()


def test_a_shift_to_a_corpus_with_another_share_of_validation(tmp_path: Path) -> None:
    paths = []
    for validation in (0.2, 0.5):
        paths.append(str(tmp_path / f"corpus{validation}"))
        prepare(letters(tmp_path / f"text{validation}"), Path(paths[-1]), tokenizer="bytes", validation=validation)
    settings = Text.changed(dict(run_on(paths[0]).task.settings), {"path": paths[1]})
    assert dict(choose(Text, **settings).settings)["validation"] == 0.5
    settings = Text.changed(dict(run_on(paths[0]).task.settings), {"path": str(tmp_path / "text0.2")})
    assert dict(choose(Text, **settings).settings)["validation"] == 0.1
    check_lengths(run_on(paths[0]), [16], [{"path": paths[1]}])
