"""What a run costs, roughly: what is said token by token costs more than one forward."""

import dataclasses

import pytest

from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.config.mixers import MIXERS
from lengthwise.encodings import NoPE
from lengthwise.studies import grid
from lengthwise.studies.cost import DECODING, cost
from lengthwise.tasks import Summation


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_mixer_costs_as_much_for_each_token_at_every_length(mixer):
    asked = EvaluationConfig(lengths=(8, 80), examples=100)
    run = Run(
        encoding=choose(NoPE),
        task=choose(Summation),
        model=ModelConfig(mixer=mixer, d_model=16, num_layers=2),
        training=TrainingConfig(train_length=8, steps=100, batch_size=1),
    )
    task = run.task.build()
    found = cost(run, asked, task)
    assert found.train > 0
    assert found.evaluate[80] / found.evaluate[8] == pytest.approx(task.tokens(80) / task.tokens(8))


def test_decoding_costs_more_than_a_forward():
    asked = EvaluationConfig(lengths=(8,), examples=100)
    found = {}
    for scratchpad in ("none", "full"):
        run = Run(
            encoding=choose(NoPE),
            task=choose(Summation, scratchpad=scratchpad),
            model=ModelConfig(d_model=16, num_layers=1, num_heads=1),
            training=TrainingConfig(train_length=8, steps=100, batch_size=1),
        )
        found[scratchpad] = cost(run, asked, run.task.build())
    assert found["none"].evaluate[8] == pytest.approx(found["none"].train / 3)
    assert found["full"].evaluate[8] == pytest.approx(DECODING * found["full"].train / 3)


def test_all_lengths_of_prefixes_are_one_forward() -> None:
    (run,) = grid(["nope"], ["linearregression:dims=4"], training=TrainingConfig(train_length=4, steps=5))
    one, many = (EvaluationConfig(lengths=lengths, prompt=32) for lengths in ((32,), (1, 2, 4, 8, 16, 32)))
    costs = [cost(run, asked, run.task.build()) for asked in (one, many)]
    assert costs[0] == costs[1]
    assert list(costs[1].evaluate) == [32]
    twice = cost(run, dataclasses.replace(many, shifts=({"noise": 1.0},)), run.task.build())
    assert twice.evaluate[32] == 2 * costs[0].evaluate[32]
