"""Parquet, through pyarrow. A number that is not known is null."""

import importlib.util
import io
from typing import Any

import numpy as np

from lengthwise.exchange.columns import TYPES, Columns
from lengthwise.exchange.formats.base import LongFormat
from lengthwise.values import ConfigError, install_extra


class Parquet(LongFormat):
    suffix = ".parquet"

    def require(self) -> None:
        if importlib.util.find_spec("pyarrow") is None:
            raise ConfigError(
                f"Parquet needs the package pyarrow, which is not installed; {install_extra('frames')}, or write a .csv file"
            )

    def of_columns(self, columns: Columns) -> bytes:
        import pyarrow
        from pyarrow import parquet

        arrays = {name: _array(cells, TYPES[name]) for name, cells in columns.items()}
        file = io.BytesIO()
        parquet.write_table(pyarrow.table(arrays), file)
        return file.getvalue()


def _array(cells: list[Any], kind: type) -> Any:
    """Return an array of Arrow from its buffers, because `pyarrow.array` imports pandas, which takes longer than all the rest."""
    import pyarrow

    if kind is str:
        texts = [text.encode() for text in cells]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(texts))]
        return pyarrow.Array.from_buffers(pyarrow.large_string(), len(cells), buffers)
    values: Any = np.array(cells, {int: np.int64, float: np.float64, bool: np.bool_}[kind])
    known = None
    if kind is float and np.isnan(values).any():
        known = pyarrow.py_buffer(np.packbits(~np.isnan(values), bitorder="little"))
    if kind is bool:
        values = np.packbits(values, bitorder="little")
    return pyarrow.Array.from_buffers(
        {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}[kind],
        len(cells),
        [known, pyarrow.py_buffer(values)],
    )
