"""The files in studies/icfl are studies: they can be loaded and run, and say of themselves what they are."""

from pathlib import Path

import pytest

from lengthwise.studies import load

FOLDER = Path(__file__).parents[2] / "studies" / "icfl"
FILES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "thesis")
EIGHT = {
    "NoPE",
    "RoPE",
    "PI(factor=8.0)",
    "DynamicNTK(factor=8.0)",
    "YaRN(factor=8.0)",
    "DynamicYaRN",
    "ALiBi",
    "FIRE",
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_can_be_run(path: Path) -> None:
    study = load(path)
    study.check()
    text = path.read_text()
    for words in ("Question:", "Expectation", "Cost:", f"Command: lengthwise run icfl/{path.stem}"):
        assert words in text
    assert study.expectation
    assert study.cost
    assert f"lengthwise run icfl/{path.stem}" in study.command
    if path.stem != "architectures":  # which compares mixers
        assert {run.label for run in study.runs} >= EIGHT
    assert len({run.seed for run in study.runs}) == 3
    assert all(study.evaluation_of(run).prompt == 8 * run.training.train_length for run in study.runs)


def test_the_published_scale_is_the_published_one() -> None:
    study = load(FOLDER / "paper.py")
    tasks = {run.task.name for run in study.runs}
    assert len(tasks) == 12
    for run in study.runs:
        model, training, asked = run.model, run.training, study.evaluation_of(run)
        assert (model.d_model, model.num_layers, model.num_heads, model.d_ff, model.dropout) == (256, 16, 8, 1024, 0.0)
        assert (training.steps, training.batch_size, training.learning_rate) == (50_000, 64, 3e-4)
        assert (training.warmup, training.weight_decay, training.train_length) == (0.03, 0.0, 50)
        assert dict(run.task.settings)["dims"] == 16
        assert (asked.examples, asked.prompt, max(asked.lengths)) == (1280, 400, 400)
        assert training.curriculum is not None
        assert [training.curriculum.length_at(step, 50) for step in (0, 2000, 40_000)] == [11, 13, 50]


def test_the_small_one_is_as_large_as_asked() -> None:
    study = load(FOLDER / "small.py")
    assert len({run.task.name for run in study.runs}) >= 4
    assert {run.label for run in study.runs} == EIGHT


def test_the_small_scale_has_the_runs_of_the_small_study() -> None:
    small = load(FOLDER / "scale.py", {"scale": "small"})
    small.check()
    assert {run.label for run in small.runs} == EIGHT | {"Mamba"}
    shared = {run.key for run in small.runs} & {run.key for run in load(FOLDER / "small.py").runs}
    assert len(shared) == 3 * len(EIGHT)
    with pytest.raises(ValueError, match="scale must be paper or small, got 'big'"):
        load(FOLDER / "scale.py", {"scale": "big"})


def test_parameters_that_are_used() -> None:
    """4.2, 16.8 and 67.1 million, where 12, 25 and 84 are published: those count 32,000 words that no prompt has."""
    from lengthwise.training import build

    runs = {run.model.to_data()["d_model"] * 100 + run.model.num_layers: run for run in load(FOLDER / "scale.py").runs}
    for shape, millions in ((25_604, 4.2), (25_616, 16.8), (51_216, 67.1)):
        model, _ = build(runs[shape])
        inside = sum(p.numel() for p in model.blocks.parameters()) / 1e6
        assert inside == pytest.approx(millions, abs=0.05)
