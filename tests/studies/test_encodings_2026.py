"""The studies of all encodings: they are complete, can be run, and say of themselves what they are."""

import dataclasses
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.encodings import ENCODINGS
from lengthwise.studies import load
from lengthwise.studies.study import Study

STUDIES = Path(__file__).parents[2] / "studies"
FILE = STUDIES / "encodings_2026" / "small.py"


class Store:
    """The larger learning rate is better for RoPE, the smaller one for the others."""

    def __init__(self, study: Study):
        self.runs = {run.key: run for run in study.runs}

    def scores(self, keys: list[str]) -> list[Any]:
        run = self.runs[keys[0]]
        mean = run.training.learning_rate * (1 if run.encoding.name == "RoPE" else -1)
        row = {"length": run.training.train_length, "mean": mean, "question": {}}
        return [SimpleNamespace(**row)]

    def answer(self, key: str, measurement: str, question: dict[str, Any]) -> None:
        return None

    def runs_of(self, keys: list[str]) -> dict[str, Any]:
        return {key: SimpleNamespace(better="higher") for key in keys}


@pytest.fixture(scope="module")
def stages() -> tuple[Study, Study]:
    """The study of the learning rates, and the comparison that follows."""
    rates = load(FILE)
    following = rates.following(Store(rates))  # type: ignore[arg-type]
    assert following is not None
    return rates, following


@pytest.mark.parametrize("path", [FILE, STUDIES / "coupling" / "small.py"], ids=str)
def test_a_study_can_be_run(path: Path) -> None:
    study = load(path)
    text, command = path.read_text(), f"lengthwise run {path.parent.name}/small"
    for words in ("Question:", "Expectation", "Outcome", "Cost:", f"Command: {command}"):
        assert words in text
    assert study.expectation
    assert study.cost
    assert study.command.startswith(command)


@pytest.mark.medium
def test_every_encoding_is_on_every_task_with_its_own_learning_rate(stages: tuple[Study, Study]) -> None:
    rates, following = stages
    seeds = {run.seed for run in rates.runs}
    assert seeds == {100}
    assert not seeds & {run.seed for run in following.runs}
    counts = Counter((run.encoding.name, run.task.label, run.seed) for run in following.runs)
    assert set(counts.values()) == {1}
    assert len(counts) == len([*ENCODINGS]) * 7 * 2
    assert {name for name, _, _ in counts} == {make.__name__ for make in ENCODINGS}
    for run in following.runs:
        first = run.lineage[-1]
        assert first.training.learning_rate == (4e-3 if first.encoding.name == "RoPE" else 1e-3)
        evaluation = following.evaluation_of(run)
        assert max(evaluation.lengths) == 8 * run.training.train_length


def test_every_encoding_is_valid_on_one_task(stages: tuple[Study, Study]) -> None:
    """Trained or evaluated at up to eight times the length, without training anything."""
    _, following = stages
    runs = tuple(run for run in following.runs if run.task.name == "Counting" and run.seed == 0)
    assert len(runs) == len([*ENCODINGS])
    dataclasses.replace(following, runs=runs, evaluation=following.evaluation_of(runs[0])).check()


@pytest.mark.slow
def test_every_run_is_valid(stages: tuple[Study, Study]) -> None:
    """Of each encoding on each task, without training."""
    for study in stages:
        study.check()
