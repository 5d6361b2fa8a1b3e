"""The loop: the same bits however often it is interrupted, whatever else happens around it."""

import dataclasses
import itertools
import math
from pathlib import Path

import pytest
import torch

from lengthwise.attention import BACKENDS, unsupported_reason
from lengthwise.config import (
    ConfigError,
    EvaluationConfig,
    ModelConfig,
    Run,
    StopWhenLearned,
    TrainingConfig,
    choose,
)
from lengthwise.encodings import FIRE, ALiBi, Learned, NoPE
from lengthwise.evaluation import evaluate
from lengthwise.positions import Digits, Randomized, Shift, Skip
from lengthwise.span import Span
from lengthwise.tasks import Copy, LinearRegression
from lengthwise.tasks.base import Batch, generator
from lengthwise.training import Progress, Stopped, TrainingError, build, load_weights, train
from lengthwise.training.checkpoint import model_tensors
from lengthwise.training.trainer import Trainer

MAMBA = ModelConfig.mamba(d_model=16, num_layers=2, state_size=4, dropout=0.1)


def a_run(encoding=FIRE, model=None, **training) -> Run:
    if not isinstance(model, ModelConfig):
        model = ModelConfig(d_model=16, num_layers=2, num_heads=2, **(model or {}))
    return Run(
        encoding=choose(encoding),
        task=choose(Copy, symbols=5),
        model=model,
        training=TrainingConfig(**{"train_length": 5, "steps": 12, "batch_size": 8, **training}),
        seed=3,
    )


def bits(trained) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in model_tensors(trained.model).items()}


def plain_curve(trained) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "tokens_per_second"} for row in trained.curve]


def stop_after(steps):
    """Asked before every step: says stop once `steps` steps were done in this call."""
    asked = itertools.count()
    return lambda: next(asked) >= steps


@pytest.mark.medium
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(a_run(), marks=pytest.mark.slow),
        a_run(encoding=ALiBi, model={"dropout": 0.2}, accumulation=2, min_length=2),
        pytest.param(
            a_run(encoding=NoPE, model={"dropout": 0.1, "tie_embeddings": True, "norm": "rms"}, schedule="linear"),
            marks=pytest.mark.slow,
        ),
        a_run(positions=choose(Randomized, max_length=30), accumulation=2, min_length=2),
        pytest.param(a_run(encoding=Learned, positions=choose(Shift, max_shift=9)), marks=pytest.mark.slow),
        pytest.param(a_run(encoding=NoPE, model=MAMBA, accumulation=2, min_length=2), marks=pytest.mark.slow),
        pytest.param(
            a_run(model={"dropout": 0.1}, accumulation=2, min_length=2, train_examples=20), marks=pytest.mark.slow
        ),
    ],
    ids=[
        "FIRE",
        "dropout, accumulation, lengths",
        "tied, rms",
        "randomized, accumulation, lengths",
        "learned, shift",
        "Mamba, accumulation, lengths",
        "fixed set, dropout, accumulation, lengths",
    ],
)
def test_stopping_anywhere_changes_no_bit(run, tmp_path):
    whole = train(run, tmp_path / "whole")
    config = EvaluationConfig(lengths=(5, 9), examples=16)
    asked = {"config": config, "positions": run.training.positions}
    scores = [s.mean for s in evaluate(whole.model, whole.task, **asked)]
    for pattern in ([1] * 11, [5, 4], [11]):
        folder = tmp_path / str(pattern)
        for steps in pattern:
            torch.manual_seed(steps)  # whatever the caller's generator is at
            with pytest.raises(Stopped):
                train(run, folder, should_stop=stop_after(steps))
        broken = train(run, folder)
        assert bits(broken) == bits(whole)
        assert plain_curve(broken) == plain_curve(whole)
        assert [s.mean for s in evaluate(broken.model, broken.task, **asked)] == scores


@pytest.mark.parametrize("every", [1, 5, None])
def test_checkpointing_changes_no_bit(every, tmp_path):
    run = a_run(model={"dropout": 0.1})
    often = train(run, tmp_path / "often", checkpoint_every=every, checkpoint_seconds=0)
    assert bits(often) == bits(train(run, tmp_path / "never"))


