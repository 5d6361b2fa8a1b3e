"""`lengthwise statistics`: the tables, the JSON, and errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

SEEDS = """
from lengthwise.config import EvaluationConfig, ModelConfig, TrainingConfig
from lengthwise.studies import Study, grid

study = Study(
    name="seeds",
    runs=grid(["nope", "alibi"], ["copy", "reverse"], 2, model=ModelConfig(d_model=16, num_layers=1, num_heads=2),
              training=TrainingConfig(train_length=4, steps=1, batch_size=4)),
    evaluation=EvaluationConfig(lengths=(4, 8), examples=16),
)
"""


def test_one_seed_has_no_intervals(here: Call, finished: Path) -> None:
    ran = here("statistics", "--study", "tiny", "--results", finished)
    assert ran.code == 0
    assert "effective length (symbols)" in ran.out
    assert "have one seed each: there is no interval between seeds, no comparison and no effect size." in ran.out
    found = json.loads(here("statistics", "--results", finished, "--json").out)
    (task,) = found["tasks"]
    assert task["lengths"] == [4, 8]
    assert {row["seeds"] for row in task["encodings"]} == {1}
    (pair,) = task["comparisons"]
    assert (pair["p"], pair["needed"], pair["superiority"]) == (None, None, None)


def test_several_seeds_and_tasks(here: Call, tmp_path: Path) -> None:
    (tmp_path / "seeds.py").write_text(SEEDS)
    results = tmp_path / "results"
    assert here("run", tmp_path / "seeds.py", "--results", results, "--on", "inline").code == 0
    ran = here("statistics", "--results", results, "--threshold", "0", "--difference", "0.01", "--length", "8")
    assert ran.code == 0
    assert "a score of at least 0" in ran.out
    assert "Pairs at 8 symbols" in ran.out
    assert "≥ 8" in ran.out
    assert "All 2 tasks with exact match" in ran.out
    assert "Mean reciprocal rank over 2 tasks, 2 seeds" in ran.out
    assert ran.out.endswith("ranks compare failures: Copy (all encodings) and Reverse (all encodings).\n")
    found = json.loads(here("statistics", "--results", results, "--json").out)
    assert list(found["over_tasks"][0]["interquartile"]) == ["NoPE", "ALiBi"]
    page = (results / "report.html").read_text(encoding="utf-8")
    assert "Statistics over all tasks" in page
    assert page.count('<h3 class="part">Statistics</h3>') == 2


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("length", "5", "--length must be an evaluated length, got 5; evaluated: 4, 8"),
        ("difference", "0", "--difference must be a finite number above 0, got 0"),
        ("threshold", "nan", "--threshold must be a finite number, got nan"),
        ("threshold", "2", "--threshold must be from 0 to 1 for exact match, got 2"),
        ("study", "tinny", "tinny"),
    ],
)
def test_wrong_options(here: Call, finished: Path, option: str, value: str, message: str) -> None:
    ran = here("statistics", "--results", finished, f"--{option}={value}")
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
