"""Examples that are too long for one forward pass, and scores by position."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lengthwise.analysis import findings
from lengthwise.attention import KVCache
from lengthwise.config import EvaluationConfig, Inline, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import ENCODINGS
from lengthwise.evaluation import Division, EvaluationError, Score, evaluate
from lengthwise.measurements import Table
from lengthwise.positions import Randomized, Shift
from lengthwise.report import render
from lengthwise.store import open_store
from lengthwise.studies import Study
from lengthwise.tasks import Text
from lengthwise.training import build
from tests.other_numbers import slow_with_other_numbers

TEXT = choose(Text, path="python:manual", chunk=128)
CONFIG = EvaluationConfig(lengths=(128,), tokens=256)


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.evaluation.scores.MIN_PART", 16)


def run(encoding: Any, **settings: Any) -> Run:
    training = TrainingConfig(train_length=16, **settings)
    model = ModelConfig(d_model=16, num_layers=2, num_heads=2, num_kv_heads=1)
    return Run(encoding=encoding, task=TEXT, model=model, training=training)


def scored(one: Run, **settings: Any) -> tuple[list[Score], list[int]]:
    """Return the scores and the number of tokens of every forward pass."""
    model, task = build(one)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[1]))
    scores = evaluate(model, task, CONFIG, positions=one.training.positions, **settings)
    return scores, sizes


@pytest.mark.parametrize("make", slow_with_other_numbers(ENCODINGS), ids=lambda make: make.__name__)
def test_parts_give_the_score_of_one_forward_pass(make: Any) -> None:
    """Of every encoding. Where the current length changes what is computed, there are no parts."""
    settings = {"max_length": 128} if make.__name__ == "Learned" else {}
    one = run(choose(make, **settings))
    (whole,), _ = scored(one, division=Division(128))
    (parts,), sizes = scored(one, division=Division(96))
    depends = any(encoding.depends_on_length() for encoding in build(one)[0].encodings)
    assert sizes == ([128] * 2 if depends else [48, 48, 32] * 2)
    assert depends == (make.__name__ in ("DynamicNTK", "DynamicYaRN", "LongRoPE"))
    assert parts.mean == pytest.approx(whole.mean, rel=1e-6)
    assert [row["mean"] for row in parts.details["by_position"]] == pytest.approx(
        [row["mean"] for row in whole.details["by_position"]], rel=1e-5
    )


@pytest.mark.parametrize("scheme", [choose(Randomized, max_length=512), choose(Shift)], ids=str)
def test_parts_keep_the_positions_that_were_drawn(scheme: Any) -> None:
    one = run(choose(ENCODINGS.find("rope")), positions=scheme)
    (whole,), _ = scored(one, division=Division(128))
    (parts,), sizes = scored(one, division=Division(96))
    assert sizes == [48, 48, 32] * 2
    assert parts.mean == pytest.approx(whole.mean, rel=1e-6)


def test_a_mamba_too() -> None:
    one = Run(
        encoding=choose(ENCODINGS.find("nope")), task=TEXT, model=ModelConfig.mamba(d_model=16, num_layers=1),
        training=TrainingConfig(train_length=16),
    )  # fmt: skip
    (whole,), _ = scored(one, division=Division(128))
    (parts,), sizes = scored(one, division=Division(96))
    assert sizes == [48, 48, 32] * 2
    assert parts.mean == pytest.approx(whole.mean, rel=1e-6)


def test_parts_have_a_least_size(monkeypatch: pytest.MonkeyPatch) -> None:
    one = run(choose(ENCODINGS.find("rope")))
    assert scored(one, division=Division(1))[1] == [16] * 16
    monkeypatch.setattr("lengthwise.evaluation.scores.MIN_PART", 128)
    assert scored(one, division=Division(1))[1] == [128] * 2, "one forward pass, because two would not be shorter"


def test_a_cache_of_known_size_is_never_copied() -> None:
    model, _ = build(run(choose(ENCODINGS.find("rope"))))
    cache = model.new_cache(capacity=40)
    addresses = set()
    with torch.no_grad():
        for _ in range(4):
            model(torch.zeros(2, 10, dtype=torch.long), cache=cache)
            addresses.add(cache.keys[0].data_ptr())  # type: ignore[union-attr]
    assert len(addresses) == 1
    assert cache.keys[0].shape[-2] == 40  # type: ignore[union-attr]
    model(torch.zeros(2, 10, dtype=torch.long), cache=cache)
    assert cache.length == 50, "it still grows"
    assert isinstance(cache, KVCache)


class AnyModel(nn.Module):
    """A model whose logits do not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.zeros(*inputs.shape, 257)


