"""Made-up answers of the measurements that every run has, as a worker stores them."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lengthwise.measurements import Table
from lengthwise.store import AnswerRow
from lengthwise.values import SCORES, TRAINING


def score_answer(
    question: dict[str, Any], mean: float, n: int = 256, standard_error: float | None = 0.01, **more: Any
) -> dict[str, Any]:
    """A score. `more`: further columns, such as `groups` and `baselines`, and `facts`."""
    facts = more.pop("facts", {})
    error = math.nan if standard_error is None else standard_error
    row = {"mean": mean, "standard_error": error, "n": n, **more}
    return {"measurement": SCORES, "question": question, "rows": Table.from_rows([row]).to_data(), "facts": facts}


def changed(score: AnswerRow, **cells: Any) -> AnswerRow:
    """The answer of a score with other cells in its row."""
    return replace(score, rows={**score.rows, **{name: [cell] for name, cell in cells.items()}})


def training_answer(points: Iterable[Mapping[str, Any]], **facts: Any) -> dict[str, Any]:
    """A training curve. `facts`: such as the cost of the training."""
    return {"measurement": TRAINING, "question": {}, "rows": Table.from_rows(points).to_data(), "facts": facts}


def losses(store: Any, key: str) -> list[tuple[int, float]]:
    """The stored training curve of a run: steps and losses."""
    answer = store.answer(key, TRAINING, {})
    table = Table.from_data(answer.rows) if answer is not None else Table({})
    return list(zip(table.column("step"), table.column("loss"), strict=True))


def stored(key: str, answer: Mapping[str, Any], created: float = 1.7e9) -> AnswerRow:
    """An answer about a run, as the store returns it."""
    return AnswerRow(key=key, created=created, **answer)
