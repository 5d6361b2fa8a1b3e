"""Rows as the store gives them, from a short notation."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import pytest

from lengthwise.analysis import Findings, from_rows
from lengthwise.store.rows import AnswerRow, RunRow
from tests.made_answers import score_answer, stored

Make = Callable[..., RunRow]


def run_row(label: str = "FIRE", seed: int = 0, lengths: Sequence[int] = (10, 20, 80), **changes: Any) -> RunRow:
    metric = changes.pop("metric", "cross-entropy")
    config = {
        "encoding": {"is": label},
        "task": {"is": "Text"},
        "model": {"d_model": 64, "share_encoding": label == "T5"},
        "training": {"train_length": 10, "min_length": changes.pop("shortest", 10), "steps": 5},
        "seed": seed,
    }
    row: dict[str, Any] = {
        "key": sha256(f"{label}-{seed}".encode()).hexdigest()[:16],
        "label": label,
        "encoding": label,
        "task": "Text",
        "metric": metric,
        "better": "lower" if metric == "cross-entropy" else "higher",
        "unit": "bytes",
        "seed": seed,
        "train_length": 10,
        "config": config,
        "questions": [{"length": n, "examples": 64, "seed": 0} for n in lengths],
        "status": "done",
        "worker": None,
        "heartbeat": None,
        "step": 5,
        "steps": 5,
        "claims": 1,
        "failures": 0,
        "deaths": 0,
        "error": None,
        "facts": {},
        "created": 0.0,
        "started": 0.0,
        "finished": 1.0,
    }
    return RunRow(**{**row, **changes})


def score_row(
    run: RunRow, mean: float, standard_error: float = 0.01, question: Any = None, n: int = 64, **cells: Any
) -> AnswerRow:
    return stored(run.key, score_answer(question or run.questions[0], mean, n, standard_error, **cells))


def study(table: Mapping[str, Sequence[Sequence[float | None]]], **changes: Any) -> Findings:
    """`{"FIRE": [[seed 0's scores by length], [seed 1's], ...]}`; None: no score yet."""
    runs, scores = [], []
    for label, seeds in table.items():
        for seed, means in enumerate(seeds):
            run = run_row(label, seed, status="done" if None not in means else "running", **changes)
            runs.append(run)
            pairs = zip(run.questions, means, strict=True)
            scores += [score_row(run, mean, question=asked) for asked, mean in pairs if mean is not None]
    return from_rows([], runs, scores)


@pytest.fixture
def make_run() -> Make:
    return run_row


@pytest.fixture
def make_score() -> Callable[..., AnswerRow]:
    return score_row


@pytest.fixture
def make_study() -> Callable[..., Findings]:
    return study
