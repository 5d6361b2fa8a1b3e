"""The formats of tables: the file's ending decides. A new one is a file with one class, and one line in this list."""

from pathlib import PurePath

from lengthwise.exchange.formats.base import Format
from lengthwise.exchange.formats.csv_file import Csv
from lengthwise.exchange.formats.latex import Latex
from lengthwise.exchange.formats.parquet import Parquet
from lengthwise.values import ConfigError, join_names, near_miss

FORMATS: tuple[Format, ...] = (Csv(), Parquet(), Latex())


def format_of(path: str, table: str, option: str = "--out") -> Format:
    """Return the format of a file by its ending. `table`: what is written, "scores" or "curves".

    Raises `ConfigError` if there is no such format, if it cannot hold that table, or if its library is missing.
    """
    known = {form.suffix: form for form in FORMATS if table in form.tables}
    suffix = PurePath(path).suffix.lower()
    if suffix not in known:
        endings = join_names(list(known)).replace(" and ", " or ")
        near = near_miss(suffix, known) if suffix else ""
        raise ConfigError(f"{option} must end in {endings} for {table}, got {path[:80]!r}{near}; name such a file")
    known[suffix].require()
    return known[suffix]
