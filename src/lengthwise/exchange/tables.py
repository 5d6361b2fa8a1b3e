"""The scores, the training curves or the answers of a measurement as a file, whose ending decides the format."""

import csv
import importlib.util
import io
import math
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.exchange.columns import Columns, answer_columns, curve_columns, score_columns
from lengthwise.exchange.latex import latex_tables
from lengthwise.values import ConfigError, install_extra, join_names, near_miss

if TYPE_CHECKING:
    from lengthwise.store import Store

Table = Literal["scores", "curves", "answers"]
ENDINGS: dict[Table, tuple[str, ...]] = {
    "scores": (".csv", ".parquet", ".tex"),
    "curves": (".csv", ".parquet"),
    "answers": (".csv", ".parquet"),
}
NEEDED = {".csv": (), ".parquet": ("pandas", "pyarrow"), ".tex": ("pandas",)}


def ending_of(path: str, table: Table, option: str = "--out") -> str:
    """Return the ending of a file. Raises `ConfigError` if it is not that of a format, or if a library for it is missing."""
    ending = PurePath(path).suffix.lower()
    if ending not in ENDINGS[table]:
        known = join_names(list(ENDINGS[table])).replace(" and ", " or ")
        near = near_miss(ending, ENDINGS[table]) if ending else ""
        raise ConfigError(f"{option} must end in {known} for {table}, got {path[:80]!r}{near}; name such a file")
    for package in NEEDED[ending]:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"{ending} files need the package {package}, which is not installed; {install_extra('frames')}, or write a "
                ".csv file"
            )
    return ending


def table_file(store: "Store", study: str, table: Table, ending: str, measurement: str = "") -> bytes:
    """Return the content of a file. `measurement`: the name of the one whose answers are written.

    Raises `ConfigError` if the study has no results yet, and `StoreError` if it is unknown.
    """
    if ending == ".tex":
        return latex_tables(store, study).encode("utf-8", "replace")
    if table == "answers":
        columns = answer_columns(store, study, measurement)
    else:
        columns = score_columns(store, study) if table == "scores" else curve_columns(store, study)
    return columns_file(columns, ending)


def columns_file(columns: Columns, ending: str) -> bytes:
    """Return the content of a CSV or Parquet file with these columns."""
    if ending == ".parquet":
        import pandas

        return bytes(pandas.DataFrame(columns).to_parquet(index=False))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(map(_cell, values) for values in columns.values()), strict=True))
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    """Return a value as CSV has it: a number that is not known is an empty cell."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
