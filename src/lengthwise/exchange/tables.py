"""The answers of a measurement, such as scores, as a file, whose ending decides the format."""

import csv
import importlib.util
import io
import math
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from lengthwise.exchange.columns import Columns, answer_columns
from lengthwise.exchange.latex import latex_tables
from lengthwise.values import SCORES, ConfigError, install_extra, join_names, near_miss

if TYPE_CHECKING:
    from lengthwise.store import Store

NEEDED = {".csv": (), ".parquet": ("pandas", "pyarrow"), ".tex": ("pandas",)}


def ending_of(path: str, measurement: str) -> str:
    """Return the ending of a file. Raise `ConfigError` if it is not that of a format, or lacks a library."""
    ending, endings = PurePath(path).suffix.lower(), [e for e in NEEDED if e != ".tex" or measurement == SCORES]
    if ending not in endings:
        known = join_names(endings).replace(" and ", " or ")
        near = near_miss(ending, endings) if ending else ""
        raise ConfigError(f"--out must end in {known} for {measurement}, got {path[:80]!r}{near}; name such a file")
    for package in NEEDED[ending]:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"{ending} files need the package {package}, which is not installed; {install_extra('frames')}, or "
                "write a .csv file"
            )
    return ending


def table_file(store: "Store", study: str, measurement: str, ending: str) -> bytes:
    """Return the content of a file with the answers of a measurement.

    Raises `ConfigError` if the study has none yet, and `StoreError` if it is unknown.
    """
    if ending == ".tex":
        return latex_tables(store, study).encode("utf-8", "replace")
    return columns_file(answer_columns(store, study, measurement), ending)


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