@pytest.mark.medium
@pytest.mark.parametrize(("steps", "stops"), [(12, 5), (211, 150)])
def test_reports_have_each_point_of_the_curve_once(steps, stops, tmp_path, monkeypatch):
    """After a stop, the first report has all points from the checkpoint."""
    monkeypatch.setattr("lengthwise.training.progress.Reporter.is_due", lambda self, last=False: True)
    heard = []
    run = a_run(NoPE, steps=steps)
    with pytest.raises(Stopped):
        train(run, tmp_path, should_stop=stop_after(stops), on_progress=lambda p: heard.extend(p.points))
    before, heard = heard, []
    trained = train(run, tmp_path, on_progress=lambda p: heard.extend(p.points))
    assert heard == trained.curve
    assert before == [row for row in trained.curve if row["step"] <= stops]
    assert len(trained.curve) == math.ceil(steps / math.ceil(steps / 200))


def test_a_stopped_run_says_where_and_left_that_checkpoint(tmp_path):
    with pytest.raises(Stopped, match="step 7 of 12") as stopped:
        train(a_run(), tmp_path, should_stop=stop_after(7), checkpoint_every=5)
    assert (stopped.value.phase, stopped.value.step, stopped.value.steps) == ("train", 7, 12)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"checkpoint-0000000{n}.safetensors" for n in (5, 7)]
    with pytest.raises(Stopped, match="step 7 of 12"):
        train(a_run(), tmp_path, should_stop=lambda: True)


