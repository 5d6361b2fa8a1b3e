"""Parquet: a document per row."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lengthwise.corpora.sources.base import Invalid, Piece, Record, SourceOptions, missing_package, record
from lengthwise.corpora.sources.formats.base import Format
from lengthwise.values import ConfigError, near_miss

ROWS = 256  # that are decoded at once
NOT_TEXT = "it is not UTF-8 text"


class Parquet(Format):
    """A document per row. Its row groups are read independently, and of the columns only those that are needed."""

    suffixes = (".parquet",)

    def pieces(self, path: Path, name: str, size: int, part: int) -> list[tuple[Piece, int]]:
        with _open(path) as file:
            groups = file.metadata.num_row_groups
        return [(Piece(name, n, n + 1), size // groups) for n in range(groups)]

    def read(self, path: Path, piece: Piece, options: SourceOptions) -> Iterator[Record]:
        with _open(path) as file:
            names = set(file.schema_arrow.names)
            needed = [_column(name, names, path) for name in (options.field, options.origin) if name]
            groups = list(range(piece.start, piece.stop))
            row = sum(file.metadata.row_group(n).num_rows for n in range(piece.start))
            try:
                for batch in file.iter_batches(ROWS, row_groups=groups, columns=needed, use_threads=False):
                    for values in _rows(batch):
                        row += 1
                        name = f"{piece.file}, row {row}"
                        yield record(values, name, options) if values is not None else Invalid(name, NOT_TEXT)
            except (OSError, ValueError) as error:  # the errors of pyarrow derive from these
                raise _damaged(path, error) from error


def _rows(batch: Any) -> Iterator[dict[str, Any] | None]:
    """Yield the rows of a batch. A row with a string that is not UTF-8 is None."""
    try:
        yield from batch.to_pylist()
    except UnicodeDecodeError:
        for n in range(batch.num_rows):
            try:
                (values,) = batch.slice(n, 1).to_pylist()
            except UnicodeDecodeError:
                values = None
            yield values


def _column(name: str, known: set[str], path: Path) -> str:
    """Return the column that contains a field."""
    column = name if name in known else name.partition(".")[0]
    if column not in known:
        raise ConfigError(
            f"{path} has no column {name!r}{near_miss(name, known)}; its columns are: {', '.join(sorted(known))}"
        )
    return column


def _open(path: Path) -> Any:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise missing_package(str(path), "pyarrow", error) from error
    try:
        return ParquetFile(path)
    except (OSError, ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"{path} is not a readable parquet file: {' '.join(str(error).split())[:200]}; copy it again")
