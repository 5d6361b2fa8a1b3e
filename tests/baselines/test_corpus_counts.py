"""n-grams of a training text: by hand, against a plain count, on a text of known entropy, and beside a model."""

import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lengthwise.baselines import corpus
from lengthwise.baselines.corpus import NgramModel
from lengthwise.config import EvaluationConfig
from lengthwise.evaluation import Score, evaluate, untrained
from lengthwise.tasks import Text, text_data


def as_bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def plain(documents: list[Any], context: Any, byte: int, symbols: int = 256) -> float:
    """The definition: (c(h w) + T(h) P(w | h')) / (c(h) + T(h)), counted one n-gram at a time."""
    shorter = 1 / symbols if not context else plain(documents, context[1:], byte, symbols)
    size = len(context)
    after = Counter(d[i + size] for d in documents for i in range(len(d) - size) if d[i : i + size] == context)
    if not after:
        return shorter
    return (after[byte] + len(after) * shorter) / (after.total() + len(after))


def test_by_hand() -> None:
    """Of `abab`: a and b twice each, two kinds of bytes; after a two b, after b one a."""
    model = NgramModel(as_bytes(b"abab"))
    unigram = (2 + 2 / 256) / (4 + 2)
    b_after_a, a_after_b = (2 + unigram) / (2 + 1), (1 + unigram) / (1 + 1)
    a_after_ab = (1 + a_after_b) / (1 + 1)
    pieces = [as_bytes(b"aba").astype(np.int64)]
    np.testing.assert_allclose(np.exp(-model.nats(pieces, 0)), [[1 / 256] * 3])
    np.testing.assert_allclose(np.exp(-model.nats(pieces, 1)), [[unigram] * 3])
    np.testing.assert_allclose(np.exp(-model.nats(pieces, 2)), [[unigram, b_after_a, a_after_b]])
    np.testing.assert_allclose(np.exp(-model.nats(pieces)), [[unigram, b_after_a, a_after_ab]])


def test_contexts_and_bytes_that_the_text_does_not_have() -> None:
    model = NgramModel(as_bytes(b"abab"))
    unseen = (0 + 2 / 256) / (4 + 2)
    here = np.exp(-model.nats([[ord("z"), ord("z"), ord("a")]]))
    np.testing.assert_allclose(here, [[unseen, unseen, (2 + 2 / 256) / 6]])


