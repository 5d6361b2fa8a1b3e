"""Training and evaluation by several processes give the numbers of one process."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.config import ConfigError, EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import ENCODINGS, FIRE, ALiBi, Learned, NoPE, RoPE
from lengthwise.positions import Randomized
from lengthwise.tasks import Addition, Copy, LinearRegression, Text
from lengthwise.training import build
from lengthwise.training.parallel import SHARDINGS, Optimizations
from lengthwise.training.ranks import ALONE, Ranks
from tests.ranks import Either, Together, read_only_in_first, scores, steps, trained

SMALL = ModelConfig(d_model=16, num_layers=2, num_heads=2)
WITH_MIXERS = [ModelConfig(mixer=mixer, d_model=16, num_layers=2) for mixer in MIXERS]
SHARDED = list(SHARDINGS)
QUICKLY_DDP = ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def two() -> Iterator[Together]:
    together = Together(2)
    yield together
    together.close()


@pytest.fixture(scope="module")
def one() -> Iterator[Together]:
    together = Together(1)
    yield together
    together.close()


def run_of(encoding: Any = RoPE, task: Any = Copy, model: ModelConfig = SMALL, **training: Any) -> Run:
    settings = {"max_length": 64} if encoding is Learned else {}
    training = {"train_length": 6, "min_length": 3, "steps": 8, "batch_size": 6} | training
    choice = task if not isinstance(task, type) else choose(task)
    return Run(encoding=choose(encoding, **settings), task=choice, model=model, training=TrainingConfig(**training))


def close(one: Any, other: Any, rtol: float = 1e-6, label: str = "") -> None:
    losses, tensors = one
    other_losses, other_tensors = other
    torch.testing.assert_close(losses, other_losses, rtol=rtol, atol=rtol, msg=lambda m: f"{label}: {m}")
    assert tensors.keys() == other_tensors.keys()
    for name, t in tensors.items():
        torch.testing.assert_close(
            t, other_tensors[name], rtol=rtol, atol=rtol, msg=lambda m, name=name: f"{label} {name}: {m}"
        )


@pytest.mark.slow
@pytest.mark.parametrize("sharding", SHARDED)
def test_two_ranks_train_every_encoding_like_one(two: Together, sharding: str) -> None:
    """Loss, gradient norm, weights and moments after two steps in float64, with unequal micro-batches."""
    runs = [run_of(encoding, batch_size=5) for encoding in ENCODINGS]
    alone = steps(ALONE, runs)
    for rank in two(steps, runs, sharding=sharding):
        for run, one, shared in zip(runs, alone, rank, strict=True):
            close(shared, one, label=run.label)


def models() -> list[Run]:
    tied = ModelConfig(d_model=16, num_layers=2, num_heads=2, tie_embeddings=True)
    shared = ModelConfig(d_model=16, num_layers=2, num_heads=2, share_encoding=True, norm="rms", mlp="swiglu")
    return [
        *(run_of(NoPE, model=model) for model in WITH_MIXERS),
        run_of(FIRE, model=tied),
        run_of(ALiBi, model=shared),
        run_of(RoPE, positions=choose(Randomized, max_length=40)),
        run_of(RoPE, train_examples=20),
        run_of(FIRE, batch_size=12, accumulation=3),
    ]


@pytest.mark.medium
@pytest.mark.parametrize("sharding", QUICKLY_DDP)
def test_two_ranks_train_every_model_like_one(two: Together, sharding: str) -> None:
    alone = steps(ALONE, models(), 3)
    for rank in two(steps, models(), 3, sharding=sharding):
        for one, shared in zip(alone, rank, strict=True):
            close(shared, one)


@pytest.mark.medium
@pytest.mark.parametrize("sharding", SHARDED)
def test_micro_batches_that_use_different_parameters(two: Together, sharding: str) -> None:
    run = run_of(Either, batch_size=4, accumulation=2, positions=choose(Randomized, max_length=40))
    (alone,) = steps(ALONE, [run], 8)
    used = [
        not torch.equal(alone[1][f"model/encodings.0.{name}"], torch.tensor([0.3, -0.2]).double())
        for name in ("even", "odd")
    ]
    assert all(used)
    for (shared,) in two(steps, [run], 8, sharding=sharding):
        close(shared, alone)


@pytest.mark.medium
@pytest.mark.parametrize("sharding", QUICKLY_DDP)
def test_a_run_may_be_interrupted_again_and_again(two: Together, tmp_path: Path, sharding: str) -> None:
    """Only the first rank reads files, so the others may be on machines that do not have them."""
    run = run_of(FIRE, steps=12, batch_size=4)
    whole = two(trained, run, tmp_path / "whole", sharding=sharding)[0]
    two(read_only_in_first)
    for stop in (2, 3, 4, 2):
        assert two(trained, run, tmp_path / "cut", stop, sharding=sharding) == [None, None]
    for losses, weights in two(trained, run, tmp_path / "cut", sharding=sharding):
        assert losses == whole[0]
        assert all(torch.equal(t, whole[1][name]) for name, t in weights.items())


@pytest.mark.medium
def test_dropout_depends_on_the_part_and_not_on_the_rank(two: Together) -> None:
    run = run_of(model=ModelConfig(d_model=16, num_layers=2, num_heads=2, dropout=0.3), batch_size=8, accumulation=2)
    (alone,) = steps(ALONE, [run], 4)
    (first,), _ = two(steps, [run], 4)
    close(first, alone)
    (undivided,) = steps(ALONE, [run_of(model=run.model, batch_size=8)], 4)
    assert not torch.allclose(undivided[0], alone[0]), "each micro-batch has its own random numbers"


@pytest.mark.medium
@pytest.mark.parametrize("sharding", QUICKLY_DDP)
def test_a_checkpoint_resumes_on_another_number_of_ranks(two: Together, tmp_path: Path, sharding: str) -> None:
    # Without biases, because the gradient of a key's bias is 0 up to rounding, which AdamW makes as large as any other.
    model = ModelConfig(d_model=16, num_layers=2, num_heads=2, bias=False)
    run = run_of(ALiBi, model=model, steps=9, batch_size=4)
    losses, weights = trained(ALONE, run, tmp_path / "alone") or pytest.fail("stopped")

    def check(found: Any, exactly: bool = False) -> None:
        tolerance = 0.0 if exactly else 2e-5
        assert found[0] == pytest.approx(losses, rel=tolerance, abs=tolerance)
        for name, t in found[1].items():
            torch.testing.assert_close(t, weights[name], rtol=tolerance, atol=10 * tolerance)

    assert trained(ALONE, run, tmp_path / "more", 4) is None
    for found in two(trained, run, tmp_path / "more", sharding=sharding):
        check(found)
    assert two(trained, run, tmp_path / "fewer", 4, sharding=sharding) == [None, None]
    with pytest.warns(match="devices 2 then, 1 now"):
        check(trained(ALONE, run, tmp_path / "fewer"))
    losses, weights = two(trained, run, tmp_path / "both", sharding=sharding)[0]
    assert two(trained, run, tmp_path / "interrupted", 5, sharding=sharding) == [None, None]
    for found in two(trained, run, tmp_path / "interrupted", sharding=sharding):
        check(found, exactly=True)
    for found in two(trained, run, tmp_path / "interrupted", sharding=sharding):
        check(found, exactly=True)  # finished, so only loaded


EVALUATIONS: dict[str, tuple[Run, EvaluationConfig, int]] = {
    "decoded answers": (run_of(task=Addition), EvaluationConfig(lengths=(3, 5), examples=21), 40),
    "one forward pass": (run_of(task=Copy), EvaluationConfig(lengths=(3, 5), examples=50), 100),
    "a single forward pass": (run_of(task=Copy), EvaluationConfig(lengths=(3,), examples=4), 10_000),
    "prefixes": (run_of(task=LinearRegression), EvaluationConfig(lengths=(1, 3), examples=41, prompt=4), 100),
    "random positions": (
        run_of(task=Copy, positions=choose(Randomized, max_length=40)),
        EvaluationConfig(lengths=(4,), examples=30),
        100,
    ),
    "text": (run_of(task=Text, train_length=16, min_length=16), EvaluationConfig(lengths=(16, 32), tokens=320), 64),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", EVALUATIONS)
def test_ranks_share_the_evaluation(two: Together, name: str) -> None:
    run, config, batch_tokens = EVALUATIONS[name]
    alone = scores(ALONE, run, config, batch_tokens)
    for rank in two(scores, run, config, batch_tokens):
        assert rank == alone


def test_micro_batches_are_the_same_on_any_number_of_ranks_that_divides_them() -> None:
    training = TrainingConfig(train_length=4, batch_size=24, accumulation=4)
    whole = Ranks().micro_batches(training)
    assert [part[1] for part in whole] == [slice(n, n + 6) for n in (0, 6, 12, 18)]
    for size in (2, 4):
        assert [rows for rank in range(size) for rows in Ranks(rank, size).micro_batches(training)] == whole
    uneven = [
        rows for rank in range(3) for rows in Ranks(rank, 3).micro_batches(TrainingConfig(train_length=4, batch_size=7))
    ]
    assert uneven == [(0, slice(0, 2)), (1, slice(2, 4)), (2, slice(4, 7))]


def test_a_batch_must_have_a_sequence_for_every_micro_batch() -> None:
    Ranks(size=4).require_enough(TrainingConfig(train_length=4, batch_size=4))
    with pytest.raises(
        ConfigError, match="8 devices per run divide a batch into 8 micro-batches, so batch_size must be at least 8"
    ):
        Ranks(size=8).require_enough(TrainingConfig(train_length=4, batch_size=4))
    with pytest.raises(ConfigError, match="3 devices per run with accumulation 4 divide a batch into 12 micro-batches"):
        Ranks(size=3).require_enough(TrainingConfig(train_length=4, batch_size=8, accumulation=4))


@pytest.mark.medium
@pytest.mark.parametrize("model", [SMALL, *WITH_MIXERS], ids=lambda model: model.mixer or "attention")
def test_recomputed_blocks_give_the_same_weights(tmp_path: Path, model: ModelConfig) -> None:
    run = run_of(NoPE, model=dataclasses.replace(model, dropout=0.2))
    kept = trained(ALONE, run, tmp_path / "kept") or pytest.fail("stopped")
    again = trained(ALONE, run, tmp_path / "again", None, Optimizations(recompute=True)) or pytest.fail("stopped")
    assert kept[0] == again[0]
    assert all(torch.equal(t, again[1][name]) for name, t in kept[1].items())


@pytest.mark.slow
@pytest.mark.parametrize("sharding", SHARDED)
def test_recomputed_blocks_of_ranks(two: Together, tmp_path: Path, sharding: str) -> None:
    run = run_of(FIRE)
    kept, _ = two(trained, run, tmp_path / "kept", sharding=sharding)
    again, _ = two(trained, run, tmp_path / "again", None, Optimizations(recompute=True), sharding=sharding)
    assert kept[0] == again[0]
    assert all(torch.equal(t, again[1][name]) for name, t in kept[1].items())


def test_recomputing_keeps_fewer_tensors_for_the_backward_pass() -> None:
    def kept(recompute: bool) -> int:
        model, task = build(run_of(NoPE, batch_size=32, train_length=20))
        model.recompute = recompute
        sizes: dict[int, int] = {}

        def pack(t: torch.Tensor) -> torch.Tensor:
            sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        batch = task.training_batch(torch.Generator(), 32, 20, 20)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            model.train()(batch.inputs)
        return sum(sizes.values())

    assert kept(True) < 0.5 * kept(False)


def test_mixed_precision_on_a_cpu(tmp_path: Path) -> None:
    """It is part of the run: another precision is another run. The weights stay in float32."""
    plain, mixed = run_of(FIRE), run_of(FIRE, precision="bfloat16")
    assert plain.key != mixed.key
    assert "precision" not in plain.to_data()["training"], "so that the keys of runs without it have not changed"
    assert Run.from_data(mixed.to_data()) == mixed
    losses, weights = trained(ALONE, plain, tmp_path / "plain") or pytest.fail("stopped")
    other_losses, other_weights = trained(ALONE, mixed, tmp_path / "mixed") or pytest.fail("stopped")
    assert other_losses != losses
    assert other_losses == pytest.approx(losses, rel=0.02)
    assert {t.dtype for t in other_weights.values()} == {t.dtype for t in weights.values()}


@pytest.mark.slow
def test_compiled_models_train_like_others(two: Together, one: Together, tmp_path: Path) -> None:
    """In processes of their own, because checks of shapes at run time do not work in a compiled graph."""
    run = run_of(FIRE, train_length=8)
    (kept,) = one(trained, run, tmp_path / "kept")
    (compiled,) = one(trained, run, tmp_path / "compiled", None, Optimizations(compile=True))
    together = [
        two(trained, run, tmp_path / sharding, None, Optimizations(compile=True), sharding=sharding)[0]
        for sharding in SHARDED
    ]
    for found in (compiled, *together):
        assert found[0] == pytest.approx(kept[0], rel=1e-4)
        assert found[1].keys() == kept[1].keys()
