"""A length for which memory runs out is named."""

import resource

import pytest
import torch

from lengthwise import machine_memory
from lengthwise.config import EvaluationConfig, ModelConfig, Run, TrainingConfig, choose
from lengthwise.encodings import FIRE
from lengthwise.evaluation import evaluate
from lengthwise.machine_memory import NotEnoughMemory, limited_to_machine
from lengthwise.models import Decoder, Model
from lengthwise.tasks import Copy
from lengthwise.training.setup import build

GIB = 2**30


def decoder(backend: str) -> Model:
    run = Run(
        encoding=choose(FIRE),
        task=choose(Copy),
        model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
        training=TrainingConfig(train_length=4, steps=1),
    )
    return build(run, backend=backend)[0]


def score(model: Model, *lengths: int) -> None:
    evaluate(model, Copy(), EvaluationConfig(lengths=lengths, examples=1))


@pytest.mark.parametrize(
    ("error", "size"),
    [
        (MemoryError(), ""),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
            " (one allocation of 2.00 GiB failed)",
        ),
    ],
)
def test_the_line(error: Exception, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, forward = decoder("auto"), Decoder.forward

    def fail_at_8(self: Decoder, inputs: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        if inputs.shape[1] > Copy().tokens(7):
            raise error
        return forward(self, inputs, *arguments, **options)

    monkeypatch.setattr(Decoder, "forward", fail_at_8)
    score(model, 4)
    with pytest.raises(NotEnoughMemory) as caught:
        score(model, 4, 8)
    advice = "use shorter lengths, fewer examples, smaller batches or a smaller model"
    assert str(caught.value) == f"length 8 symbols: not enough memory{size}; {advice}"


def test_other_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "forward", lambda *_, **__: [][0])
    with pytest.raises(IndexError):
        score(decoder("auto"), 4)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_tables_of_all_queries_and_keys(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take 29 GB. The process is not allowed to have more than the machine."""
    model, peak = decoder(backend), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr(machine_memory, "machine_memory", lambda: 8 * GIB)
    with limited_to_machine("cpu"), pytest.raises(NotEnoughMemory, match=r"^length 30,000 symbols: not enough memory"):
        score(model, 30_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 2**20  # KiB
