"""The files in studies/nope are studies: they can be loaded and run, and say of themselves what they are."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lengthwise.studies import load, probing
from lengthwise.tasks.finite import FiniteTask

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


@pytest.mark.medium
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_can_be_run(path: Path) -> None:
    study = load(path)
    study.check()
    text = path.read_text()
    for words in ("Question:", "Expectation", "Outcome:", "Cost:", f"Command: lengthwise run nope/{path.stem}"):
        assert words in text
    assert study.expectation
    assert study.cost
    assert f"lengthwise run nope/{path.stem}" in study.command
    labels = {run.label for run in study.runs}
    assert labels == {"NoPE", "T5", "ALiBi", "RoPE(rotary_fraction=0.25)", "Sinusoidal"}
    assert len({run.seed for run in study.runs}) == 3
    assert study.published is not None
    assert list(study.published["ranks"]) == ["NoPE", "T5", "ALiBi", "RoPE(rotary_fraction=0.25)", "Sinusoidal"]


def test_ranks_with_scratchpads_are_the_published_ones() -> None:
    for name, ranks in (
        ("scratchpads", [0.630, 0.604, 0.551, 0.270, 0.228]),
        ("primitive", [0.687, 0.549, 0.502, 0.330, 0.215]),
    ):
        published = load(FOLDER / f"{name}.py").published
        assert published is not None
        assert list(published["ranks"].values()) == ranks


@pytest.mark.medium
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_study_trains_on_the_published_number_of_examples(path: Path) -> None:
    """The published fixed set at the published scale, all examples of a given data set; fresh examples on a laptop."""
    study = load(path)
    assert study.published is not None
    for run in {run.task.label: run for run in study.runs}.values():
        training, task = run.training, run.task.build()
        if path.stem == "small":
            assert training.train_examples is None
            continue
        given = isinstance(task, FiniteTask)
        whole = len(task.training_examples(training.min_length, training.train_length)) if given else 100_000
        assert training.train_examples == whole


def test_the_probe_of_figure_7_asks_the_runs_of_figure_7() -> None:
    study = load(FOLDER / "scratchpads.py")
    word = re.search(r'--study "nope: scratchpads" --task (\S+) +\(figure 7\)', (FOLDER / "scratchpads.py").read_text())
    assert word
    rows = [SimpleNamespace(task=run.task.label, config=run.to_data()) for run in study.runs]
    found = probing.runs_with_task(rows, word[1], study.name)  # type: ignore[arg-type]
    assert {row.task for row in found} == {"Addition(scratchpad=full)"}
    assert len(found) == 15, "5 encodings, 3 seeds"


def test_every_figure_has_its_study() -> None:
    figures = {
        "primitive": "E.2",
        "mathematical": "E.3",
        "classic": "E.4",
        "attention": "E.5",
        "scratchpads": "E.6 to E.13",
    }
    for name, figure in figures.items():
        assert f"{figure} at the published scale" in (FOLDER / f"{name}.py").read_text()


@pytest.mark.parametrize("name", ["primitive", "mathematical", "classic", "attention", "scratchpads"])
def test_the_published_scale_is_the_published_one(name: str) -> None:
    longest = {"Copy": 20, "Reverse": 20, "SCAN": 25}  # the others: 8
    for run in load(FOLDER / f"{name}.py").runs:
        model, training = run.model, run.training
        assert (model.d_model, model.num_layers, model.num_heads, model.d_ff, model.dropout) == (768, 12, 12, 3072, 0.1)
        assert training.steps == (60_000 if run.task.name == "PCFG" else 40_000)
        assert (training.batch_size, training.learning_rate) == (64, 3e-5)
        assert (training.warmup, training.weight_decay) == (0.06, 0.05)
        assert training.train_length == longest.get(run.task.name, 8)


@pytest.mark.parametrize(
    ("name", "tests"), [("SCAN", {26: 512, 28: 448, 30: 576, 48: 128}), ("PCFG", {9: 3232, 20: 68, 35: 1})]
)
def test_scores_stand_beside_published_ones_of_the_same_number_of_questions(name: str, tests: dict[int, int]) -> None:
    """The published scores count every test question once; so do ours, which count every example alike."""
    study = load(FOLDER / "classic.py")
    run = next(run for run in study.runs if run.task.name == name)
    asked, task = study.evaluation_of(run), run.task.build()
    assert isinstance(task, FiniteTask)
    beyond = [n for n in task.lengths() if n > run.training.train_length]
    found = {n: len(task.examples(asked.seed, asked.examples, n)) for n in asked.lengths if n in beyond}
    assert list(found) == beyond
    assert tests.items() <= found.items()
    assert sum(found.values()) == {"SCAN": 3136, "PCFG": 11_333}[name]
    assert study.published is not None
    assert "3,136 of SCAN, 11,333 of PCFG" in study.published["about"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("primitive", "over 500 questions at each of 21 to 40"),
        ("mathematical", "of parity all there are up to 13 bits"),
        ("scratchpads", "of parity all there are up to 10 bits"),
        (
            "small",
            "of repeated symbols we have all that are held out, 18 to 28 at a length, of replaced ones 180 to 200",
        ),
    ],
)
def test_lengths_with_fewer_questions_are_told_where_numbers_are_compared(name: str, words: str) -> None:
    """Scores over all longer lengths count examples; the published ones have as many at every length."""
    study = load(FOLDER / f"{name}.py")
    found: dict[str, dict[int, int]] = {}
    for run in study.runs:
        if run.task.label in found or dict(run.task.settings).get("scratchpad", "none") != "none":
            continue  # the same questions
        asked, task = study.evaluation_of(run), run.task.build()
        numbers = {n: len(task.examples(asked.seed, asked.examples, n)) for n in asked.lengths}
        longer = {n: number for n, number in numbers.items() if n > run.training.train_length}
        found[run.task.label] = {n: number for n, number in longer.items() if min(longer.values()) < asked.examples}
    fewer = {label: numbers for label, numbers in found.items() if numbers}
    most = max(study.evaluation_of(run).examples for run in study.runs)
    if name == "small":
        repeated, replaced = fewer.values()
        assert (min(repeated.values()), max(repeated.values())) == (18, 28)
        assert (min(replaced.values()), max(replaced.values())) == (180, 200)
    elif name == "primitive":
        assert fewer == {}
    else:
        assert fewer.keys() == {"Parity"}
        assert max(n for n, number in fewer["Parity"].items() if number < most) == int(words.split()[-2])
    assert study.published is not None
    assert words in study.published["about"]