@pytest.mark.parametrize("portion", [1, 3, 10, 1 << 22])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_the_definition(order: int, portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents of many sizes, one byte among them, counted in portions that end anywhere."""
    monkeypatch.setattr(corpus, "PORTION", portion)
    chance = np.random.default_rng(order)
    documents = [chance.integers(97, 100, size).astype(np.uint8).tobytes() for size in (7, 1, 2, 12, 3, 1, 9)]
    whole = b"".join(documents)
    model = NgramModel(as_bytes(whole), [len(d) for d in documents], order=order)
    piece = chance.integers(97, 101, 12).astype(np.uint8).tobytes()
    want = [plain(documents, piece[max(0, t - order + 1) : t], piece[t]) for t in range(len(piece))]
    np.testing.assert_allclose(np.exp(-model.nats([as_bytes(piece)])), [want], rtol=1e-12)


@pytest.mark.parametrize(
    ("symbols", "order"), [(5, 3), (1000, 3), (1626, 3), (2000, 3), (50_257, 3), (1 << 20, 3), (70_000, 2)]
)
def test_the_definition_for_tokens(symbols: int, order: int) -> None:
    """Also where the codes of n-grams just fit into 32 bits, and where they do not."""
    chance = np.random.default_rng(symbols)
    used = np.array([0, 1, symbols // 2, symbols - 2, symbols - 1])
    documents = [chance.choice(used, size).tolist() for size in (30, 1, 2, 25, 3)]
    text = np.concatenate([np.array(d, np.uint32) for d in documents])
    model = NgramModel(text, [len(d) for d in documents], order=order, symbols=symbols)
    piece = [*chance.choice(used, 12).tolist(), min(3, symbols - 1), 1, 0]
    want = [plain(documents, piece[max(0, t - order + 1) : t], piece[t], symbols) for t in range(len(piece))]
    np.testing.assert_allclose(np.exp(-model.nats([piece])), [want], rtol=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_probabilities_of_all_bytes_sum_to_one(order: int) -> None:
    model = NgramModel(as_bytes(b"the theatre then"))
    for start in (b"th", b"qq", b"e "):
        pieces = [[*start, byte] for byte in range(256)]
        assert np.exp(-model.nats(pieces, order))[:, 2].sum() == pytest.approx(1, rel=1e-12)


@pytest.mark.medium
def test_a_text_of_known_entropy() -> None:
    """A Markov chain: the unigram has the entropy of its stationary distribution, the bigram its entropy rate."""
    chance = np.random.default_rng(3)
    chain = chance.dirichlet([0.5] * 6, 6)
    powers = np.linalg.matrix_power(chain, 200)
    stationary = powers[0]
    rate = -float(sum(stationary[i] * (chain[i] * np.log(chain[i])).sum() for i in range(6)))
    state, walked = 0, []
    sums = chain.cumsum(1)
    for draw in chance.random(240_000):
        state = int((draw > sums[state]).sum())
        walked.append(97 + state)
    data = np.array(walked, np.uint8)
    model = NgramModel(data[:200_000])
    unigram, bigram, trigram = (model.nats([data[200_000:]], order).mean() for order in (1, 2, 3))
    assert unigram == pytest.approx(-(stationary * np.log(stationary)).sum(), abs=0.015)
    assert bigram == pytest.approx(rate, abs=0.01)
    assert trigram == pytest.approx(rate, abs=0.01)
    assert unigram - bigram > 0.3


@pytest.mark.medium
def test_memory_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of 8 MB with few different n-grams: what is allocated at once is far less than the text."""
    monkeypatch.setattr(corpus, "PORTION", 1 << 16)
    data = np.random.default_rng(0).integers(97, 105, 8_000_000).astype(np.uint8)
    tracemalloc.start()
    NgramModel(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


# ---- beside a model ---------------------------------------------------------------------------------------------


class Uniform(nn.Module):
    """Gives every byte and BOS the same probability: ln 257 nats."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*inputs.shape, 257)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    untrained.cached_curve.cache_clear()
    text_data.fitted_models.clear()
    yield
    untrained.cached_curve.cache_clear()
    text_data.fitted_models.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(12):
        words = np.random.default_rng(n).choice(["the", "cat", "sat", "on", "a", "mat", "\n"], 400)
        (tmp_path / f"{n}.txt").write_text(" ".join(words), encoding="utf-8")
    return tmp_path


def beside(score: Score) -> dict[str, float]:
    return {baseline["name"]: baseline["score"] for baseline in score.details["baselines"]}


def test_text_is_scored_on_the_models_own_bytes(folder: Path) -> None:
    task = Text(path=str(folder), chunk=256)
    config = EvaluationConfig(lengths=(1, 32, 256), tokens=1500)
    scores = evaluate(Uniform(), task, config)
    train, _ = task.data.corpus.split(0.1)
    model = NgramModel(as_bytes(b"".join(train)), [len(d) for d in train])
    for score in scores:
        pieces = task.examples(0, score.n, score.length).targets.numpy()
        assert score.mean == pytest.approx(math.log(257))
        for (name, value), order in zip(beside(score).items(), (0, 1, 2, 3), strict=True):
            assert value == pytest.approx(float(model.nats(pieces, order).mean()), rel=1e-5), name
    assert list(beside(scores[0])) == ["uniform", "unigram", "bigram", "trigram"]
    assert [b["floor"] for b in scores[0].details["baselines"]] == [True, True, True, False]
    first, _, longest = map(beside, scores)
    assert first["unigram"] == first["bigram"] == first["trigram"], "of its first byte a model knows nothing either"
    assert longest["uniform"] == pytest.approx(math.log(256), rel=1e-5)
    assert longest["trigram"] < longest["bigram"] < longest["unigram"] < longest["uniform"]


def test_a_text_is_counted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    class Counting(NgramModel):
        def __init__(self, *args, **settings):
            counted.append(settings)
            super().__init__(*args, **settings)

    monkeypatch.setattr(text_data, "NgramModel", Counting)
    Text(path=str(folder)).baselines()
    assert counted == [], "asking which baselines there are counts nothing yet"
    scores = [
        evaluate(Uniform(), Text(path=str(folder), chunk=64), EvaluationConfig(lengths=(16, 64))) for _ in range(2)
    ]
    assert len(counted) == 1
    assert [beside(s) for s in scores[0]] == [beside(s) for s in scores[1]]
    evaluate(Uniform(), Text(path=str(folder), validation=0.3), EvaluationConfig(lengths=(16,)))
    assert len(counted) == 2, "another part of the text is for training"


def test_on_random_bytes_nothing_beats_uniform(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(np.random.default_rng(0).bytes(60_000))
    (score,) = evaluate(Uniform(), Text(path=str(tmp_path / "noise")), EvaluationConfig(lengths=(64,), tokens=4096))
    found = beside(score)
    assert found["uniform"] == pytest.approx(math.log(256), rel=1e-5)
    assert min(found.values()) == found["uniform"]
