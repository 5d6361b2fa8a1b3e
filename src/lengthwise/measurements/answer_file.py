"""Answers outside of the database: a file of JSON lines, to which rows are appended, so that it can be continued.

The first line says what was measured: `{"measurement": NAME, "subject": {...}, "question": {...}, "origin": {...}}`.
Each further line is a row of the answer. A process that is killed leaves at most an incomplete last line, which is
ignored.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from lengthwise import cache_folder
from lengthwise.config import ConfigError
from lengthwise.measurements import Measurement, find
from lengthwise.measurements.table import Row, Table
from lengthwise.validation import from_json

HEADER = ("measurement", "subject", "question", "origin")
BEGINNING = b'{"measurement": '  # of every file
LONGEST = 60  # characters of a value in a message


@dataclass(frozen=True, kw_only=True)
class FileAnswer:
    """The answer of a measurement in a file.

    `subject`: what was measured, such as a model, whose `name` is only for people. `question`: the data of the
    measurement's options. `origin`: versions, device, commit and date. Subject and question tell answers apart, and the
    origin does not.
    """

    measurement: Measurement
    subject: Mapping[str, Any]
    question: Mapping[str, Any]
    origin: Mapping[str, Any]
    rows: list[Row] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return Table.from_rows(self.rows)

    def header(self) -> dict[str, Any]:
        about = {"subject": self.subject, "question": self.question, "origin": self.origin}
        return {"measurement": self.measurement.name, **about}

    def differences(self, other: "FileAnswer") -> list[str]:
        """Return how the subject and the question differ from those of another answer: `--seed 0 instead of 1`."""
        if self.measurement.name != other.measurement.name:
            return [f"it is of {self.measurement.name}"]
        own, others = ({k: v for k, v in a.subject.items() if k != "name"} for a in (self, other))
        of_subject = ["another subject" + (f" ({self.subject['name']})" if "name" in self.subject else "")]
        return [*(of_subject if own != others else []), *question_differences(self.question, other.question)]


def question_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the options that differ, as `--seed 0 instead of 1`; of hashes, only that they differ."""
    changes = []
    for name in dict.fromkeys((*old, *new)):
        one, other = (json.loads(json.dumps(question.get(name))) for question in (old, new))
        option = f"--{name.removesuffix('_sha256').replace('_', '-')}"
        if one != other:
            is_hash = name.endswith("_sha256") and one and other
            changes.append(f"another {option}" if is_hash else f"{option} {_short(one)} instead of {_short(other)}")
    return changes


def _short(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


# ---- reading ------------------------------------------------------------------------------------------------------


def read(path: Path, measurement: str | None = None) -> FileAnswer:
    """Return the answer in a file. Raise `ConfigError` with the number of the line if it is not one.

    `measurement`: the name of the one whose answer it must be; None for any.
    """
    try:
        answer = _parse(path, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}; name a file of a measurement") from None
    if measurement is not None and answer.measurement.name != measurement:
        raise ConfigError(
            f"{path} was written by `{answer.measurement.command}`; name a file of `{find(measurement).command}`, or "
            f"read this one with `lengthwise export answers {path} --out FILE.csv`"
        )
    return answer


def _parse(path: Path, content: bytes) -> FileAnswer:
    lines = content.split(b"\n")[:-1]  # an incomplete last line is one that a kill interrupted
    number = 1
    try:
        if not lines:
            raise ConfigError("it is incomplete" if content else "it is empty")
        answer = _header(_object(lines[0]))
        for line in lines[1:]:
            number += 1
            answer.rows.append(_row(answer.measurement, _object(line)))
    except ConfigError as error:
        if number == 1:
            problem, fix = "is not an answer that lengthwise wrote", "name another file"
        else:
            problem, fix = "is damaged", "delete this line, which the command of this file then measures again"
        raise ConfigError(f"{path} {problem} (line {number}: {error}); {fix}") from None
    return answer


def _object(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line, parse_constant=_no_constant)
    except ValueError as error:
        raise ConfigError(f"it is not JSON, {getattr(error, 'msg', error)}") from None
    if not isinstance(data, dict):
        raise ConfigError("it is not a JSON object")
    return data


def _no_constant(name: str) -> None:
    raise ValueError(f"numbers must be finite, got {name}")


def _header(data: Mapping[str, Any]) -> FileAnswer:
    if set(data) != set(HEADER):
        raise ConfigError(f"it must have {', '.join(HEADER)}")
    if wrong := [name for name in HEADER[1:] if not isinstance(data[name], dict)]:
        raise ConfigError(f"{wrong[0]} must be an object")
    measurement = find(data["measurement"])
    question = from_json(measurement.Options, json.dumps(data["question"])).to_data()
    return FileAnswer(**{**data, "measurement": measurement, "question": question})


def _row(measurement: Measurement, row: dict[str, Any]) -> Row:
    columns = {column.name: column for column in measurement.columns}
    for name, cell in row.items():
        if name not in columns:
            raise ConfigError(f"{measurement.name} has no column {name!r}")
        column = columns[name]
        if cell is None:
            continue
        if column.role == "key" and column.whole and (type(cell) is not int or cell < 0):
            raise ConfigError(f"{name} must be a whole number of at least 0, got {str(cell)[:LONGEST]!r}")
        if column.role == "value" and type(cell) not in (int, float):
            raise ConfigError(f"{name} must be a number, got {str(cell)[:LONGEST]!r}")
        if column.role == "key" and isinstance(cell, (list, dict)):
            raise ConfigError(f"{name} must be a text or a number")
    return row


# ---- writing ------------------------------------------------------------------------------------------------------


class Recording:
    """An answer that is being measured. `answer.rows` are those of this call and of earlier ones."""

    def __init__(self, answer: FileAnswer, file: BinaryIO | None) -> None:
        self.answer, self._file = answer, file

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows, which are stored together."""
        rows = list(rows)
        if self._file is not None and rows:
            lines = [] if self._file.tell() else [self.answer.header()]
            text = "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in [*lines, *rows])
            self._file.write(text.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self.answer.rows.extend(rows)


@contextmanager
def recording(path: Path | None, answer: FileAnswer) -> Iterator[Recording]:
    """Yield the recording of an answer, with the rows that its file already has. Without a path, nothing is stored.

    An older file keeps its origin. A file with nothing but an incomplete first line is begun anew.

    Raise `ConfigError` if it has the answer to another question or about another subject, or if
    another process is writing it. Without any row, there is no file afterwards.
    """
    stored = replace(answer, rows=[])
    if path is None:
        yield Recording(stored, None)
        return
    with cache_folder.locked(path, 0.0, what="measuring") as is_locked, open(path, "r+b") as file:
        if not is_locked:
            raise ConfigError(f"another process is writing {path}; wait for it, or name another file")
        content = file.read()
        is_begun = b"\n" in content or not (content.startswith(BEGINNING) or BEGINNING.startswith(content))
        if is_begun:
            stored = _parse(path, content)
            if differences := stored.differences(answer):
                raise ConfigError(
                    f"{path} has the answer to another question: {'; '.join(differences)}; name another file, or "
                    "delete this one"
                )
        file.seek(content.rfind(b"\n") + 1)
        file.truncate()  # without an incomplete last line
        try:
            yield Recording(stored, file)
        finally:
            if not file.tell():
                path.unlink()
