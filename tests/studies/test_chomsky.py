"""The studies of the Chomsky hierarchy: their tasks, levels and lengths, and a tiny run."""

from collections import Counter
from pathlib import Path

import pytest

from lengthwise.config import ConfigError
from lengthwise.evaluation import check_lengths
from lengthwise.studies import load
from lengthwise.tasks import TASKS
from lengthwise.tasks.chomsky.base import ChomskyTask
from lengthwise.training.setup import check_training

STUDIES = Path(__file__).parents[2] / "studies" / "chomsky"
MODELS = 5 + 2 + 1  # encodings, those with randomized positions, and Mamba


@pytest.mark.parametrize("name", ["small", "paper"])
def test_a_study_says_what_it_asks_and_expects(name: str) -> None:
    study = load(STUDIES / f"{name}.py")
    text = (STUDIES / f"{name}.py").read_text()
    for words in ("Question:", "Expectation", "Outcome:", "Cost:", f"Command: {study.command}"):
        assert words in text
    assert study.expectation
    assert study.cost


def test_the_small_study_has_two_tasks_of_each_level() -> None:
    study = load(STUDIES / "small.py")
    tasks = {run.task.cls for run in study.runs}
    assert Counter(task.level for task in tasks) == {"regular": 2, "context-free": 2, "context-sensitive": 2}
    assert len(study.runs) == 6 * MODELS * 3
    assert [run.seed for run in study.runs] == sorted(run.seed for run in study.runs)


def test_the_large_study_has_all_tasks() -> None:
    study = load(STUDIES / "paper.py")
    assert {run.task.cls for run in study.runs} == {task for task in TASKS if issubclass(task, ChomskyTask)}
    assert len(study.runs) == 15 * MODELS * 3


@pytest.mark.parametrize("name", ["small", "paper"])
def test_every_task_is_trained_and_evaluated_at_lengths_that_it_has(name: str) -> None:
    study = load(STUDIES / f"{name}.py")
    limit = 500 if name == "paper" else 100
    for run in study.runs:
        if run.seed == 0:
            task = run.task.build()
            check_training(run, task, None)
            lengths = study.evaluation_of(run).lengths
            check_lengths(run, lengths)
            assert limit - task.length_step < max(lengths) <= limit
            assert 40 - task.length_step < run.training.train_length <= 40
            assert run.training.min_length == task.shortest
    with pytest.raises(ConfigError):
        check_lengths(next(run for run in study.runs if run.task.name == "MissingDuplicate"), [41])
