"""The answers of a measurement about the runs of a study, such as their scores, in long format."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.kinds import length_kind
from lengthwise.analysis.protocol import canonical
from lengthwise.measurements import MEASUREMENTS, Measurement, Table
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.measurements.base import SHOW
from lengthwise.measurements.scores import OfEvaluation
from lengthwise.store.rows import Texts
from lengthwise.values import SCORES, ConfigError

if TYPE_CHECKING:
    from lengthwise.store import AnswerRow, RunRow, Store

Columns = dict[str, list[Any]]

# The names of columns.
OF_RUN = (
    *("study", "key", "label", "encoding", "settings", "task", "task_settings", "unit", "metric", "better", "seed"),
    *("train_length", "training_seconds", "peak_memory_mb", "backend"),
)
OF_LENGTH = ("length", "length_kind")


def answer_columns(store: "Store", study: str, name: str) -> Columns:
    """Return the rows of a measurement's answers about the study's runs, in the order of the runs and then by length.

    `settings`, `task_settings`, `question`: the settings of the encoding and of the task, and those of the question
    besides its length, as JSON. `length_kind`: whether the length is "shorter" than training, "trained" or "longer".
    Scores, and what is stored with them, are those that the study asks for. Raises `ConfigError` if there is no answer,
    and `StoreError` for an unknown study.
    """
    with store.snapshot() as now:
        runs = now.runs(study)
        stored = now.answers([run.key for run in runs], name)
    is_of_evaluation = isinstance(MEASUREMENTS[name], OfEvaluation)
    text, rest_text = Texts(canonical), Texts(_settings_text)
    answers: dict[str, list[tuple[AnswerRow, Table]]] = {run.key: [] for run in runs}
    requested = {run.key: set(map(text, run.questions)) for run in runs} if is_of_evaluation else {}
    for answer in stored:
        if not is_of_evaluation or text(answer.question) in requested[answer.key]:
            answers[answer.key].append((answer, Table.from_data(answer.rows)))
    stored_answers = [pair for of_run in answers.values() for pair in of_run]
    if not stored_answers:
        raise no_results("score" if name == SCORES else f"answer of {name}", study, store, MEASUREMENTS[name].command)
    own = _own_columns(MEASUREMENTS[name], [table for _, table in stored_answers])
    has_length = "length" in stored_answers[0][0].question
    columns: Columns = {
        column: [] for column in [*OF_RUN, *(OF_LENGTH if has_length else ()), *own, "seconds", "question"]
    }
    for run in runs:
        _add_run(columns, study, run, sum(len(table) for _, table in answers[run.key]))
        for answer, table in answers[run.key]:
            question = answer.question
            cells = {"question": rest_text(question), "seconds": answer.facts.get("seconds", math.nan)}
            if has_length:
                cells |= {"length": question["length"], "length_kind": length_kind(run, question)}
            for column, cell in cells.items():
                columns[column] += [cell] * len(table)
            for column in own:
                columns[column] += map(_cell, table.column(column))
    return columns


def file_columns(answer: FileAnswer) -> Columns:
    """Return one row for each row of an answer in a file: its subject and its question as JSON, and its own columns."""
    table = answer.table
    about = {name: [_json(getattr(answer, name))] * len(table) for name in ("subject", "question")}
    return about | {name: list(map(_cell, table.column(name))) for name in _own_columns(answer.measurement, [table])}


def _own_columns(measurement: Measurement, tables: Sequence[Table]) -> list[str]:
    names = [column.name for column in measurement.columns]
    return [name for name in names if any(name in table.columns for table in tables)]


def _cell(cell: Any) -> Any:
    return _json(cell) if isinstance(cell, (list, dict)) else cell


def no_results(what: str, study: str, store: "Store", command: str = SHOW) -> ConfigError:
    """Return the error for a study that has nothing to export. `command`: that of the measurement."""
    first = "run the study first" if command == SHOW else f"run `{command}` first"
    return ConfigError(
        f"study {study!r} has no {what} yet, so there is nothing to export; {first}, and "
        f"`lengthwise list runs --study {study}{store.option}` shows its runs"
    )


def _settings_text(question: dict[str, Any]) -> str:
    """Return the settings of a question besides its length, as JSON."""
    return _json({name: value for name, value in question.items() if name != "length"})


def _add_run(columns: Columns, study: str, run: "RunRow", count: int) -> None:
    """Add the cells of a run to the next `count` rows."""
    cells: dict[str, Any] = {"study": study, "settings": _settings(run.config.get("encoding"))}
    cells["task_settings"] = _settings(run.config.get("task"))
    cells["training_seconds"] = run.facts.get("seconds", math.nan)
    cells["peak_memory_mb"] = run.facts.get("peak_memory", math.nan) / 1e6
    cells["backend"] = run.facts.get("backend", "")
    for name in OF_RUN:
        columns[name] += [cells[name] if name in cells else getattr(run, name)] * count


def _settings(choice: Any) -> str:
    """Return the settings of an encoding or a task as JSON, without its name, its version and its code."""
    settings = choice if isinstance(choice, dict) else {}
    return _json({name: value for name, value in settings.items() if name not in ("is", "class")})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
