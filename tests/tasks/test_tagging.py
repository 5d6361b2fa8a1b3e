"""The task `Tagging`: texts and scores against a separate program, each sentence once, and what is refused."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import RoPE
from lengthwise.evaluation import evaluate
from lengthwise.tasks import TASKS, Tagging, generator
from lengthwise.tasks.tagging import TaggedBatch, ratio_of_sums
from lengthwise.training import train

FOLDER = Path(__file__).parents[1] / "vectors" / "tagging"
CASES = json.loads((FOLDER / "tagging.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tagging_reference", FOLDER / "tagging.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def task() -> Tagging:
    return Tagging()


def write(folder: Path, sentences: list[tuple[str, str]]) -> str:
    """A CoNLL file from pairs of texts: words and labels."""
    path = folder / "own.conll"
    rows = [zip(words.split(), labels.split(), strict=True) for words, labels in sentences]
    path.write_text("\n".join("".join(f"{word} {label}\n" for word, label in row) for row in rows), encoding="utf-8")
    return str(path)


def texts(task: Tagging, batch: object) -> list[list[tuple[str, str, int, bool]]]:
    """Word, label, sentence and whether it is scored, up to the last scored slot of each example."""
    assert isinstance(batch, TaggedBatch)
    found = []
    for row in range(len(batch)):
        columns = (batch.inputs, batch.targets, batch.sentences, batch.scored)
        slots = zip(*(column[row].tolist() for column in columns), strict=True)
        words = [(task.words[w], task.labels[label], s, scored) for w, label, s, scored in slots]
        while not words[-1][3]:
            words.pop()
        found.append(words)
    return found


def test_2000_texts_are_those_of_a_separate_program(task: Tagging, reference: ModuleType) -> None:
    corpus = reference.invented(0, 1400)
    first_words = {tuple(word for word, _ in pairs): n for n, pairs in enumerate(corpus)}
    starts = []
    for length in (1, 2, 3, 8, 1400):
        counts = (1000, 600, 300, 98, 2)
        count = counts[(1, 2, 3, 8, 1400).index(length)]
        for words in texts(task, task.sample(generator(5, length), count, length)):
            size = next((n for n, row in enumerate(words) if row[2] == 1), len(words))
            start = first_words[tuple(word for word, *_ in words[:size])]
            assert [(word, label) for word, label, *_ in words] == reference.join(corpus, start, length)
            assert [row[2] for row in words] == [n for n in range(length) for _ in corpus[(start + n) % 1400]]
            assert all(row[3] for row in words)
            starts.append(start)
    assert len(starts) == 2000
    assert len(set(starts)) > 950


def test_a_file_of_the_user_against_the_separate_program(tmp_path: Path, reference: ModuleType) -> None:
    rows = reference.invented(3, 12)
    path = tmp_path / "own.txt"
    path.write_text("-DOCSTART- O\n\n" + reference.conll(rows).replace("\t", " x "), encoding="utf-8")
    task = Tagging(path=str(path))
    assert task.size == 12
    batch = task.pack(torch.arange(12), [5] * 12)
    for n, words in enumerate(texts(task, batch)):
        assert [(word, label) for word, label, *_ in words] == reference.join(rows, n, 5)
    assert choose(Tagging, path=str(path)).identity() != choose(Tagging, seed=3).identity()
    assert choose(Tagging, path=str(path)).identity() != choose(Tagging, path=str(path), sentences=4).identity()
    with_hash = choose(Tagging, path=str(path))
    path.write_text("a O\n", encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"must have the SHA-256 .*: they have changed; restore them, or leave sha256 out"
    ):
        with_hash.build()


@pytest.mark.parametrize("length", [1, 2, 3, 8, 13, 1000, 1399, 1400])
def test_a_test_scores_every_sentence_once(task: Tagging, length: int) -> None:
    batch = task.examples(4, 10**6, length)
    assert len(batch) == task.available(length) == task.num_examples(65_536, length) == -(-1400 // length)
    assert batch.inputs.shape[1] <= task.tokens(length)
    found = [tuple(row) for words in texts(task, batch) for row in split(words)]
    whole = [tuple(row) for words in texts(task, task.examples(0, 10**6, 1)) for row in split(words)]
    assert len(found) == 1400
    assert sorted(found) == sorted(whole)
    for words in texts(task, batch):
        assert words[-1][2] == length - 1  # each text has all of its sentences, also where some are not scored


def split(words: list[tuple[str, str, int, bool]]) -> list[list[tuple[str, str]]]:
    """The scored sentences of a text."""
    numbers = sorted({row[2] for row in words if row[3]})
    return [[(row[0], row[1]) for row in words if row[2] == n] for n in numbers]


def test_a_smaller_test_has_the_same_sentences_at_every_length(task: Tagging) -> None:
    by_length = {}
    for length in (1, 2, 4, 8):
        count = task.num_examples(3383, length)  # 160 of 1,400 sentences
        by_length[length] = [row for words in texts(task, task.examples(4, count, length)) for row in split(words)]
    assert len(by_length[1]) == 160
    assert by_length[2] == by_length[4] == by_length[8] == by_length[1]
    other = [row for words in texts(task, task.examples(5, 160, 1)) for row in split(words)]
    assert other != by_length[1]


def test_an_epoch_begins_a_text_at_every_sentence(task: Tagging) -> None:
    batch = task.fixed_examples(0, range(1400), 1, 1)
    assert len({tuple(row) for row in task_words(task, batch)}) == 1400
    batch = task.fixed_examples(0, range(1400), 1, 4)
    sizes = [words[-1][2] + 1 for words in texts(task, batch)]
    assert [sizes.count(n) for n in (1, 2, 3, 4)] == [350] * 4
    with pytest.raises(
        ConfigError, match="train_examples must be at most 1,400, got 1,401: Tagging has no more sentences"
    ):
        task.fixed_examples(0, [1400], 1, 1)


def task_words(task: Tagging, batch: object) -> list[list[str]]:
    return [[word for word, *_ in words] for words in texts(task, batch)]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize("joined", [False, True])
def test_scores_are_those_of_seqeval(tmp_path: Path, case: dict[str, object], joined: bool) -> None:
    """Also if all sentences are one text: entities end with their sentence."""
    true: list[list[str]] = case["true"]  # type: ignore[assignment]
    guess: list[list[str]] = case["predicted"]  # type: ignore[assignment]
    # One more sentence that is not asked about has all labels.
    rows = [*true, ["B-LOC", "I-LOC", "B-PER", "I-PER", "O"]]
    task = Tagging(path=write(tmp_path, [(" ".join(f"w{n}" for n in range(len(row))), " ".join(row)) for row in rows]))
    starts, lengths = (
        (torch.zeros(1, dtype=torch.int64), [len(true)]) if joined else (torch.arange(len(true)), [1] * len(true))
    )
    batch = task.pack(starts, lengths)
    label_id = {label: n for n, label in enumerate(task.labels)}
    predicted = torch.randint(5, batch.targets.shape, generator=generator(0))  # anything where nothing is scored
    flat = [label_id[label] for row in guess for label in row]
    predicted[batch.scored] = torch.tensor(flat)
    logits = torch.nn.functional.one_hot(predicted, 5).float()
    scores, others = task.pooled(task.counts(logits, batch))
    found = [float(scores.mean()), *others.values()]
    assert list(others) == ["F1, default mode", "token accuracy"]
    assert found == pytest.approx(case["seqeval 1.2.2"], abs=1e-12)
    assert found == pytest.approx(case["scores"], abs=1e-12)
    assert len(scores) == (1 if joined else len(true))


def test_scores_are_those_of_seqeval_itself(task: Tagging) -> None:
    """If it is installed, on the whole corpus with wrong labels."""
    metrics, scheme = pytest.importorskip("seqeval.metrics"), pytest.importorskip("seqeval.scheme")
    for length in (1, 3):
        batch = task.examples(0, 10**6, length)
        wrong = torch.rand(batch.targets.shape, generator=generator(1)) < 0.2
        random = torch.randint(7, batch.targets.shape, generator=generator(2))
        predicted = torch.where(wrong, random, batch.targets)
        assert isinstance(batch, TaggedBatch)
        masks = [(b, (batch.sentences[b] == s) & batch.scored[b]) for b in range(len(batch)) for s in range(length)]
        rows = [
            [[task.labels[n] for n in x[b][mask].tolist()] for b, mask in masks if bool(mask.any())]
            for x in (batch.targets, predicted)
        ]
        scores, others = task.pooled(task.label_counts(predicted, batch))
        assert float(scores.mean()) == pytest.approx(metrics.f1_score(*rows, mode="strict", scheme=scheme.IOB2))
        assert others["F1, default mode"] == pytest.approx(metrics.f1_score(*rows))
        assert others["token accuracy"] == pytest.approx(metrics.accuracy_score(*rows))


def test_printed_values_of_seqeval(tmp_path: Path) -> None:
    """The example in its README: F1 0.50 and accuracy 0.80."""
    task = Tagging(
        path=write(tmp_path, [("a b c d e f g", "O O O B-MISC I-MISC I-MISC O"), ("h i j", "B-PER I-PER O")])
    )
    batch = task.examples(0, 2, 1)
    predicted = batch.targets.clone()
    row = int((batch.scored.sum(1) == 7).nonzero())
    predicted[row, :7] = torch.tensor([task.labels.index(x) for x in ("O", "O", "B-MISC", *["I-MISC"] * 3, "O")])
    scores, others = task.pooled(task.label_counts(predicted, batch))
    assert float(scores.mean()) == 0.5
    assert others["token accuracy"] == pytest.approx(0.8)


def test_without_entities_the_score_is_0(tmp_path: Path) -> None:
    task = Tagging(path=write(tmp_path, [("a b", "O O")]))
    scores, others = task.pooled(task.label_counts(torch.zeros(1, 2, dtype=torch.int64), task.examples(0, 1, 1)))
    assert scores.tolist() == [0.0]
    assert others == {"F1, default mode": 0.0, "token accuracy": 1.0}


def test_numbers_whose_mean_is_a_ratio() -> None:
    """By hand: 3 / 6, and the standard error of the delta method, sqrt(Σ (a - r b)² / (n - 1) / n) / mean(b)."""
    values = ratio_of_sums(torch.tensor([1.0, 2.0, 0.0]).double(), torch.tensor([1.0, 2.0, 3.0]).double())
    assert values.mean().item() == pytest.approx(0.5)
    assert (values.std() / 3**0.5).item() == pytest.approx(((0.25 + 1 + 2.25) / 2 / 3) ** 0.5 / 2)


def test_the_baseline_is_the_most_frequent_label_of_each_word(reference: ModuleType, task: Tagging) -> None:
    corpus = reference.invented(0, 1400)
    counts: dict[str, dict[str, int]] = {}
    for word, label in (pair for pairs in corpus for pair in pairs):
        counts.setdefault(word, {}).setdefault(label, 0)
        counts[word][label] += 1
    best = {word: max(sorted(some), key=lambda label: some[label]) for word, some in counts.items()}
    true = [[label for _, label in pairs] for pairs in corpus]
    want = reference.scores(true, [[best[word] for word, _ in pairs] for pairs in corpus])[0]
    (baseline,) = task.baselines()
    for length in (1, 16):
        scores = baseline.scores(task.examples(0, 10**6, length), [length])
        assert scores is not None
        assert float(scores.mean()) == pytest.approx(want)
    assert baseline.floor
    assert want == pytest.approx(0.6034, abs=1e-4)


def test_rendered_text(tmp_path: Path) -> None:
    path = write(tmp_path, [("Anna sings .", "B-PER O O"), ("Paris", "B-LOC"), ("they met", "O O")])
    task = Tagging(path=path)
    batch = task.pack(torch.tensor([0, 2]), [2, 1])
    assert task.render(batch) == [
        {"input": "Anna sings . Paris", "target": "B-PER O O B-LOC", "length": 2},
        {"input": "they met", "target": "O O", "length": 1},
    ]
    assert batch.scored.tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.inputs[1, 2:].tolist() == batch.targets[1, 2:].tolist() == [0, 0]  # padding
    assert task.provenance() == {"data_sha256": task.sha256, "sentences": 3, "words": 6}
    assert Tagging in list(TASKS)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sentences": -1}, "Tagging.sentences must be at least 0, got -1"),
        ({"seed": -1}, "Tagging.seed must be at least 0, got -1"),
        ({"path": " "}, 'Tagging.path must be a path or "invented", got'),
        (
            {"path": "own.conll", "seed": 2},
            'Tagging.seed is that of the corpus "invented", got 2 with a file; leave it out',
        ),
        ({"path": "absent.conll"}, "there is no file "),
        ({"path": "own.conll", "sentences": 4}, "Tagging.sentences must be at most 3, the sentences of "),
    ],
)
def test_bad_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, [("a", "O"), ("b", "O"), ("c", "O")])
    with pytest.raises(ConfigError) as error:
        choose(Tagging, **settings)
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)


def test_lengths_beyond_the_corpus_and_models_without_width(task: Tagging) -> None:
    with pytest.raises(
        ConfigError, match=r"^length must be at most the 1,400 sentences of the corpus, got 1,401; take a"
    ):
        task.check_length(1401)
    with pytest.raises(ConfigError, match=r"d_model must be at least 1, got 0"):
        ModelConfig(d_model=0)


@pytest.mark.medium
def test_a_model_memorizes_and_forgets_in_longer_texts(tmp_path: Path) -> None:
    run = Run(
        encoding=choose(RoPE),
        task=choose(Tagging, sentences=100),
        model=ModelConfig(d_model=32, num_layers=2, num_heads=2),
        training=TrainingConfig(train_length=1, steps=200, batch_size=20, learning_rate=4e-3, train_examples=100),
        seed=0,
    )
    trained = train(run, tmp_path / "run")
    one, all_ = evaluate(trained.model, trained.task, EvaluationConfig(lengths=(1, 100)))
    assert one.mean > 0.95
    assert all_.mean < one.mean - 0.2
