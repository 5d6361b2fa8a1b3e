"""CSV: text with commas. A number that is not known is an empty cell, and texts are in quotes where they need it."""

import csv
import io
import math
from typing import Any

from lengthwise.exchange.columns import Columns
from lengthwise.exchange.formats.base import LongFormat


class Csv(LongFormat):
    suffix = ".csv"

    def of_columns(self, columns: Columns) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(map(_cell, values) for values in columns.values()), strict=True))
        return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if isinstance(value, float) and math.isnan(value) else value
