"""A results folder with a study whose scores are made up; nothing is trained."""

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lengthwise.store import Store, open_results
from tests.made_answers import score_answer, training_answer

LABELS = ("NoPE", "FIRE(hidden_layers=1)")
LENGTHS = (8, 16, 32)


def run_data(label: str, seed: int, lengths: tuple[int, ...] = LENGTHS, **change: Any) -> dict[str, Any]:
    """A run as a study hands it over."""
    return {
        "key": hashlib.sha256(f"{label} {seed}".encode()).hexdigest()[:16],
        "label": label,
        "encoding": label.partition("(")[0],
        "task": "Copy",
        "metric": "exact match",
        "better": "higher",
        "unit": "symbols",
        "seed": seed,
        "train_length": 8,
        "config": {
            "encoding": {
                "is": label.partition("(")[0],
                "class": {"version": 1},
                **({"hidden_layers": 1} if "(" in label else {}),
            },
            "task": {"is": "Copy", "class": {"version": 1}, "symbols": 4},
            "training": {"train_length": 8, "min_length": 8, "steps": 20},
            "seed": seed,
        },
        "questions": [{"length": n, "examples": 256, "seed": 0} for n in lengths],
        **change,
    }


def score_data(asked: dict[str, Any], mean: float, **change: Any) -> dict[str, Any]:
    error = (mean * (1 - mean) / 256) ** 0.5 if 0 <= mean <= 1 else None
    baselines = [{"name": "constant", "score": 0.25, "floor": True}]
    return score_answer(asked, mean, standard_error=error, baselines=baselines, **change)


def fill(
    store: Store, name: str = "made", seeds: int = 3, labels: tuple[str, ...] = LABELS, done: bool = True, **change: Any
) -> list[dict[str, Any]]:
    """Add a study. If it is `done`, every run has scores, a training curve, and a probe."""
    runs = [run_data(label, seed, **change) for label in labels for seed in range(seeds)]
    store.add_study(name, question="Which one?", command="lengthwise run made.py", evaluation={}, runs=runs)
    while done and (row := store.claim(name, "host:1:worker")) is not None:
        run = next(run for run in runs if run["key"] == row.key)
        skill = 0.9 if run["encoding"] == "FIRE" else 0.4
        means = {n: 1.0 if n == 8 else skill ** (n / 16) - 0.01 * run["seed"] for n in LENGTHS}
        answers = [score_data(a, means[a["length"]]) for a in run["questions"]]
        points = [
            {"step": n, "loss": 1 / (n + 1), "learning_rate": 1e-3, "gradient_norm": math.nan, "tokens_per_second": 9e3}
            for n in (0, 10, 20)
        ]
        store.add_answers(row.key, [*answers, training_answer(points)], worker=row.worker)
        store.add_answer(row.key, "own", {"length": 8}, {"value": [0.5 + run["seed"]]}, {"device": "cpu"})
        store.heartbeat(row.key, str(row.worker), 20, 20)
        cost = {"seconds": 1.5, "peak_memory": 300_000_000, "backend": "fused"}
        store.finish(row.key, str(row.worker), cost | {"versions": {"torch": "2.13"}})
    return runs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(results: Path) -> Iterator[Store]:
    with open_results(results) as opened:
        yield opened


@pytest.fixture
def made() -> Callable[..., list[dict[str, Any]]]:
    return fill
