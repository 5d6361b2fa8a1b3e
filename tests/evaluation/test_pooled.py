"""Scores of all examples together: the forward passes do not change them, and logits without values are refused."""

import pytest
import torch

from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import NoPE
from lengthwise.evaluation import Division, EvaluationError, evaluate
from lengthwise.evaluation.score_checks import required_scores
from lengthwise.tasks import Tagging
from lengthwise.training import build


@pytest.fixture(scope="module")
def untrained() -> tuple[torch.nn.Module, Tagging]:
    run = Run(
        encoding=choose(NoPE),
        task=choose(Tagging, sentences=50),
        model=ModelConfig(d_model=8, num_layers=1, num_heads=1),
        training=TrainingConfig(train_length=1),
    )
    model, task = build(run)
    assert isinstance(task, Tagging)
    return model, task


def test_a_score_does_not_depend_on_the_forward_passes(untrained: tuple[torch.nn.Module, Tagging]) -> None:
    """A mean of the F1 of each forward pass, or of each example, would."""
    model, task = untrained
    config = EvaluationConfig(lengths=(1, 4, 50))
    small, large = (evaluate(model, task, config, division=Division(batch_tokens=size)) for size in (50, 10**6))
    for one, other in zip(small, large, strict=True):
        assert one.mean == pytest.approx(other.mean, abs=1e-12)
        assert one.details["means"] == pytest.approx(other.details["means"], abs=1e-12)
        assert one.details["order"] == ["F1, default mode", "token accuracy"]
        assert (one.standard_error is None) == (one.length == 50)
    batch = task.examples(0, 50, 1)
    logits = model(batch.inputs)
    predicted = logits.argmax(-1)
    by_hand = [
        sum(int(n) for n in column) for column in task.label_counts(predicted, batch).T
    ]  # correct, predicted, true, ...
    assert large[0].mean == pytest.approx(2 * by_hand[0] / (by_hand[1] + by_hand[2]))


def test_logits_that_are_no_numbers(untrained: tuple[torch.nn.Module, Tagging]) -> None:
    _, task = untrained

    class Broken(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*inputs.shape, task.output_size)
            logits[0, 0] = torch.nan
            return logits

    with pytest.raises(EvaluationError, match=r"at length 1 the entity F1 of 1 of 50 examples is not a finite number"):
        evaluate(Broken(), task, EvaluationConfig(lengths=(1,)))


def test_counts_of_another_shape(untrained: tuple[torch.nn.Module, Tagging]) -> None:
    _, task = untrained
    with pytest.raises(
        EvaluationError, match=r"Tagging.counts must return one float64 score per example and count, \[batch, counts\]"
    ):
        required_scores(torch.zeros(3), "counts", task, torch.Size([3, 9]))
