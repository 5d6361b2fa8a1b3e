"""How commands print: tables through rich, JSON that every program reads."""

import inspect
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
PLAIN_WIDTH = 160  # of tables in a file or a pipe


def stdout() -> "Console":
    return console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def console(**settings: Any) -> "Console":
    """A console of rich that hands on nothing of anybody's text which a terminal would obey."""
    from rich.console import Console
    from rich.segment import Segment

    class Harmless(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else harmless(text), style, control)

    return Harmless(**settings)


def harmless(text: str) -> str:
    """Somebody's text as a terminal may have it: what it would obey (escape sequences, tabs, marks that turn the direction of
    writing) stands there as Python writes it, `\\x1b`. Line feeds stay."""
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown(text: object) -> str:
    """Somebody's text in one line, see `harmless`."""
    return harmless(str(text)).replace("\n", "\\n")


def print_json(value: Any, indent: int | None = 2) -> None:
    """Strict JSON: what is not a number is null."""
    print(json_text(_strict(value), indent))


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON of plain data, letters as they are; what a terminal would obey is escaped, as JSON itself does with some of it."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    return OBEYED.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _strict(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(v) for v in value]
    return value


def described(make: type) -> str:
    """A class' own docstring; one that it inherits says what another class is."""
    return inspect.cleandoc(vars(make).get("__doc__") or f"{make.__name__} has no docstring of its own.")


def figure(value: float | None, digits: int = 4) -> str:
    """A number as people read it; – where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"


def duration(seconds: float) -> str:
    """`40 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 0.95:
        return "under 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
