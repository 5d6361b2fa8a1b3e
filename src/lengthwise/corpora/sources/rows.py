"""Rows of JSON lines and of parquet files, and their fields."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lengthwise.values import ConfigError, missing_package, near_miss

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

MAX_LINE = 1 << 29  # bytes; a line is held in memory
BATCH_ROWS = 256  # of a parquet file that are decoded at once


# ---- JSON lines ----------------------------------------------------------------------------------------------------


def numbered_lines(file: IO[bytes], name: str, start: int = 0) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number of each line, from 1, its first byte and its content. `start`: the place in the file.

    Raise `ConfigError`, with the file's `name`, for a line that is too long, as that of a file that is one large list.
    """
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise ConfigError(
                f"{name}, line {number}: a line must have at most {MAX_LINE:,} bytes; write one object per line"
            )
        yield number, start, line
        start += len(line)


def json_row(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, without a byte order mark. Raise `ConfigError` for anything else."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"it is not UTF-8 text (byte 0x{error.object[error.start]:02x}); give a file of JSON lines"
        ) from None
    except ValueError as error:
        problem = getattr(error, "msg", error)
        raise ConfigError(f"it is not a JSON object ({problem}); write one object per line") from None
    if not isinstance(row, dict):
        raise ConfigError(f"it must be a JSON object, got a {type(row).__name__}; write one object per line")
    return row


# ---- parquet -------------------------------------------------------------------------------------------------------


def row_groups(path: Path) -> int:
    """Return the number of row groups of a parquet file, which can be read independently."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_row_groups)


def parquet_rows(
    path: Path, fields: Sequence[str] = (), groups: range | None = None
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number of each row, from 1, and the row; None if a string in it is not UTF-8.

    `fields`: those to read; by default all. `groups`: the row groups to read; by default all. Raise `ConfigError` for a
    damaged file, and for one without the column of a field.
    """
    with _open_parquet(path) as file:
        groups = range(file.metadata.num_row_groups) if groups is None else groups
        columns = [_column(name, file.schema_arrow.names, path) for name in fields] or None
        number = sum(file.metadata.row_group(n).num_rows for n in range(groups.start))
        for batch in file.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=columns, use_threads=False):
            for row in _decoded(batch):
                number += 1
                yield number, row


def _decoded(batch: Any) -> Iterator[dict[str, Any] | None]:
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for n in range(batch.num_rows):
            try:
                (row,) = batch.slice(n, 1).to_pylist()
            except UnicodeDecodeError:
                row = None
            yield row


def _column(field: str, columns: Sequence[str], path: Path) -> str:
    """Return the column that contains a field."""
    column = field if field in columns else field.partition(".")[0]
    if column not in columns:
        raise ConfigError(
            f"{path} has no column {field!r}{near_miss(field, columns)}; its columns are: {', '.join(columns)}"
        )
    return column


@contextmanager
def _open_parquet(path: Path) -> "Iterator[ParquetFile]":
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_package(str(path), "pyarrow", "data", error) from error
    try:
        with ParquetFile(path) as file:
            yield file
    except (OSError, ArrowException) as error:
        raise ConfigError(
            f"{path} is not a readable parquet file: {' '.join(str(error).split())[:200]}; copy it again"
        ) from error


# ---- fields --------------------------------------------------------------------------------------------------------


def field_of(row: Mapping[str, Any], name: str) -> Any:
    """Return a field of a row, or a field of an object in it: `meta.text`. Raise `ConfigError` if there is none."""
    if name in row:
        return row[name]
    value: Any = row
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            names = list(map(str, row))
            raise ConfigError(
                f"it has no field {name!r}{near_miss(name, names)}; its fields are: {', '.join(names)[:200] or 'none'}"
            )
        value = value[key]
    return value


def text_field(row: Mapping[str, Any], name: str) -> str:
    """Return a field of a row. Raise `ConfigError` unless it is text."""
    value = field_of(row, name)
    if not isinstance(value, str):
        raise ConfigError(f"the field {name!r} must be text, got a {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"the field {name!r} contains half of a surrogate pair, which is not a character") from None
    return value
