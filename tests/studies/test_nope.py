"""The files in studies/nope are studies: they can be loaded and run, and say of themselves what they are."""

from pathlib import Path

import pytest

from lengthwise.studies import load

FOLDER = Path(__file__).parents[2] / "studies" / "nope"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "kazemnejad")


def test_all_are_here() -> None:
    assert {path.stem for path in FILES} >= {
        "primitive",
        "mathematical",
        "classic",
        "attention",
        "scratchpads",
        "small",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_can_be_run(path: Path) -> None:
    study = load(path)
    study.check()
    text = path.read_text()
    for words in ("Question:", "Expectation", "Cost:", f"Command: lengthwise run studies/nope/{path.name}"):
        assert words in text
    assert study.expectation
    assert study.cost
    assert f"lengthwise run studies/nope/{path.name}" in study.command
    labels = {run.label for run in study.runs}
    assert labels == {"NoPE", "T5", "ALiBi", "RoPE(rotary_fraction=0.25)", "Sinusoidal"}
    assert len({run.seed for run in study.runs}) == 3


def test_the_published_scale_is_the_published_one() -> None:
    for run in load(FOLDER / "primitive.py").runs:
        model, training = run.model, run.training
        assert (model.d_model, model.num_layers, model.num_heads, model.d_ff, model.dropout) == (768, 12, 12, 3072, 0.1)
        assert (training.steps, training.batch_size, training.learning_rate) == (40_000, 64, 3e-5)
        assert (training.warmup, training.weight_decay, training.train_length) == (0.06, 0.05, 20)
