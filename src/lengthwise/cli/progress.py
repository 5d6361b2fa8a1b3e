"""Progress on stderr: bars on a terminal, and occasional lines in a file or a pipe."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lengthwise.cli.printing import console, duration, one_line

Show = Callable[[str, float, float], None]  # receives a description, the completed part and the total

FIRST_INTERVAL = 10.0  # seconds between two lines at first; later, a 30th of the time since the beginning


class Lines:
    """Rows as occasional lines."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.printed: dict[str, float] = {}

    def show(self, key: str, text: str, done: float, total: float | None, status: str, at_once: bool = False) -> None:
        now = time.perf_counter()
        if at_once or now - self.printed.get(key, self.start) >= max(FIRST_INTERVAL, (now - self.start) / 30):
            self.printed[key] = now
            self.print(f"{text}: {status}")

    def remove(self, key: str) -> None:
        self.printed.pop(key, None)

    def print(self, line: str) -> None:
        print(one_line(line), file=sys.stderr, flush=True)


class Bars:
    """Rows as bars, below permanent lines."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TaskID, TextColumn
        from rich.table import Column

        terminal = console(stderr=True)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24 if terminal.width >= 110 else 8),
            TextColumn("{task.fields[status]}", markup=False, table_column=Column(no_wrap=True)),
            console=terminal,
            refresh_per_second=4,
            transient=True,
        )
        self.rows: dict[str, TaskID] = {}

    def show(self, key: str, text: str, done: float, total: float | None, status: str, at_once: bool = False) -> None:
        if key not in self.rows:
            self.rows[key] = self.bars.add_task("", total=None, status="")
        self.bars.update(self.rows[key], description=one_line(text), completed=done, total=total, status=status)

    def remove(self, key: str) -> None:
        if key in self.rows:
            self.bars.remove_task(self.rows.pop(key))

    def print(self, line: str) -> None:
        self.bars.console.print(one_line(line), soft_wrap=True)


@contextmanager
def rows() -> Iterator[Lines | Bars]:
    """Yield what shows rows of progress. Each row has a key, a text, the completed part of a total, and a status."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    shown = Bars()
    with shown.bars:
        yield shown


@contextmanager
def progress() -> Iterator[Show]:
    """Yield a function that shows the progress of one computation with its remaining time.

    A part of it, such as the training of one of several models, begins where less is completed than before. What is
    completed then took no time here, because an earlier call had computed it.
    """
    start = first = 0.0
    last: tuple[float, float] | None = None  # completed, total
    with rows() as shown:

        def show(text: str, done: float, total: float) -> None:
            nonlocal start, first, last
            now = time.perf_counter()
            if last is None or done < last[0] or total != last[1]:
                start, first = now, done
            last = (done, total)
            left = (now - start) * (total - done) / (done - first) if done > first else 0.0
            remaining = f", about {duration(left)} left" if left >= 1 else ""
            shown.show("", text, done, total, f"{done / total:.0%}{remaining}")

        yield show
