"""Scores at many lengths: each by itself, whatever the order and the batch size."""

import dataclasses
import math
import re
import statistics

import pytest
import torch
from torch import nn

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, ALiBi, Learned
from lengthwise.evaluation import Division, EvaluationError, check_lengths, evaluate, evaluation_question
from lengthwise.metrics import EXACT_MATCH
from lengthwise.positions import Digits, Randomized, Shift, Skip, position_scheme_for
from lengthwise.tasks import Copy, Text
from lengthwise.tasks.base import GradedAnswers, generator
from lengthwise.training import Progress, Stopped, build


def a_run(task, encoding=FIRE, **settings) -> Run:
    return Run(
        encoding=choose(encoding, **settings),
        task=task,
        model=ModelConfig(d_model=16, num_layers=2, num_heads=2, dropout=0.3),
        training=TrainingConfig(train_length=8),
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for n in range(12):
        (folder / f"{n}.txt").write_text(" ".join(f"word{(i * i + n) % 97}" for i in range(1000)))
    return choose(Text, path=str(folder), validation=0.3)


@pytest.fixture(scope="module", params=["text", "copy"])
def scored(request, text):
    """A model that knows nothing yet, its task, and a config."""
    run = a_run(text if request.param == "text" else choose(Copy, symbols=2))
    model, task = build(run)
    return model, task, EvaluationConfig(lengths=(4, 8, 16, 64), examples=16, tokens=512)


def numbers(scores):
    return {s.length: (s.n, s.mean, s.standard_error) for s in scores}


class Half(nn.Module):
    """Knows the answer of every second example of `Copy` and says nonsense for the others."""

    def __init__(self, task):
        super().__init__()
        self.task, self.weight = task, nn.Parameter(torch.zeros(1))
        self.seen: list[int] = []

    def forward(self, inputs):
        n = inputs.shape[1] // 2 - 1
        answer = torch.cat([inputs[:, 1:], torch.full((len(inputs), 1), self.task.eos)], 1)
        answer[:, n + 1 : -1] = inputs[:, 1 : n + 1]
        first = sum(self.seen)
        self.seen.append(len(inputs))
        wrong = (torch.arange(first, first + len(inputs)) % 2 == 1)[:, None]
        return nn.functional.one_hot(torch.where(wrong, self.task.sep, answer), self.task.vocab_size).float()


def test_means_and_standard_errors_are_what_they_are_called():
    task = Copy()
    config = EvaluationConfig(lengths=(10,), examples=50)
    (score,) = evaluate(Half(task), task, config)
    assert (score.length, score.metric, score.better, score.n) == (10, "exact match", "higher", 50)
    assert score.mean == 0.5
    values = [1.0, 0.0] * 25
    assert score.standard_error == pytest.approx(statistics.stdev(values) / math.sqrt(50))
    assert score.question == {"length": 10, "examples": 50, "seed": 0}
    assert score.seconds > 0


def test_one_example_has_no_standard_error():
    task = Copy()
    (score,) = evaluate(Half(task), task, EvaluationConfig(lengths=(10,), examples=1))
    assert (score.n, score.mean, score.standard_error) == (1, 1.0, None)


def test_every_example_gets_one_forward_in_batches_of_so_many_places():
    task = Copy()
    model = Half(task)
    evaluate(
        model,
        task,
        EvaluationConfig(lengths=(9,), examples=50),
        division=Division(7 * task.tokens(9) + 3),
    )
    assert model.seen == [7] * 7 + [1]
    model = Half(task)
    evaluate(model, task, EvaluationConfig(lengths=(9,), examples=3), division=Division(1))
    assert model.seen == [1, 1, 1]


def test_neither_order_nor_company_matters(scored):
    model, task, config = scored
    together = numbers(evaluate(model, task, config))
    torch.manual_seed(17)
    reverse = numbers(evaluate(model, task, dataclasses.replace(config, lengths=(64, 16, 8, 4))))
    alone = {
        k: v
        for n in config.lengths
        for k, v in numbers(evaluate(model, task, dataclasses.replace(config, lengths=(n,)))).items()
    }
    assert together == reverse == alone
    assert numbers(evaluate(model, task, config)) == together, "call history"


@pytest.mark.medium
def test_the_batch_size_changes_rounding_alone(scored):
    model, task, config = scored
    whole = numbers(evaluate(model, task, config, division=Division(10**6)))
    for batch_tokens in (1, 100, 1000):
        parts = numbers(evaluate(model, task, config, division=Division(batch_tokens)))
        for length, expected in whole.items():
            assert parts[length] == pytest.approx(expected, rel=1e-6)


def test_another_seed_asks_other_examples_and_another_length_is_no_prefix(scored):
    model, task, config = scored
    first = numbers(evaluate(model, task, dataclasses.replace(config, lengths=(64,))))
    other = numbers(evaluate(model, task, dataclasses.replace(config, seed=1, lengths=(64,))))
    if task.metric == EXACT_MATCH:  # a model that knows nothing scores 0 for any of them: look at the examples
        a, b = (task.examples(seed, 20, 64) for seed in (0, 1))
        assert not torch.equal(a.inputs, b.inputs)
    else:
        assert first != other


def test_the_score_of_text_is_the_mean_of_its_nats(text):
    model, task = build(a_run(text))
    config = EvaluationConfig(lengths=(16,), tokens=320)
    (score,) = evaluate(model, task, config)
    batch = task.examples(0, 20, 16, "test")
    with torch.no_grad():
        nats = nn.functional.cross_entropy(
            model.eval()(batch.inputs).flatten(0, 1), batch.targets.flatten(), reduction="none"
        )
    assert (score.n, score.metric) == (20, "cross-entropy")
    assert score.mean == pytest.approx(float(nats.double().mean()), rel=1e-6)
    assert score.question == {"length": 16, "tokens": 320, "seed": 0}


def test_fewer_examples_than_asked_are_scored_once_each():
    run = a_run(choose(Copy, symbols=2))
    model, task = build(run)
    heard: list[Progress] = []
    config = EvaluationConfig(lengths=(5, 20), examples=100)
    five, twenty = evaluate(model, task, config, division=Division(64), on_progress=heard.append)
    assert five.n == task.available(5, "test") < 100
    assert twenty.n == 100
    assert heard[-1].step == heard[-1].steps
    assert five.question["examples"] == 100, "the question stays the one that was asked"


def test_dropout_is_off_and_the_mode_comes_back(scored):
    model, task, config = scored
    for training in (True, False):
        model.train(training)
        evaluate(model, task, dataclasses.replace(config, lengths=(8,)))
        assert model.training is training
    model.train()
    with pytest.raises(Stopped):
        evaluate(model, task, config, should_stop=lambda: True)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


class Unused(nn.Module):
    """Fails when it is asked anything."""

    def __init__(self, encoding=None):
        super().__init__()
        self.weight, self.encoding = nn.Parameter(torch.zeros(1)), encoding

    def forward(self, inputs):
        pytest.fail("a forward before the check")


def test_a_length_past_the_table_is_refused_before_any_forward():
    config = EvaluationConfig(lengths=(4, 7, 8))  # 2 n + 2 positions: 8 needs 18
    with pytest.raises(
        ConfigError, match=r"length 8 symbols needs 18 positions, but Learned has 16; .*max_length"
    ) as e:
        evaluate(Unused(Learned(d_model=4, max_length=16)), Copy(), config)
    assert "\n" not in str(e.value)
    run = a_run(choose(Copy), Learned, max_length=16)
    check_lengths(run, [4, 7])
    with pytest.raises(ConfigError, match="needs 18 positions"):
        check_lengths(run, [4, 7, 8])
    check_lengths(a_run(choose(Copy), ALiBi), [10**6])


def test_a_length_that_the_task_has_not_got_is_refused_before_any_forward(text):
    with pytest.raises(ConfigError):
        evaluate(Unused(), text.build(), EvaluationConfig(lengths=(8, 10**7)))
    with pytest.raises(ConfigError):
        check_lengths(a_run(text), [8, 10**7])
    with pytest.raises(ConfigError, match="batch_tokens must be at least 1, got 0"):
        evaluate(Unused(), Copy(), EvaluationConfig(lengths=(8,)), division=Division(0))


RANDOM = choose(Randomized, max_length=200)


@pytest.mark.medium
def test_drawn_positions_hang_on_the_seed_and_the_length_alone(scored):
    model, task, config = scored
    together = numbers(evaluate(model, task, config, positions=RANDOM))
    torch.manual_seed(17)
    reverse = numbers(evaluate(model, task, dataclasses.replace(config, lengths=(64, 16, 8, 4)), positions=RANDOM))
    assert together == reverse
    for batch_tokens in (1, 100, 1000):
        parts = numbers(evaluate(model, task, config, division=Division(batch_tokens), positions=RANDOM))
        for length, expected in together.items():
            assert parts[length] == pytest.approx(expected, rel=1e-6)


class Listening(Half):
    """Half, and notes what positions it is given."""

    def __init__(self, task):
        super().__init__(task)
        self.claimed: list[torch.Tensor] = []

    def forward(self, inputs, positions=None):
        self.claimed.append(positions)
        return super().forward(inputs)


def claimed(scheme, lengths=(9,), **changes):
    task = Copy()
    model, config = Listening(task), EvaluationConfig(lengths=lengths, **{"examples": 50, **changes})
    evaluate(model, task, config, positions=scheme, division=Division(140))
    return None if model.claimed[0] is None else torch.cat(model.claimed)


def test_every_example_has_positions_of_its_own_whatever_the_batches():
    found = claimed(RANDOM)
    expected = position_scheme_for(Copy(), RANDOM).draw(50, 20, generator(0, "layout", 9))
    assert torch.equal(found, expected)
    assert torch.equal(claimed(RANDOM, examples=20), expected[:20]), "more examples changed the first"
    assert not torch.equal(claimed(RANDOM, seed=1), expected)


def test_a_position_scheme_of_training_alone_leaves_evaluation_to_the_model():
    for scheme in (None, choose(Shift), choose(Skip), choose(Randomized, max_length=8, at_evaluation="consecutive")):
        assert claimed(scheme) is None


def test_digits_are_aligned_in_evaluation_too():
    found = claimed(choose(Digits, zero=3))
    ids = torch.cat([Copy().examples(0, 50, 9).inputs])
    assert torch.equal(found > 0, (ids >= 3) & (ids < 13))
    assert int(found.max()) <= 9


@pytest.mark.parametrize(
    ("scheme", "settings", "words"),
    [
        (choose(Randomized, max_length=17), {}, "max_length must be at least the number of tokens, 18, got 17"),
        (
            RANDOM,
            {"max_length": 199},
            r"length 4 symbols needs 200 positions with Randomized, but Learned has 199; .*max",
        ),
        (
            choose(Digits, zero=0),
            {"max_length": 18},
            "length 8 symbols needs 19 positions with Digits, but Learned has 18",
        ),
        (choose(Digits), {}, "Copy has the token IDs 0 ... 28"),
    ],
)
def test_positions_that_cannot_be_are_refused_before_any_forward(scheme, settings, words):
    config = EvaluationConfig(lengths=(4, 7, 8))
    with pytest.raises(ConfigError, match=words) as e:
        evaluate(Unused(Learned(d_model=4, **settings)), Copy(), config, positions=scheme)
    assert "\n" not in str(e.value)
    run = a_run(choose(Copy), Learned, **settings)
    run = dataclasses.replace(run, training=dataclasses.replace(run.training, positions=scheme))
    with pytest.raises(ConfigError, match=words):
        check_lengths(run, config.lengths)


def test_shifts_in_training_ask_no_more_rows_of_evaluation():
    run = a_run(choose(Copy), Learned, max_length=18)
    check_lengths(dataclasses.replace(run, training=dataclasses.replace(run.training, positions=choose(Shift))), [8])


class Overflowing(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs):
        return torch.full((*inputs.shape, 257), math.nan)


def test_a_score_that_is_no_number_names_its_length(text):
    with pytest.raises(
        EvaluationError, match="at length 16 the cross-entropy of 2 of 2 examples is not a finite number"
    ):
        evaluate(Overflowing(), text.build(), EvaluationConfig(lengths=(16,), tokens=32))


def test_progress_and_stopping(scored):
    model, task, config = scored
    heard: list[Progress] = []
    evaluate(model, task, config, division=Division(256), on_progress=heard.append)
    assert all(p.phase == "evaluate" and p.loss is None for p in heard)
    assert heard[0].step == 1
    assert heard[-1].step == heard[-1].steps
    assert heard[-1].length == 64
    assert heard[-1].eta_seconds == 0
    with pytest.raises(Stopped, match=r"stopped at step 0 of \d+ \(evaluate\)"):
        evaluate(Unused(), task, config, should_stop=lambda: True)


def test_progress_ends_where_there_are_fewer_examples_than_the_task_knows():
    model, task = build(a_run(choose(Copy, pattern="repeated", symbols=5000)))
    heard: list[Progress] = []
    config = EvaluationConfig(lengths=(2, 3), examples=2000)
    scores = evaluate(model, task, config, division=Division(800), on_progress=heard.append)
    assert task.available(2) is None
    assert all(0 < score.n < 1000 for score in scores)
    assert (
        heard[-1].step == heard[-1].steps == sum(-(-score.n // (800 // task.tokens(score.length))) for score in scores)
    )
    assert heard[-1].eta_seconds == 0


def test_the_question_is_the_same_for_a_task_and_its_class():
    config = EvaluationConfig(lengths=(8,), tokens=100, examples=9, seed=4)
    assert (
        evaluation_question(Copy, config, 8)
        == evaluation_question(Copy(), config, 8)
        == {"length": 8, "examples": 9, "seed": 4}
    )
    assert evaluation_question(Text, config, 16) == {"length": 16, "tokens": 100, "seed": 4}


def test_generators_of_tests_are_not_those_of_training():
    assert generator(0, "test", 8).initial_seed() != generator(0, "train", 8).initial_seed()


@pytest.mark.parametrize(
    ("scores", "got"),
    [
        (torch.zeros(5, 3, dtype=torch.float64), r"torch.float64 of shape \[5, 3\]"),
        (torch.zeros(15, dtype=torch.float64), r"torch.float64 of shape \[15\]"),
        (torch.zeros(3), r"torch.float32 of shape \[3\]"),
        (torch.zeros(5, dtype=torch.complex64), r"torch.complex64 of shape \[5\]"),
        (torch.tensor(0.5), r"torch.float32 of shape \[\]"),
        (None, "None"),
    ],
    ids=str,
)
def test_a_task_must_return_one_score_per_example(scores, got, monkeypatch):
    task = Copy()
    monkeypatch.setattr(Copy, "score", lambda self, logits, batch: scores)
    model = Half(task)
    with pytest.raises(
        EvaluationError, match=rf"must return one float64 score per example, \[batch\] with batch 5, got {got}$"
    ):
        evaluate(model, task, EvaluationConfig(lengths=(4,), examples=5))


def _evaluated(monkeypatch, method, result, decode=False):
    task = Copy()
    monkeypatch.setattr(Copy, method, result)
    generated = ([["a"]] * 5, torch.zeros(5, dtype=torch.bool))
    monkeypatch.setattr("lengthwise.evaluation.scores.greedy_decode", lambda *_: generated)
    return evaluate(Half(task), task, EvaluationConfig(lengths=(4,), examples=5), decode=decode)


@pytest.mark.parametrize("score", [-0.5, 1.5, 1e9])
def test_scores_beyond_the_limits_of_the_metric_are_refused(score, monkeypatch):
    limits = f"between {min(0, score):g} and {max(0, score):g}, beyond the limits 0 to 1 of its metric 'exact match'"
    with pytest.raises(EvaluationError, match=re.escape(f"at length 4 the scores of Copy lie {limits}; correct")):
        _evaluated(monkeypatch, "score", lambda self, logits, batch: torch.tensor([0.0, 0, 0, 0, score]).double())


def test_scores_that_exceed_a_limit_by_rounding_are_at_the_limit(monkeypatch):
    (score,) = _evaluated(monkeypatch, "score", lambda *_: torch.full((5,), 1 + 1e-9, dtype=torch.float64))
    assert score.mean == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_score_that_is_not_finite_is_blamed_on_the_task_if_the_logits_are_finite(value, monkeypatch):
    scores = torch.tensor([0.0, value, 0.0, value, 0.0], dtype=torch.float64)
    expected = (
        "returned a score that is not a finite number for 2 of 5 examples of length 4, although the model's logits"
    )
    with pytest.raises(EvaluationError, match=rf"^Copy\.score {expected}"):
        _evaluated(monkeypatch, "score", lambda *_: scores)
    graded = GradedAnswers(scores, {}, [])
    with pytest.raises(EvaluationError, match=rf"^Copy\.grade {expected}"):
        _evaluated(monkeypatch, "grade", lambda *_: graded, decode=True)


@pytest.mark.parametrize(
    ("result", "error", "says"),
    [
        (None, ConfigError, r"\.grade must return lengthwise.tasks.GradedAnswers, got None"),
        (
            GradedAnswers(torch.zeros(3), {}, []),
            EvaluationError,
            r"\.grade must return one float64 score .*shape \[3\]",
        ),
    ],
    ids=["nothing", "too few"],
)
def test_grades_of_another_type_are_refused(result, error, says, monkeypatch):
    with pytest.raises(error, match=says):
        _evaluated(monkeypatch, "grade", lambda *_: result, decode=True)
