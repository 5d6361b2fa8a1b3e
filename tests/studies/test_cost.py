"""What a run costs, roughly: what is said token by token costs more than one forward."""

import pytest

from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.studies.cost import DECODING, cost
from lengthwise.tasks import Summation


def test_a_mamba_costs_as_much_for_each_token_at_every_length():
    asked = EvaluationConfig(lengths=(8, 80), examples=100)
    run = Run(
        encoding=choose(NoPE),
        task=choose(Summation),
        model=ModelConfig.mamba(d_model=16, num_layers=2),
        training=TrainingConfig(train_length=8, steps=100, batch_size=1),
    )
    task = run.task.build()
    found = cost(run, asked, task)
    assert found.train > 0
    assert found.ask[80] / found.ask[8] == pytest.approx(task.tokens(80) / task.tokens(8))


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
    assert found["none"].ask[8] == pytest.approx(found["none"].train / 3)
    assert found["full"].ask[8] == pytest.approx(DECODING * found["full"].train / 3)
