"""The scores, training curves and answers of a study in long format, with one row for each of their rows."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lengthwise.analysis.kinds import kind_of, trained_lengths
from lengthwise.analysis.training_curves import fact, peak_megabytes, training_seconds
from lengthwise.measurements import MEASUREMENTS, Measurement, Table
from lengthwise.measurements.answer_file import FileAnswer
from lengthwise.store import CurveRow
from lengthwise.values import ConfigError

if TYPE_CHECKING:
    from lengthwise.store import RunRow, ScoreRow, Store

Columns = dict[str, list[Any]]

# The names of columns.
OF_RUN = (
    *("study", "key", "label", "encoding", "settings", "task", "task_settings", "seed", "train_length"),
    *("training_seconds", "peak_memory_mb", "backend"),
)
OF_SCORE = (
    *("length", "unit", "kind", "out_of_distribution", "metric", "better", "mean", "standard_error", "n", "seconds"),
    "question",
)
OF_POINT = tuple(field.name for field in dataclasses.fields(CurveRow))


def score_columns(store: "Store", study: str) -> Columns:
    """Return one row for each question of the study that has a score, in the order of its runs and then by length.

    `settings`, `task_settings`, `question`: the settings of the encoding and of the task, and those of the question
    besides its length, as JSON. `kind`: whether the length is "shorter" than training, "trained" or "longer". Raises
    `ConfigError` if there is no score, and `StoreError` for an unknown study.
    """
    with store.snapshot() as now:
        runs = now.runs(study)
        stored = now.scores([run.key for run in runs])
    columns = _empty([*OF_RUN, *OF_SCORE])
    scores: dict[str, list[ScoreRow]] = {run.key: [] for run in runs}
    for score in stored:
        scores[score.key].append(score)
    asked, texts = list[dict[str, Any]](), dict[int, list[tuple[dict[str, Any], str]]]()
    for run in runs:
        if run.asked != asked:  # all runs of a study usually have the same questions
            asked, texts = run.asked, _questions(run.asked)
        rows = [(s, text) for s in scores[run.key] for question, text in texts.get(s.length, ()) if question == s.asked]
        _add_run(columns, study, run, len(rows))
        columns["unit"] += [run.unit] * len(rows)
        columns["question"] += [text for _, text in rows]
        trained = {text: trained_lengths(run.config, run.train_length, score.asked) for score, text in rows}
        columns["kind"] += [kind_of(score.length, trained[text]) for score, text in rows]
        for name in ("length", "out_of_distribution", "metric", "better", "mean", "standard_error", "n", "seconds"):
            columns[name] += [getattr(score, name) for score, _ in rows]
    if not columns["key"]:
        raise no_results("score", study, store)
    return columns


def curve_columns(store: "Store", study: str) -> Columns:
    """Return one row for each point of the training curves of the study's runs, in the order of its runs and then by
    step.

    Raises `ConfigError` if there is no point, and `StoreError` for an unknown study.
    """
    with store.snapshot() as now:
        runs = now.runs(study)
        curves = now.curves([run.key for run in runs])
    columns = _empty([*OF_RUN, *OF_POINT])
    for run in runs:
        _add_run(columns, study, run, len(curves[run.key]))
        for name in OF_POINT:
            columns[name] += [getattr(point, name) for point in curves[run.key]]
    if not columns["key"]:
        raise no_results("training curve", study, store)
    return columns


def answer_columns(store: "Store", study: str, name: str) -> Columns:
    """Return one row for each row of the answers of a measurement about the study's runs.

    The columns are those of the run, the settings of the question as JSON, and those of the measurement.
    Raises `ConfigError` if there is no answer, and `StoreError` for an unknown study.
    """
    with store.snapshot() as now:
        runs = now.runs(study)
        stored = now.answers([run.key for run in runs])
    by_key = {run.key: run for run in runs}
    answers = [
        (by_key[a.key], a.question, Table.from_data(a.rows)) for a in stored if a.question["measurement"] == name
    ]
    if not answers:
        raise no_results(f"answer of {name}", study, store)
    own = _own_columns(MEASUREMENTS[name], [table for *_, table in answers])
    columns = _empty([*OF_RUN, "question", *own])
    for run, question, table in answers:
        _add_run(columns, study, run, len(table))
        columns["question"] += [_json({k: v for k, v in question.items() if k != "measurement"})] * len(table)
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


def no_results(what: str, study: str, store: "Store") -> ConfigError:
    """Return the error for a study that has nothing to export."""
    return ConfigError(
        f"study {study!r} has no {what} yet, so there is nothing to export; run the study first, and "
        f"`lengthwise list runs --study {study}{store.option}` shows its runs"
    )


def _questions(asked: Iterable[dict[str, Any]]) -> dict[int, list[tuple[dict[str, Any], str]]]:
    """Return the questions by length, each with its other settings as JSON."""
    found: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for question in asked:
        rest = _json({name: value for name, value in question.items() if name != "length"})
        found.setdefault(question["length"], []).append((question, rest))
    return found


def _empty(names: Iterable[str]) -> Columns:
    return {name: [] for name in names}


def _add_run(columns: Columns, study: str, run: "RunRow", count: int) -> None:
    """Add the cells of a run to the next `count` rows."""
    cells: dict[str, Any] = {"study": study, "settings": _settings(run.config.get("encoding"))}
    cells["task_settings"] = _settings(run.config.get("task"))
    cells |= {"training_seconds": training_seconds(run), "peak_memory_mb": peak_megabytes(run)}
    cells["backend"] = fact(run, "backend", (str,)) or ""
    for name in OF_RUN:
        columns[name] += [cells[name] if name in cells else getattr(run, name)] * count


def _settings(choice: Any) -> str:
    """Return the settings of an encoding or a task as JSON, without its name, its version and its code."""
    settings = choice if isinstance(choice, dict) else {}
    return _json({name: value for name, value in settings.items() if name not in ("is", "class")})


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
