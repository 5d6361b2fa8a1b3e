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
        bar, part = bars.add_task("", total=None), _Part()

        def show(text: str, done: float, total: float) -> None:
            if part.is_new(done, total):
                bars.reset(bar)  # otherwise the remaining time is that of the part before
            bars.update(bar, description=one_line(text), completed=done, total=total)

        yield show


class _Part:
    """A part of a computation, such as the training of one of several models. The next part begins where less is completed.

    What was completed when a part begins took no time here, because an earlier call had computed it.
    """

    def __init__(self) -> None:
        self.start = self.first = 0.0
        self.last: tuple[float, float] | None = None  # completed, total

    def is_new(self, done: float, total: float) -> bool:
        """Note the progress, and return whether a part begins with it."""
        is_new = self.last is None or done < self.last[0] or total != self.last[1]
        self.last = (done, total)
        if is_new:
            self.first = done
        return is_new


class _Lines:
    """Print a line with the remaining time: after 5 seconds at first, later less often."""

    def __init__(self) -> None:
        self.start = self.printed = time.perf_counter()
        self.part = _Part()

    def __call__(self, text: str, done: float, total: float) -> None:
        now = time.perf_counter()
        part = self.part
        if part.is_new(done, total):
            part.start = now
        if now - self.printed < max(5.0, (now - self.start) / 30):
            return
        self.printed = now
        left = (now - part.start) * (total - done) / (done - part.first) if done > part.first else 0.0
        remaining = f", about {duration(left)} left" if left >= 1 else ""
        print(f"{one_line(text)} ({done / total:.0%}{remaining})", file=sys.stderr, flush=True)
