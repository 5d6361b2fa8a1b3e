"""Baselines beside a model's scores: on the same prompts, at every length asked, and worked out once."""

import math
import sys
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from lengthwise.baselines.in_context import predictions, require
from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.evaluation import Score, check_lengths, evaluate, untrained
from lengthwise.metrics import ACCURACY
from lengthwise.tasks import (
    LEGO,
    PCFG,
    PFA,
    SCAN,
    TASKS,
    Addition,
    Conjunction,
    Copy,
    LinearRegression,
    Parity,
    Polynomial,
    Reverse,
    Sorting,
    Summation,
    Task,
)
from lengthwise.tasks.base import Batch
from lengthwise.tasks.functions import FunctionTask, prompts
from lengthwise.training import build

CONFIG = EvaluationConfig(lengths=(1, 3, 8), examples=70, prompt=10)


class WithLasso(LinearRegression):
    baseline_names = ("lasso", "zero")


class LengthByLength(LinearRegression):
    """A class whose last question is asked in another way than those before it."""

    def prefixes_are_examples(self) -> bool:
        return False


class Misspelled(LinearRegression):
    baseline_names = ("lasoo",)


def beside(score: Score) -> dict[str, float]:
    return {baseline["name"]: baseline["score"] for baseline in score.details["baselines"]}


def run_of(task: type[LinearRegression] = LinearRegression) -> Run:
    return Run(
        encoding=choose(NoPE),
        task=choose(task, dims=3),
        model=ModelConfig.llama(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=4),
    )


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    untrained.cached_curve.cache_clear()
    yield
    untrained.cached_curve.cache_clear()


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int]]]:
    """Every baseline that is worked out, and the columns."""
    calls = []

    def counted(name, xs, ys, at):
        calls.append((name, list(at)))
        return predictions(name, xs, ys, at)

    monkeypatch.setattr(prompts, "predictions", counted)
    return calls


def test_scores_are_on_the_models_own_prompts() -> None:
    model, task = build(run_of())
    scores = evaluate(model, task, CONFIG)
    xs, ys = task.examples_of(task.examples(CONFIG.seed, 70, 10))
    for score in scores:
        assert [(b["name"], b["floor"]) for b in score.details["baselines"]] == [
            ("least squares", False),
            ("averaging", False),
            ("3 nearest neighbours", False),
            ("mean label", True),
            ("zero", True),
        ]
        for name, value in beside(score).items():
            error = predictions(name, xs.numpy(), ys.numpy())[:, score.length - 1] - ys[:, score.length - 1].numpy()
            assert value == pytest.approx((error**2).mean(), rel=1e-5, abs=1e-9)
    first = beside(scores[0])
    assert len(set(first.values())) == 1, "nothing is known before the first example"
    assert beside(scores[2])["least squares"] < 1e-9


def test_lengths_that_have_a_forward_each_have_prompts_each() -> None:
    model, task = build(run_of(LengthByLength))
    scores = evaluate(model, task, CONFIG)
    for score in scores:
        _, ys = task.examples_of(task.examples(CONFIG.seed, 70, score.length))
        zero = float(ys.double()[:, -1].square().mean())
        assert beside(score)["zero"] == pytest.approx(zero, rel=1e-5)


def test_the_same_prompts_are_worked_out_once(asked_for: list[tuple[str, list[int]]]) -> None:
    first = evaluate(*build(run_of()), CONFIG)
    assert [name for name, _ in asked_for] == list(LinearRegression.baseline_names)
    again = evaluate(*build(run_of()), CONFIG)
    more = evaluate(*build(run_of()), EvaluationConfig(lengths=(2, 8), examples=70, prompt=10))
    assert len(asked_for) == len(LinearRegression.baseline_names)
    assert [s.details["baselines"] for s in again] == [s.details["baselines"] for s in first]
    assert more[1].details["baselines"] == first[2].details["baselines"]
    other = evaluate(*build(run_of()), EvaluationConfig(lengths=(8,), examples=70, prompt=10, seed=1))
    assert len(asked_for) == 2 * len(LinearRegression.baseline_names)
    assert other[0].details["baselines"] != first[2].details["baselines"]


def test_lasso_is_fitted_at_the_lengths_asked_alone(asked_for: list[tuple[str, list[int]]]) -> None:
    pytest.importorskip("sklearn")
    task = WithLasso(dims=3)
    batch = task.examples(0, 70, 10)
    whole = untrained.baseline_scores(task, batch, [3, 8])
    assert asked_for == [("lasso", [2, 7]), ("lasso", [2, 7]), ("zero", list(range(8)))]
    asked_for.clear()
    more = untrained.baseline_scores(task, batch, [8, 5])
    assert asked_for == [("lasso", [4]), ("lasso", [4])]
    assert more["lasso"][8] == whole["lasso"][8]
    xs, ys = (part.numpy() for part in task.examples_of(batch))
    error = predictions("lasso", xs, ys, [4])[:, 0] - ys[:, 4]
    assert more["lasso"][5] == pytest.approx((error**2).mean(), rel=1e-5)


def test_what_is_kept_is_bounded() -> None:
    assert untrained.cached_curve.cache_info().maxsize == 256


