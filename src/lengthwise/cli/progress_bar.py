"""Progress of one computation on stderr: a bar on a terminal, otherwise occasional lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lengthwise.cli.printing import console, duration, one_line

Show = Callable[[str, float, float], None]  # receives a description, the completed part and the total


@contextmanager
def progress() -> Iterator[Show]:
    """Yield a function that shows the progress."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None)
        yield lambda text, done, total: bars.update(bar, description=one_line(text), completed=done, total=total)


class _Lines:
    """Print a line with the remaining time: after 5 seconds at first, later less often."""

    def __init__(self) -> None:
        self.start = self.printed = time.perf_counter()

    def __call__(self, text: str, done: float, total: float) -> None:
        now = time.perf_counter()
        if now - self.printed < max(5.0, (now - self.start) / 30):
            return
        self.printed = now
        left = (now - self.start) * (total - done) / done if done else 0.0
        remaining = f", about {duration(left)} left" if left >= 1 else ""
        print(f"{one_line(text)} ({done / total:.0%}{remaining})", file=sys.stderr, flush=True)
