"""How commands print: tables through rich, and strict JSON."""

import inspect
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Column, Table

# All that a terminal would act on, except line feeds.
CONTROL_CHARACTERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
PLAIN_WIDTH = 160  # columns of tables in a file or a pipe
LONG_TABLE = 200  # rows


def stdout() -> "Console":
    return console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def console(**settings: Any) -> "Console":
    """Return a rich console that escapes control characters and reads no markup, because texts may be anybody's."""
    from rich.console import Console
    from rich.segment import Segment

    class EscapingConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else escaped(text), style, control)

    return EscapingConsole(markup=False, emoji=False, highlight=False, **settings)


def column(header: str, **settings: Any) -> "Column":
    """Return a column of a `plain_table` with settings of rich."""
    from rich.table import Column

    return Column(header, **settings)


def plain_table(*headers: "Column | str", **settings: Any) -> "Table":
    """Return a table without lines, whose columns are two spaces apart."""
    from rich.table import Table

    return Table(*headers, box=None, pad_edge=False, padding=(0, 2, 0, 0), **settings)


class FittedTable:
    """A table that omits whole columns, in the order of `drop`, if the terminal is too narrow; numbers are never cut.

    Columns are right-aligned, except those in `left`.
    """

    def __init__(self, names: list[str], rows: list[list[str]], left: Sequence[str] = (), drop: Sequence[str] = ()):
        self.names, self.rows, self.left, self.drop = names, rows, left, drop

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["RenderableType"]:
        unlimited = options.update(max_width=10_000)
        for dropped in range(len(self.drop) + 1):
            table = self._without(self.drop[:dropped])
            if console.measure(table, options=unlimited).maximum <= options.max_width:
                break
        yield table
        if dropped:
            too_narrow = f"the terminal is too narrow for {len(self.names)} columns"
            yield from note_lines([f"{too_narrow}, {dropped} omitted; --json has all"])

    def _without(self, dropped: Sequence[str]) -> "Table":
        table = plain_table(header_style="dim")
        columns = [k for k, name in enumerate(self.names) if name not in dropped]
        for k in columns:
            table.add_column(self.names[k], justify="left" if self.names[k] in self.left else "right", no_wrap=True)
        for row in self.rows:
            table.add_row(*(row[k] for k in columns))
        return table


def title_line(text: str) -> "RenderableType":
    from rich.text import Text

    return Text(text, style="bold")


def note_lines(lines: Sequence[str]) -> list["RenderableType"]:
    from rich.text import Text

    return [Text(line, style="dim") for line in lines]


def print_table(columns: Sequence["Column"], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table. A long one that fits is printed without rich, which takes a second for 2,000 rows."""
    from rich.cells import cell_len

    out, heads = stdout(), [str(one.header) for one in columns]
    lines = [[one_line(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]
    if len(rows) < LONG_TABLE or sum(widths) + 2 * (len(widths) - 1) > out.width:
        table = plain_table(*columns)
        for row in rows:
            table.add_row(*row)
        out.print(table)
        return
    is_right = [one.justify == "right" for one in columns]
    for line in lines:
        padded = (
            f"{' ' * (width - cell_len(cell))}{cell}" if right else f"{cell}{' ' * (width - cell_len(cell))}"
            for cell, width, right in zip(line, widths, is_right, strict=True)
        )
        print("  ".join(padded).rstrip())


def escaped(text: str) -> str:
    """Return the text with control characters written as Python escapes (`\\x1b`). Line feeds stay."""
    return CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: object) -> str:
    """Return the text escaped and in one line; see `escaped`."""
    return escaped(str(text)).replace("\n", "\\n")


def counted(number: int, noun: str) -> str:
    """Return `1 run`, or `1,200 runs`."""
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def print_json(value: Any, indent: int | None = 2) -> None:
    """Print strict JSON, with null for NaN and infinity."""
    print(json_text(_strict(value), indent))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return plain data as JSON. Only control characters are escaped; other non-ASCII characters stay."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return CONTROL_CHARACTERS.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(v) for v in value]
    return value


def own_docstring(make: type) -> str:
    """Return the docstring of a class. An inherited one is not used, because it describes another class."""
    return inspect.cleandoc(vars(make).get("__doc__") or f"{make.__name__} has no docstring of its own.")


def figure(value: float | None, digits: int = 4) -> str:
    """Return a number with `digits` significant digits, and – for None, NaN and infinity."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"


def duration(seconds: float) -> str:
    """Return `40 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 0.95:
        return "under 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def warn_of_untested_transformers() -> None:
    """Print one line on stderr if the installed transformers is not one of the tested versions."""
    from lengthwise.transformers_versions import take_version_warning

    if warning := take_version_warning():
        print(f"lengthwise: {warning}", file=sys.stderr)
