"""`lengthwise probe` of runs that learn functions in context: what it asks, prints and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.measurements import PROBES
from lengthwise.store import open_store
from lengthwise.studies import Study, grid
from lengthwise.training import train
from tests.made_answers import score_answer

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NoPE and Learned, which ends at 30 tokens, as if their study had run; and one run that has not."""
    folder = tmp_path_factory.mktemp("in-context") / "results"
    training = TrainingConfig(train_length=6, steps=2, batch_size=2)
    model = ModelConfig.llama(d_model=16, num_layers=2, num_heads=2)
    encodings = ["nope", "learned:max_length=30", "rope"]
    runs = grid(encodings, ["linearregression:dims=2"], 1, training=training, model=model)
    study = Study(name="icl", runs=runs, evaluation=EvaluationConfig(lengths=(6, 12), examples=4))
    with open_store(folder) as store:
        store.add_study(**study.metadata(), runs=study.rows())
        for run in study.runs[:2]:
            train(run, folder / "runs" / run.key)
            row = store.claim("icl", "elsewhere:1:w")
            assert row is not None
            store.add_answers(row.key, [score_answer(q, 1.0, 4) for q in row.questions], worker="elsewhere:1:w")
            store.finish(row.key, "elsewhere:1:w", {})
    return folder


@pytest.fixture(scope="module")
def key(results: Path) -> str:
    with open_store(results, create=False) as store:
        return next(run.key for run in store.runs("icl") if run.label == "NoPE")


ROW = {"label", "task", "seed", "new", "key", "measurement", "question", "columns", "facts", "created"}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("recency",), {"length": 24, "points": 6, "repeats": 4, "examples": 64, "seed": 0}),
        (
            ("recency", "--lengths", 9, "--points", 3, "--repeats", 2, "--examples", 5, "--seed", 7),
            {"length": 9, "points": 3, "repeats": 2, "examples": 5, "seed": 7},
        ),
        (
            ("duplicates",),
            {"length": 48, "points": 6, "noise": [1, 2, 3, 4, 5], "examples": 100, "seed": 0},
        ),
        (
            ("duplicates", "--examples", 5, "--noise", "1-2,4"),
            {"length": 48, "points": 6, "noise": [1, 2, 4], "examples": 5, "seed": 0},
        ),
        (
            ("lost-in-the-middle", "--examples", 5),
            {"length": 48, "points": 6, "positions": 21, "examples": 5, "seed": 0},
        ),
        (
            ("lost-in-the-middle", "--examples", 5, "--positions", 3, "--lengths", 14),
            {"length": 14, "points": 6, "positions": 3, "examples": 5, "seed": 0},
        ),
        (
            ("induction", "--examples", 5),
            {"length": 80, "points": 12, "repeats": 4, "neighbours": 1, "examples": 5, "seed": 0},
        ),
        (
            ("induction", "--examples", 5, "--lengths", 8, "--neighbours", 2),
            {"length": 8, "points": 12, "repeats": 4, "neighbours": 2, "examples": 5, "seed": 0},
        ),
    ],
)
def test_what_is_asked(here: Call, results: Path, key: str, words: tuple[Any, ...], asked: dict[str, Any]) -> None:
    ran = here("probe", words[0], key, *words[1:], "--results", results, "--json")
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)
    assert (row["measurement"], row["question"]) == (words[0], asked)
    assert set(row) == ROW
    assert set(row["columns"]) <= {column.name for column in PROBES[words[0]].columns}
    again = here("probe", words[0], key, *words[1:], "--results", results)
    assert "The result was already stored." in again.out
    assert "NoPE, seed 0" in again.out


def test_of_a_study_what_can_be_asked_is(here: Call, results: Path) -> None:
    ran = here("probe", "recency", "--study", "icl", "--results", results, "--examples", 2, "--json")
    assert [row["label"] for row in json.loads(ran.out)] == ["NoPE"]
    assert "Learned(max_length=30), seed 0): length 24 examples needs 48 positions, but Learned has 30" in ran.err
    assert "(RoPE, seed 0) is not trained (its status is pending)" in ran.err
    short = ("--lengths", 9, "--points", 3, "--examples", 2)
    both = here("probe", "recency", "--study", "icl", "--results", results, *short, "--json")
    assert len(json.loads(both.out)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("recncy", "KEY"), 'did you mean "recency"'),
        (("recency", "KEY", "--positions", 3), "Unknown option: --positions"),
        (("recency", "KEY", "--against", "nope"), "Unknown option: --against"),
        (
            ("attended-distance", "KEY", "--points", 3),
            "Unknown option: --points",
        ),
        (("duplicates", "KEY", "--noise", "0-3"), "--noise contains '0-3'; write whole numbers"),
        (("duplicates", "KEY", "--noise", "9"), "noise must be from 1 to 5 of the 6 examples, got 9"),
        (("duplicates", "KEY", "--points", 3), "points must be at least 4 "),
        (("lost-in-the-middle", "KEY", "--lengths", 6), "length must be at least 7 "),
        (("lost-in-the-middle", "--study", "icl", "--lengths", 6), "no run of study 'icl' can be probed"),
        (("induction", "KEY", "--repeats", 1), "repeats must be a whole number of at least 2, got 1"),
    ],
)
def test_one_clear_line(here: Call, results: Path, key: str, words: tuple[Any, ...], said: str) -> None:
    ran = here("probe", *(key if word == "KEY" else word for word in words), "--results", results)
    assert ran.code == 2, ran.out
    assert ran.err.startswith("lengthwise: ")
    assert ran.err.count("\n") == 1
    assert said.lower() in ran.err.lower()


def test_a_run_of_another_kind(here: Call, finished: Path) -> None:
    with open_store(finished, create=False) as store:
        row = store.runs("tiny")[0]
    ran = here("probe", "recency", row.key, "--results", finished)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "needs a run that learns functions in context" in ran.err