class Counted(Text):
    """Text whose target with n tokens before it has the score n."""

    def token_scores(self, logits: Tensor, batch: Any) -> Tensor:
        return torch.arange(batch.targets.shape[1], dtype=torch.float64).expand(batch.targets.shape)

    def score(self, logits: Tensor, batch: Any) -> Tensor:
        return self.token_scores(logits, batch).mean(1)


def test_scores_by_position_are_means_of_doubling_ranges() -> None:
    task = Counted(path="python:manual", chunk=128)
    (score,) = evaluate(AnyModel(), task, EvaluationConfig(lengths=(20,), tokens=60))
    assert score.mean == pytest.approx(9.5)
    ranges = [(0, 0), (1, 1), (2, 3), (4, 7), (8, 15), (16, 31)]
    assert [(row["first"], row["last"]) for row in score.details["by_position"]] == ranges
    assert [row["mean"] for row in score.details["by_position"]] == [0, 1, 2.5, 5.5, 11.5, 17.5]
    assert [row["n"] for row in score.details["by_position"]] == [3, 3, 6, 12, 24, 12]


def test_only_scored_targets_count() -> None:
    task = Counted(path="python:manual", chunk=128, targets=8)
    first, second = evaluate(AnyModel(), task, EvaluationConfig(lengths=(16, 128), tokens=256))
    assert first.mean == 11.5
    assert "by_position" not in first.details, "a single range is the score itself"
    assert second.mean == 123.5


def test_scores_that_do_not_fit_are_refused() -> None:
    class OneEach(Counted):
        def token_scores(self, logits: Tensor, batch: Any) -> Tensor:
            return super().token_scores(logits, batch).mean(1)

    task = OneEach(path="python:manual", chunk=128)
    with pytest.raises(
        EvaluationError, match=r"token_scores must return one float64 score per target, .batch, targets."
    ):
        evaluate(AnyModel(), task, EvaluationConfig(lengths=(20,), tokens=60))

    class NotFinite(Counted):
        def token_scores(self, logits: Tensor, batch: Any) -> Tensor:
            return super().token_scores(logits, batch) * math.nan

    task = NotFinite(path="python:manual", chunk=128)
    with pytest.raises(EvaluationError, match=r"NotFinite.token_scores returned a score that is not a finite number"):
        evaluate(AnyModel(), task, EvaluationConfig(lengths=(20,), tokens=60))


def test_they_are_stored_and_shown(tmp_path: Any) -> None:
    from lengthwise.studies import execute

    one = run(choose(ENCODINGS.find("nope")), steps=1, batch_size=2)
    study = Study(name="tiny", question="?", runs=(one,), evaluation=CONFIG)
    assert execute(study, tmp_path, executor=Inline()).counts["done"] == 1
    with open_store(tmp_path) as store:
        (score,) = store.scores([one.key])
        (by_position,) = store.answers([one.key], "position-scores")
        html = render(findings(store, "tiny"))
    rows = list(Table.from_data(by_position.rows))
    assert rows[-1]["last"] == 127
    assert sum(row["n"] for row in rows) == 256
    assert score.mean == pytest.approx(sum(row["mean"] * row["n"] for row in rows) / 256, rel=1e-5)
    assert "Score by position" in html
    assert "Score by position at length 128" in html
    assert '<button type="button">64–127</button>' in html
