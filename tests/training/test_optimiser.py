import pytest
import torch

from lengthwise.config import ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE, T5, Learned
from lengthwise.tasks import Copy
from lengthwise.training import build
from lengthwise.training.optimizer import decayed, learning_rate, make_optimizer


def model_with(encoding, **model):
    run = Run(
        encoding=choose(encoding),
        task=choose(Copy),
        model=ModelConfig(d_model=16, num_layers=2, num_heads=2, **model),
        training=TrainingConfig(train_length=4),
    )
    return build(run)[0], run


@pytest.mark.parametrize("encoding", [FIRE, T5, Learned])
@pytest.mark.parametrize("tied", [False, True])
def test_only_matrices_of_linear_maps_decay(encoding, tied):
    model, run = model_with(encoding, tie_embeddings=tied)
    with_decay, without = decayed(model)
    names = [n for n, _ in model.named_parameters()]
    assert sorted(with_decay + without) == sorted(names)
    layers = {f"blocks.{n}.{part}.weight" for n in (0, 1) for part in ("qkv", "out", "up", "down")}
    assert set(with_decay) == layers | (set() if tied else {"lm_head.weight"})
    optimizer = make_optimizer(model, run.training)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [run.training.weight_decay, 0.0]
    assert optimizer.defaults["betas"] == (run.training.beta1, run.training.beta2)


def test_a_model_with_nothing_to_decay_can_be_optimised():
    norm = torch.nn.LayerNorm(4)
    assert len(make_optimizer(norm, TrainingConfig(train_length=4)).param_groups) == 1


@pytest.mark.parametrize(
    ("schedule", "middle", "last"), [("cosine", 0.55, 0.1), ("linear", 0.55, 0.1), ("constant", 1.0, 1.0)]
)
def test_schedules(schedule, middle, last):
    config = TrainingConfig(train_length=4, steps=111, warmup=10 / 111, learning_rate=2.0, schedule=schedule)
    rates = [learning_rate(config, step) for step in range(111)]
    assert rates[0] == pytest.approx(2.0 / 11)  # never 0: the first step counts
    assert rates[:11] == pytest.approx([2.0 * n / 11 for n in range(1, 12)])
    assert rates[10] == 2.0 == max(rates)
    assert rates[60] == pytest.approx(2.0 * middle)
    assert rates[-1] == pytest.approx(2.0 * last)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_the_cosine_is_a_cosine():
    config = TrainingConfig(train_length=4, steps=101, warmup=0.0, learning_rate=1.0, final_learning_rate=0.0)
    assert learning_rate(config, 25) == pytest.approx((1 + 2**-0.5) / 2)


@pytest.mark.parametrize("warmup", [0.0, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_and_odd_schedules_are_finite_and_positive(steps, warmup):
    config = TrainingConfig(train_length=4, steps=steps, warmup=warmup)
    assert all(0 < learning_rate(config, step) <= config.learning_rate for step in range(steps))