def test_a_stop_comes_between_baselines() -> None:
    task, calls = LinearRegression(dims=2), []

    def before() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    batch = task.examples(0, 4, 3)
    with pytest.raises(KeyboardInterrupt):
        untrained.baseline_scores(task, batch, [3], before)
    assert untrained.baseline_scores(task, batch, [3])["zero"][3] > 0, "what was broken off is done again"


def test_a_task_without_baselines_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearRegression, "baseline_names", ())
    (score,) = evaluate(*build(run_of()), EvaluationConfig(lengths=(3,), examples=4))
    assert list(score.details) == ["groups"]


def test_what_cannot_be_is_said_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="there is no baseline 'lasoo'; did you mean 'lasso'"):
        check_lengths(run_of(Misspelled), [3])
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(ConfigError, match="needs scikit-learn"):
        check_lengths(run_of(WithLasso), [3])


def test_the_prompts_themselves_are_the_question() -> None:
    task = LinearRegression(dims=2)
    batch = task.examples(0, 4, 3)
    other = Batch(batch.inputs.clone(), batch.targets.clone(), batch.scored)
    other.targets[0, 4] += 1
    (a, b) = (untrained.baseline_scores(task, each, [3])["zero"][3] for each in (batch, other))
    assert a != b
    assert torch.equal(batch.inputs, other.inputs)


def test_every_class_of_functions_has_baselines_and_boolean_ones_a_constant_label() -> None:
    classes = [task for task in TASKS if issubclass(task, FunctionTask)]
    assert len(classes) > 10
    for make in classes:
        require(make.baseline_names)
        assert ("best constant label" if make.metric == ACCURACY else "zero") in make.baseline_names, make.__name__
        task = make()
        length = 6 if task.prefixes_are_examples() else 3
        found = untrained.baseline_scores(task, task.examples(0, 12, length), [length])
        assert all(math.isfinite(curve[length]) for curve in found.values())
    assert [c.__name__ for c in classes if "nearest neighbour" in c.baseline_names] == [
        "Conjunction",
        "Disjunction",
        "SparseMajority",
    ]


# ---- the constant answer ----------------------------------------------------------------------------------------


def constant_of(task: Task, length: int, count: int = 1000) -> float | None:
    curves = untrained.baseline_scores(task, task.examples(0, count, length), [length])
    return curves["constant answer"].get(length)


@pytest.mark.parametrize("scratchpad", ["none", "full"])
@pytest.mark.parametrize(("length", "n", "often"), [(6, 6, 4), (7, 16, 11), (8, 36, 22)])
def test_chance_is_more_than_one_half_on_a_few_parities(length: int, n: int, often: int, scratchpad: str) -> None:
    """The most frequent answer of the test questions, counted from their texts; the steps before it do not count."""
    task = Parity(scratchpad=scratchpad)
    batch = task.examples(0, 1000, length)
    answers = Counter(answer[-1] for _, answer in task.pairs(batch))
    assert (len(batch), max(answers.values())) == (n, often)
    assert constant_of(task, length) == pytest.approx(often / n, rel=1e-5)


def test_tasks_of_few_answers_have_a_constant_one_and_others_none() -> None:
    assert 0.5 <= (constant_of(Parity(), 30) or 0) < 0.53
    assert 0.5 <= (constant_of(LEGO(), 9) or 0) < 0.53
    assert 0.1 <= (constant_of(Summation(), 9) or 0) < 0.14
    assert 0.1 <= (constant_of(Polynomial(), 5) or 0) < 0.2
    for task, length in [(Copy(), 5), (Reverse(), 3), (Sorting(), 4), (Addition(), 6), (SCAN(), 24), (PCFG(), 35)]:
        assert constant_of(task, length) is None, type(task).__name__


def test_the_constant_answer_is_a_floor_beside_a_score_and_nothing_where_answers_are_many() -> None:
    class Always(nn.Module):
        def __init__(self, task: Parity, word: str):
            super().__init__()
            self.size, (self.word,), self.eos = task.vocab_size, task.ids([word]), task.eos
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*inputs.shape, self.size)
            logits[:, :-1, self.word] = logits[:, -1, self.eos] = 1.0  # EOS after the one word of the answer
            return logits

    task = Parity()
    (score,) = evaluate(Always(task, "No"), task, EvaluationConfig(lengths=(7,), examples=100))
    assert score.details["baselines"] == [{"name": "constant answer", "score": 0.6875, "floor": True}]
    assert score.mean == 0.6875, "who always says No scores just that"
    copy = Copy(symbols=4)
    (score,) = evaluate(Always(copy, "a"), copy, EvaluationConfig(lengths=(5,), examples=100))
    assert score.details == {}


@pytest.mark.parametrize(
    ("task", "floors"),
    [
        (LinearRegression(), ["mean label", "zero"]),
        (Conjunction(), ["always −1", "best constant label"]),
        (PFA(), ["every symbol alike", "counts of symbols"]),
        (Parity(), ["constant answer"]),
    ],
)
def test_every_kind_of_score_has_floors_the_simplest_first(task: Task, floors: list[str]) -> None:
    assert [baseline.name for baseline in task.baselines() if baseline.floor] == floors
    assert len({baseline.name for baseline in task.baselines()}) == len(task.baselines())
