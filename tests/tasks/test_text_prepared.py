"""`Text` on a prepared corpus: the same windows and pieces as in memory, and affordable baselines."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.corpora.prepared import PreparedCorpus
from lengthwise.encodings import NoPE
from lengthwise.evaluation import evaluate
from lengthwise.studies import Study
from lengthwise.tasks import Text, generator, text_data
from lengthwise.tasks.text_data import documents_in_memory, documents_on_disk
from lengthwise.training.setup import build
from lengthwise.training.trainer import Trainer
from tests.corpora.small_corpora import json_lines, prepare, story


def corpus(folder: Path, tokenizer: str = "bytes", **options: object) -> Path:
    json_lines(folder / "a.jsonl", [story(n) for n in range(150)])
    prepare(folder / "a.jsonl", folder / "corpus", tokenizer=tokenizer, validation=0.2, shard_bytes=2000, **options)
    return folder / "corpus"


@pytest.fixture(params=["bytes", "bpe:320"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return corpus(tmp_path, request.param)


@pytest.mark.medium
@given(
    sizes=st.lists(st.integers(1, 70), min_size=2, max_size=40, unique=True),
    length=st.integers(1, 80),
    shard=st.integers(1, 200),
    seed=st.integers(0, 9),
)
@settings(max_examples=25)
def test_windows_and_chunks_are_those_in_memory(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], length: int, shard: int, seed: int
) -> None:
    """Bytes have the same tokens in both, so every draw and every piece is the same."""
    folder = tmp_path_factory.mktemp("same")
    texts = [bytes(97 + (n + size) % 26 for n in range(size)) for size in sizes]
    json_lines(folder / "a.jsonl", [text.decode() for text in texts])
    prepare(folder / "a.jsonl", folder / "corpus", validation=0.4, shard_bytes=shard)
    opened = PreparedCorpus(folder / "corpus")
    for split in ("train", "validation"):
        on_disk = documents_on_disk(opened, split)
        documents = [text for text in texts if len(text) in on_disk.lengths.tolist()]
        in_memory = documents_in_memory(documents)
        assert on_disk.lengths.tolist() == in_memory.lengths.tolist()
        assert on_disk.longest == in_memory.longest == max(map(len, documents))
        assert on_disk.chunks(length).tolist() == in_memory.chunks(length).tolist()
        pieces = [bytes(row) for row in on_disk.read(on_disk.chunks(length), length).tolist()]
        assert pieces == [d[n : n + length] for d in documents for n in range(0, len(d) - length + 1, length)]
        if length <= on_disk.longest:
            starts = on_disk.windows(generator(seed), 20, length)
            assert starts.tolist() == in_memory.windows(generator(seed), 20, length).tolist()
            assert on_disk.read(starts, length).equal(in_memory.read(starts, length))


def test_inputs_targets_and_what_is_shown(folder: Path) -> None:
    task = Text(path=str(folder))
    manifest = task.data.corpus.manifest
    assert task.unit == manifest.unit == ("bytes" if manifest.tokenizer == "bytes" else "tokens")
    assert (task.vocab_size, task.output_size) == (manifest.vocab_size, manifest.vocab_size)
    batch = task.examples(0, 3, 12)
    assert batch.inputs[:, 0].tolist() == [manifest.bos] * 3
    assert batch.inputs[:, 1:].equal(batch.targets[:, :-1])
    assert batch.targets.dtype == torch.int64
    texts = [story(n) for n in range(150)]
    for row in task.render(batch):
        assert row["input"].startswith("<BOS>")
        shown = row["target"].replace("\\n", "\n")
        assert any(shown in text for text in texts)
    with pytest.raises(
        ConfigError, match=r"the longest validation document of corpus, got 9999; take a shorter length"
    ) as e:
        task.check_length(9999)
    assert f" {task.unit}, " in str(e.value)
    assert "the last" in task.note(3) and f"{task.unit} of each chunk" in task.note(3)
    facts = task.provenance()
    assert facts["corpus_sha256"] == manifest.sha256
    assert facts["train_tokens"] == manifest.train.tokens
    assert facts["corpus_tokenizer"] == manifest.tokenizer


def test_the_key_depends_on_the_content_alone(tmp_path: Path) -> None:
    def key(path: Path, **options: object) -> str:
        task = choose(Text, path=str(path), **options)
        return Run(encoding=choose(NoPE), task=task, training=TrainingConfig(train_length=8)).key

    first = corpus(tmp_path)
    (tmp_path / "moved").mkdir()
    base, chosen = key(first), dict(choose(Text, path=str(first)).settings)
    assert chosen["validation"] == 0.2
    assert chosen["sha256"] == Text(path=str(first)).data.sha256
    assert key(first, validation=0.2) == base
    with pytest.raises(ConfigError, match=r"was prepared with validation=0.2, got 0.3; leave validation out"):
        key(first, validation=0.3)
    moved = tmp_path / "moved" / "c"
    first.rename(moved)
    assert key(moved) == base
    assert key(corpus(tmp_path, "bpe:300")) != base
    (moved / "train-00000.tokens").unlink()
    with pytest.raises(ConfigError, match=r"lacks its file train-00000.tokens"):
        choose(Text, path=str(moved))


def test_the_built_in_text_is_never_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus(tmp_path).rename(tmp_path / "python:manual")
    monkeypatch.chdir(tmp_path)
    settings = dict(choose(Text, path="python:manual").settings)
    assert (settings["path"], settings["validation"]) == ("python:manual", 0.1)
    assert dict(choose(Text, path="./python:manual").settings)["validation"] == 0.2


def test_a_corpus_that_changed_is_refused(tmp_path: Path) -> None:
    first = corpus(tmp_path)
    choice = choose(Text, path=str(first))
    first.rename(tmp_path / "old")
    json_lines(tmp_path / "a.jsonl", [story(n) for n in range(149)])
    prepare(tmp_path / "a.jsonl", first, validation=0.2)
    with pytest.raises(ConfigError, match="it has changed; restore the old text"):
        choice.build()


def nats(task: Text, name: str, targets: torch.Tensor) -> np.ndarray:
    return task.data.nats(targets.numpy(), {"uniform": 0, "unigram": 1, "bigram": 2, "trigram": 3}[name])


def test_baselines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Text(path=str(folder))
    text_data.fitted_models.clear()
    assert [(b.name, b.floor) for b in task.baselines()] == [
        ("uniform", True), ("unigram", True), ("bigram", True), ("trigram", False),
    ]  # fmt: skip
    targets = task.examples(0, 8, 16).targets
    size = task.data.vocabulary.target_size
    assert nats(task, "uniform", targets) == pytest.approx(math.log(size))
    documents = task.documents["train"]
    counts = np.bincount(documents.read(torch.tensor([0]), 1)[0], minlength=size) * 0
    for start, length in zip(documents.starts, documents.lengths.tolist(), strict=True):
        counts += np.bincount(documents.read(start[None], length)[0], minlength=size)
    distinct = np.count_nonzero(counts)
    want = -np.log((counts[targets] + distinct / size) / (counts.sum() + distinct))
    assert nats(task, "unigram", targets) == pytest.approx(want)
    # of a small corpus, the n-gram model counts the same text
    assert text_data.TextData.nats(task.data, targets.numpy(), 1) == pytest.approx(want)
    means = [nats(task, name, targets).mean() for name in ("uniform", "unigram", "bigram", "trigram")]
    assert means == sorted(means, reverse=True)


def test_ngrams_of_a_large_corpus_are_counted_in_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Text(path=str(corpus(tmp_path)))
    tokens, lengths = task.data.ngram_text()
    assert lengths == task.documents["train"].lengths.tolist()
    assert len(tokens) == task.documents["train"].size
    before = task.data.fitted_on
    monkeypatch.setattr(text_data, "NGRAM_TOKENS", 1000)
    assert task.data.fitted_on != before
    tokens, lengths = task.data.ngram_text()
    assert 500 < len(tokens) == sum(lengths) <= 1000
    step = -(-task.documents["train"].size // 1000)
    assert lengths[:-1] == task.documents["train"].lengths[::step].tolist()[: len(lengths) - 1]
    assert tokens.dtype == np.uint8


@pytest.mark.parametrize(("tokenizer", "unit"), [("bytes", "bytes"), ("bpe:300", "tokens")])
def test_a_study_stores_the_unit_of_its_corpus(tmp_path: Path, tokenizer: str, unit: str) -> None:
    """So the report shows nats per token; a folder that is not prepared stays in bytes."""
    for path, want in ((corpus(tmp_path, tokenizer), unit), (tmp_path / "a.jsonl", "bytes")):
        run = Run(encoding=choose(NoPE), task=choose(Text, path=str(path)), training=TrainingConfig(train_length=8))
        (row,) = Study(name="s", runs=[run], evaluation=EvaluationConfig(lengths=(8,))).rows()
        assert row["unit"] == want


def test_a_model_trains_on_tokens(tmp_path: Path) -> None:
    task = choose(Text, path=str(corpus(tmp_path, "bpe:300")))
    model = ModelConfig(d_model=16, num_layers=1, num_heads=2)
    run = Run(encoding=choose(NoPE), task=task, model=model, training=TrainingConfig(train_length=8, steps=30))
    built, text = build(run)
    trainer = Trainer(run, built, text, torch.device("cpu"))
    trainer.step()
    first = trainer.loss()
    for _ in range(29):
        trainer.step()
    assert trainer.loss() < first
    scores = evaluate(built, text, EvaluationConfig(lengths=(8, 16), tokens=200))
    assert [score.length for score in scores] == [8, 16]
    assert all(math.isfinite(score.mean) for score in scores)


def test_records_in_memory(tmp_path: Path) -> None:
    """JSON lines and compressed files that are not prepared: each record is a document."""
    file = json_lines(tmp_path / "a.jsonl.gz", [story(n) for n in range(30)])
    task = Text(path=str(file))
    assert len(task.data.corpus.documents) == 30
    assert {d.data for d in task.data.corpus.documents} == {story(n).encode() for n in range(30)}
    assert len(task.documents["test"].lengths) >= 1
    assert task.unit == "bytes"
    (tmp_path / "b.jsonl").write_text(json.dumps({"txt": "a"}) + "\n")
    with pytest.raises(ConfigError, match=r"b.jsonl, line 1: it has no field 'text'.*use lengthwise tokenize --field"):
        Text(path=str(tmp_path / "b.jsonl"))
    (tmp_path / "c.json").write_text(json.dumps({"text": "as it is"}))
    assert Text(path=str(tmp_path / "c.json")).data.corpus.documents[0].data == b'{"text": "as it is"}'