@pytest.mark.medium
def test_training_learns_and_the_curve_says_so(tmp_path):
    trained = train(a_run(steps=300, batch_size=32, learning_rate=3e-3), tmp_path)
    assert [row["step"] for row in trained.curve] == list(range(2, 301, 2))
    assert trained.curve[0]["loss"] > 1.5 > 1.3 > trained.curve[-1]["loss"]
    assert all(row["gradient_norm"] > 0 and row["tokens_per_second"] > 0 for row in trained.curve)
    assert trained.curve[-1]["learning_rate"] == pytest.approx(3e-4)
    assert trained.parameters == sum(p.numel() for p in trained.model.parameters())
    fire, span = FIRE(num_heads=2).modifiers(Span.of(2)), Span.of(2)
    assert trained.backend == next(name for name in BACKENDS if not unsupported_reason(name, fire, span))
    assert 0 <= trained.loop_overhead < 1
    assert trained.seconds > 0


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = train(a_run(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["weights.safetensors"]
    again = train(a_run(), tmp_path, on_progress=lambda p: pytest.fail("trained again"))
    assert bits(again) == bits(first)
    assert dataclasses.replace(again, model=None, task=None) == dataclasses.replace(first, model=None, task=None)
    model = load_weights(tmp_path, a_run())
    x = torch.tensor([[1, 2, 3]])
    assert torch.equal(model.eval()(x), first.model.eval()(x))


def test_weights_depend_on_the_run_alone():
    run = a_run()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = model_tensors(build(run)[0])
    assert torch.equal(torch.get_rng_state(), before), "the caller's generator was moved"
    torch.manual_seed(2)
    second = model_tensors(build(run)[0])
    other = model_tensors(build(dataclasses.replace(run, seed=4))[0])
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


def test_the_callers_generator_and_denormals_are_left_alone(tmp_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    train(a_run(model={"dropout": 0.5}), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
    assert float(torch.full((1,), 1e-39) * 1.0) > 0


class Ragged(Copy):
    """Copy in which every example scores another number of places, some none."""

    def sample(self, generator, batch, length, split="train"):
        b = super().sample(generator, batch, length, split)
        keep = torch.arange(batch)[:, None] % (length + 2) > torch.arange(b.scored.shape[1])[None] - length
        return Batch(b.inputs, b.targets, b.scored & keep)


def one_step(accumulation: int, task, positions=None) -> tuple[dict[str, torch.Tensor], float]:
    run = a_run(accumulation=accumulation, batch_size=8, weight_decay=0.0, steps=3, positions=positions)
    model, _ = build(run)
    trainer = Trainer(run, model.double(), task, torch.device("cpu"))
    gradients: dict[str, torch.Tensor] = {}
    trainer.optimizer.step = lambda: gradients.update({n: p.grad.clone() for n, p in model.named_parameters()})
    trainer.step()
    return gradients, trainer.loss()


@pytest.mark.parametrize("scheme", [None, choose(Randomized, max_length=64)], ids=["consecutive", "randomized"])
@pytest.mark.parametrize("task", [Copy(symbols=5), Ragged(symbols=5)], ids=["all alike", "pad_rows"])
def test_accumulation_is_the_same_step(task, scheme):
    whole, loss = one_step(1, task, scheme)
    for accumulation in (2, 4, 8):
        parts, parts_loss = one_step(accumulation, task, scheme)
        assert parts_loss == pytest.approx(loss, rel=1e-6)
        for name in whole:
            torch.testing.assert_close(parts[name], whole[name], rtol=1e-4, atol=1e-7, msg=name)  # the loss is float32


def test_gradients_are_clipped():
    run = a_run(clip=1e-3)
    model, task = build(run)
    trainer = Trainer(run, model, task, torch.device("cpu"))
    used: list[torch.Tensor] = []
    trainer.optimizer.step = lambda: used.extend(p.grad.flatten().clone() for p in model.parameters())
    trainer.step()
    assert float(torch.cat(used).norm()) == pytest.approx(1e-3, rel=1e-3)
    assert float(trainer.loss_and_norm[1, 0]) > 0.1, "the curve keeps the norm before clipping"


def test_lengths_are_drawn_from_the_range_and_every_step_draws_anew():
    run = a_run(min_length=2, steps=60)
    model, task = build(run)
    trainer = Trainer(run, model, task, torch.device("cpu"))
    seen, firsts = set(), set()
    for trainer.steps_done in range(60):
        batch = trainer.batch()
        seen.add(batch.inputs.shape[1])
        firsts.add(tuple(batch.inputs[:, 1].tolist()))
    assert seen == {task.tokens(n) for n in (2, 3, 4, 5)}
    assert len(firsts) == 60


def test_the_seed_of_the_data_decides_the_examples_and_nothing_else():
    def first_step(seed, data_seed, **settings):
        run = dataclasses.replace(a_run(data_seed=data_seed, positions=choose(Randomized), **settings), seed=seed)
        model, task = build(run)
        trainer = Trainer(run, model, task, torch.device("cpu"))
        batch = trainer.batch()
        weights = torch.cat([p.flatten() for p in model.parameters()])
        return tuple(tuple(part.flatten().tolist()) for part in (weights, batch.inputs, trainer.positions(batch)))

    for settings in ({}, {"train_examples": 64, "min_length": 2}):
        usual, same, others = (first_step(3, data_seed, **settings) for data_seed in (None, 3, 4))
        assert same == usual
        assert others[0] == usual[0]
        assert others[1] != usual[1]
        assert others[2] == usual[2]
        assert first_step(4, None, **settings)[0] != usual[0]
        assert first_step(4, None, **settings)[1] == others[1]


def test_positions_are_drawn_anew_at_every_step_from_seed_and_step_alone():
    seen = []
    for seed in (3, 4):
        run = dataclasses.replace(a_run(positions=choose(Randomized, max_length=1000), steps=5), seed=seed)
        model, task = build(run)
        trainer = Trainer(run, model, task, torch.device("cpu"))
        claimed: list[torch.Tensor] = []
        model.register_forward_pre_hook(lambda m, a, kw, to=claimed: to.append(kw["positions"]), with_kwargs=True)
        for _ in range(5):
            torch.manual_seed(0)  # whatever the caller's generator is at
            trainer.step()
        seen += [tuple(p.flatten().tolist()) for p in claimed]
        again = Trainer(run, *build(run), torch.device("cpu"))
        again.steps_done = 3
        assert torch.equal(again.positions(again.batch()), claimed[3])
        assert len({tuple(row) for row in claimed[0].tolist()}) == 8, "every sequence draws its own"
    assert len(set(seen)) == 10


def test_without_a_position_scheme_the_model_counts_by_itself():
    run = a_run()
    trainer = Trainer(run, *build(run), torch.device("cpu"))
    assert trainer.positions(trainer.batch()) is None


@pytest.mark.parametrize(
    ("encoding", "settings", "training", "words"),
    [
        (
            FIRE,
            {},
            {"positions": choose(Randomized, max_length=11)},
            "max_length must be at least the number of tokens, 12, got 11",
        ),
        (
            FIRE,
            {},
            {"positions": choose(Skip, target_length=40, chunks=7), "min_length": 2},
            "chunks must be at most the number of tokens, 6, got 7",
        ),
        (
            FIRE,
            {},
            {"positions": choose(Skip, target_length=11)},
            "target_length must be at least the number of tokens, 12, got 11",
        ),
        (FIRE, {}, {"positions": choose(Digits)}, "Copy has the token IDs 0 ... 7"),
        (
            Learned,
            {"max_length": 30},
            {"positions": choose(Shift, max_shift=19)},
            r"train_length 5 needs 31 positions with Shift\(max_shift=19\), but the encoding has 30; give it a larger",
        ),
        (
            Learned,
            {"max_length": 11},
            {},
            "train_length 5 needs 12 positions, but the encoding has 11.*or train on shorter",
        ),
    ],
)
def test_positions_that_cannot_be_are_refused_before_the_first_step(encoding, settings, training, words, tmp_path):
    run = dataclasses.replace(a_run(**training), encoding=choose(encoding, **settings))
    with pytest.raises(ConfigError, match=words) as error:
        train(run, tmp_path, should_stop=lambda: pytest.fail("a step before the check"))
    assert "\n" not in str(error.value)


class Exploding(Copy):
    """Its third loss, counted over all calls, is not a number."""

    def __init__(self, *, symbols: int = 5):
        super().__init__(symbols=symbols)
        self.calls = itertools.count(1)

    def loss(self, logits, batch):
        return super().loss(logits, batch) * (math.nan if next(self.calls) == 3 else 1.0)


@pytest.mark.parametrize("every", [None, 1])
def test_a_loss_that_is_no_number_ends_the_run(every, tmp_path):
    run = dataclasses.replace(a_run(steps=400), task=choose(Exploding))
    said = rf"run {run.key} .*FIRE.*at step 3 of 400 the loss is nan.*learning_rate"
    with pytest.raises(TrainingError, match=said) as error:
        train(run, tmp_path, checkpoint_every=every)
    assert "\n" not in str(error.value)
    assert {p.name for p in tmp_path.iterdir()} <= {f"checkpoint-0000000{n}.safetensors" for n in (1, 2)}


class Silent(Copy):
    """No place counts."""

    def sample(self, generator, batch, length, split="train"):
        b = super().sample(generator, batch, length, split)
        return Batch(b.inputs, b.targets, torch.zeros_like(b.scored))


class Fussy(Copy):
    def check_length(self, length, split="test"):
        if length < 4 and split == "train":
            raise ConfigError(f"no example of length {length}")


def test_a_task_that_cannot_be_trained_says_so(tmp_path):
    with pytest.raises(TrainingError, match="at step 1 the batch has no target that is scored"):
        train(dataclasses.replace(a_run(), task=choose(Silent, symbols=5)), tmp_path / "a")
    with pytest.raises(ConfigError, match="no example of length 3"):
        train(dataclasses.replace(a_run(min_length=3), task=choose(Fussy, symbols=5)), tmp_path / "b")


def test_progress_tells_the_way_to_the_end(tmp_path):
    heard: list[Progress] = []
    train(a_run(), tmp_path, on_progress=heard.append)
    first, last = heard[0], heard[-1]
    assert (first.phase, first.step, first.steps, last.step) == ("train", 1, 12, 12)
    assert first.loss is not None
    assert first.loss > 0
    assert last.eta_seconds == 0
    assert last.steps_per_second > 0
    assert len(heard) < 12, "a report per step would cost something"


def test_what_a_caller_throws_comes_through_and_the_run_continues(tmp_path):
    def lost(progress):
        raise RuntimeError("claim lost")

    with pytest.raises(RuntimeError, match="claim lost"):
        train(a_run(), tmp_path, on_progress=lost)
    assert train(a_run(), tmp_path).curve[-1]["step"] == 12


def test_progress_shows_the_mean_loss_of_the_last_steps():
    """The loss of one batch depends on the length that was drawn for it."""
    run = a_run(steps=30)
    trainer = Trainer(run, *build(run), torch.device("cpu"))
    for _ in range(30):
        trainer.step()
    assert trainer.loss() == pytest.approx(trainer.loss_and_norm[0, 10:30].mean().item())


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer's step can make them so although the loss and the gradients of all steps are finite."""
    step, steps = torch.optim.AdamW.step, iter(range(1, 100))

    def damaging_step(self: torch.optim.AdamW, *arguments: object) -> object:
        found = step(self, *arguments)
        if next(steps) == 4:
            self.param_groups[0]["params"][0].data.fill_(float("inf"))
        return found

    monkeypatch.setattr(torch.optim.AdamW, "step", damaging_step)
    with pytest.raises(TrainingError, match=r"after step 4 the weights \S+ are not finite; try a lower learning_rate"):
        train(a_run(), tmp_path, checkpoint_every=4)
    assert not list(tmp_path.glob("*.safetensors"))


def learning(**stop) -> Run:
    return a_run(
        encoding=NoPE,
        min_length=2,
        train_length=2,
        steps=400,
        learning_rate=3e-3,
        schedule="constant",
        stop=StopWhenLearned(**{"score": 0.9, "every": 10, "times": 3, "examples": 20, **stop}),
    )


def test_training_stops_when_the_score_was_high_enough_several_times_in_a_row(tmp_path, monkeypatch):
    scores: list[float] = []
    score = Trainer.score

    def recorded(self: Trainer, count: int) -> float:
        scores.append(score(self, count))
        return scores[-1]

    monkeypatch.setattr(Trainer, "score", recorded)
    run = learning()
    trained = train(run, tmp_path)
    enough = [value >= 0.9 for value in scores]
    assert enough[-3:] == [True] * 3
    assert not any(all(enough[n : n + 3]) for n in range(len(enough) - 3))  # it did not go on after the first time
    assert trained.steps == 10 * len(scores) < 400
    assert trained.curve[-1]["step"] == trained.steps
    examples = trained.task.sample(generator(run.data_seed, "stop", trained.steps), 20, 2)
    with torch.no_grad():
        predicted = trained.model.eval()(examples.inputs).argmax(-1)
    right = ((predicted == examples.targets) | ~examples.scored).all(1)
    assert scores[-1] == pytest.approx(float(right.double().mean()))
    assert train(run, tmp_path).steps == trained.steps


def test_a_run_that_does_not_learn_takes_all_steps(tmp_path):
    run = learning(score=1.1, every=7)
    trained = train(dataclasses.replace(run, training=dataclasses.replace(run.training, steps=24)), tmp_path)
    assert trained.steps == 24


def test_scores_on_the_way_change_no_bit(tmp_path):
    """Scores of a model that does not stop, with dropout, which must not be in effect while it is scored."""
    run = a_run(model={"dropout": 0.3}, min_length=2)
    stop = StopWhenLearned(score=1.1, every=2)
    scored = dataclasses.replace(run, training=dataclasses.replace(run.training, stop=stop))
    assert bits(train(run, tmp_path / "without")) == bits(train(scored, tmp_path / "with"))


@pytest.mark.medium
@pytest.mark.parametrize("steps", [25, 130])
def test_an_interrupted_run_stops_at_the_same_step_with_the_same_bits(steps, tmp_path):
    run = learning()
    whole = train(run, tmp_path / "whole")
    should_stop = stop_after(steps)
    with pytest.raises(Stopped):
        train(run, tmp_path / "parts", should_stop=should_stop)
    parts = train(run, tmp_path / "parts")
    assert parts.steps == whole.steps > steps
    assert bits(parts) == bits(whole)
    assert plain_curve(parts) == plain_curve(whole)


def test_the_numbers_of_an_encoding_end_with_the_training(tmp_path):
    stop = StopWhenLearned(score=0.0, every=5, times=1)
    run = a_run(encoding=FIRE, steps=400, stop=stop)
    trained = train(run, tmp_path)
    assert trained.steps == 5
    assert trained.tracked["steps"][-1] == 5
    values = trained.tracked["quantities"][0]["values"]
    assert len(values) == len(trained.tracked["steps"]) and None not in values[-1]


def test_for_a_metric_where_lower_is_better_the_score_has_to_fall(tmp_path):
    task = choose(LinearRegression, dims=2)
    run = dataclasses.replace(a_run(), task=task)
    high, low = StopWhenLearned(score=1e6, every=2, times=2), StopWhenLearned(score=0.0, every=2, times=2)
    stopped = [
        train(dataclasses.replace(run, training=dataclasses.replace(run.training, stop=stop)), tmp_path / name).steps
        for name, stop in (("high", high), ("low", low))
    ]
    assert stopped == [4, 12]
