"""The studies of the battery: every encoding takes part, each with its own learning rate, and every run is valid."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.analysis.claims import LEARNED
from lengthwise.config import Run, StopWhenLearned
from lengthwise.encodings import ENCODINGS
from lengthwise.studies import load
from lengthwise.studies.study import Study

STUDIES = Path(__file__).parents[2] / "studies"
FILES = ("core", "others")


class Store:
    """The larger learning rate is better for RoPE, the smaller one for the others."""

    def __init__(self, runs: Sequence[Run]):
        self.runs = {run.key: run for run in runs}

    def scores(self, keys: list[str]) -> list[Any]:
        run = self.runs[keys[0]]
        return [SimpleNamespace(length=run.training.train_length, mean=0.5, question={})]

    def answer(self, key: str, measurement: str, question: dict[str, Any]) -> Any:
        loss = self.rank(self.runs[key])
        return SimpleNamespace(rows={"loss": [loss]})

    def runs_of(self, keys: list[str]) -> dict[str, Any]:
        return {key: SimpleNamespace(better="higher", step=self.rank(self.runs[key])) for key in keys}

    @staticmethod
    def rank(run: Run) -> float:
        return run.training.learning_rate * (-1 if run.encoding.name == "RoPE" else 1)


def stages(name: str) -> tuple[Study, Study]:
    """Return the study of the learning rates, and the comparison that follows."""
    rates = load(STUDIES / "battery" / f"{name}.py")
    following = rates.following(Store(rates.runs))  # type: ignore[arg-type]
    assert following is not None
    return rates, following


@pytest.mark.parametrize("path", ["battery/core", "battery/others", "coupling/small"])
def test_a_study_says_what_it_asks_and_expects(path: str) -> None:
    text, study = (STUDIES / f"{path}.py").read_text(), load(STUDIES / f"{path}.py")
    for words in ("Question:", "Expectation", "Outcome", "Cost:", f"Command: lengthwise run {path}"):
        assert words in text
    assert study.expectation
    assert study.cost


@pytest.mark.parametrize("name", FILES)
def test_every_encoding_is_on_every_task_with_its_own_learning_rate(name: str) -> None:
    rates, following = stages(name)
    assert {run.seed for run in rates.runs} == {100}
    counts = Counter((run.encoding.name, run.task, run.seed) for run in following.runs)
    assert set(counts.values()) == {1}
    encodings, tasks = ({run[i] for run in counts} for i in (0, 1))
    extended = {"RoPE", *(run.encoding.name for run in following.runs if run.parent)}  # with seeds of the core's runs
    seeds = {encoding: range(5 if name == "core" or encoding in extended else 3) for encoding in encodings}
    assert set(counts) == {(e, task, seed) for e in encodings for task in tasks for seed in seeds[e]}
    for run in following.runs:
        first = run.lineage[-1]
        pair = sorted({r.training.learning_rate for r in rates.runs if r.task == first.task})
        assert first.training.learning_rate == pair[first.encoding.name == "RoPE"]


def test_every_encoding_takes_part() -> None:
    """In the core or in the others. M-RoPE is RoPE on text."""
    core, others = ({run.encoding.name for run in stages(name)[1].runs} for name in FILES)
    assert core & others == {"RoPE"}
    assert core | others == {make.__name__ for make in ENCODINGS} - {"MRoPE"}


@pytest.mark.parametrize("name", FILES)
def test_every_run_is_valid(name: str) -> None:
    """It can be trained, and evaluated at the longest length."""
    for study in stages(name):
        study.check()


def test_a_training_stops_above_the_score_from_which_a_task_counts_as_learned() -> None:
    """Functions in context, of which no score is perfect, are judged by the score that ends the training."""
    for run in stages("core")[0].runs:
        assert (run.training.stop is None) == (run.task.name == "Text")
        if isinstance(run.training.stop, StopWhenLearned):
            assert run.training.stop.score > LEARNED or run.task.name in ("LinearRegression", "Conjunction")
