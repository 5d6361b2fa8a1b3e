"""What people see while a study is at work: bars on a terminal, lines in a file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.cli.printing import console, duration, figure, shown
from lengthwise.studies.events import Advanced, Begun, Counted, Done, Event, Failed, Note, Released, Started
from lengthwise.studies.study import Study

if TYPE_CHECKING:
    from rich.progress import TaskID


class Show(Protocol):
    def __call__(self, event: Event) -> None: ...


@contextmanager
def display(study: Study, results: Path) -> Iterator[Show]:
    """Shows events on stderr: live on a terminal, otherwise a line now and then."""
    if sys.stderr.isatty():
        with Live(study, results).running() as live:
            yield live
    else:
        yield Lines(study, results)


class Overview:
    """How far the whole study is, and when it ends."""

    def __init__(self, study: Study):
        self.study = study
        self.runs = {run.key: run for run in study.runs}
        self.counts = {"pending": len(self.runs), "running": 0, "done": 0, "failed": 0}
        self.left: dict[str, float] = {}  # work of each run that is still to do
        self.costs: dict[str, Any] = {}
        self.etas: dict[str, float] = {}  # seconds that runs at work need, by key
        self.worked = 0.0
        self.since: float | None = None
        self.estimated: float | None = None  # seconds of the whole call, before anything is known of its runs

    def note(self, event: Event) -> None:
        if isinstance(event, Begun):
            self.counts, self.costs, self.estimated = event.counts, event.costs, event.seconds
            self.left = {key: cost.total for key, cost in event.costs.items()}
        elif isinstance(event, Counted):
            self.counts = event.counts
        elif isinstance(event, Advanced):
            self._advance(event)
        elif isinstance(event, (Done, Failed, Released)):
            self.etas.pop(event.key, None)
            if not isinstance(event, Released):
                self._set_left(event.key, 0.0, counts=isinstance(event, Done))

    def _advance(self, event: Advanced) -> None:
        cost = self.costs.get(event.key)
        if cost is None:
            return
        questions = sorted(cost.ask.items())
        if event.phase == "train":
            left = cost.train * (1 - event.step / event.steps) + sum(cost.ask.values())
        else:
            later = [work for length, work in questions if length > (event.length or 0)]
            left = cost.ask.get(event.length, 0.0) * (1 - event.step / event.steps) + sum(later)
        first = event.key not in self.etas
        self._set_left(event.key, left, counts=not first)  # what a checkpoint brings is not work of this call
        self.since = self.since or time.perf_counter()
        after = sum(cost.ask.values()) if event.phase == "train" else 0.0
        rate = cost.train / event.steps * event.steps_per_second if event.phase == "train" else 0.0
        self.etas[event.key] = event.eta_seconds + (after / rate if rate else 0.0)

    def _set_left(self, key: str, left: float, counts: bool) -> None:
        before = self.left.get(key, 0.0)
        if counts:
            self.worked += max(0.0, before - left)
        self.left[key] = left

    @property
    def total(self) -> int:
        return len(self.runs)

    @property
    def over(self) -> int:
        """Runs that are done or failed."""
        return self.counts["done"] + self.counts["failed"]

    def share(self) -> float:
        """How much of what this call had to do is done, in runs and parts of runs."""
        parts = sum(1 - self.left[key] / self.costs[key].total for key in self.etas if self.costs[key].total)
        return min(self.total, self.over + parts)

    def eta(self) -> float | None:
        """Seconds to the end; None when nothing is known yet."""
        if self.since is None or self.worked <= 0:
            return self.estimated
        rate = self.worked / max(1e-9, time.perf_counter() - self.since)
        unfinished = sum(1 for left in self.left.values() if left > 0)
        mine = min(1.0, (self.total - self.over) / unfinished) if unfinished else 0.0  # other calls do their part
        return max([sum(self.left.values()) * mine / rate, *self.etas.values()])

    def name(self, key: str) -> str:
        run = self.runs.get(key)
        return f"{run.label}, {run.task.label}, seed {run.seed}" if run else key[:8]

    def scores(self, event: Done) -> str:
        """The new scores in words; an empty string when there are none."""
        run = self.runs.get(event.key)
        if run is None or not (event.scores or event.of_shifts):
            return ""
        scores = ", ".join(f"{figure(mean, 3)} at {length}" for length, mean in event.scores)
        others = f"{event.of_shifts} scores of shifts" if event.of_shifts else ""
        own = f"{getattr(run.task.make, 'metric', 'score')} {scores}" if scores else ""
        return "; ".join(filter(None, [own, others]))

    def opening(self, event: Begun, results: Path) -> str:
        done = event.counts["done"]
        left = self.total - done
        if not left:
            return f"{self.study.name}: all {self.total} runs are done (results in {results})"
        with_done = f", {done} of them done already" if done else ""
        workers = f"{event.workers} worker{'s' if event.workers != 1 else ''}"
        runs = f"{self.total} run{'s' if self.total != 1 else ''}"
        takes = f"; this takes about {duration(event.seconds)}" if event.seconds is not None else ""
        return f"{self.study.name}: {runs}{with_done}; {workers}, results in {results}{takes}"

    def said(self, event: Event) -> str | None:
        """What is worth a line that stays."""
        if isinstance(event, Done):
            scores = self.scores(event)
            return f"{self.name(event.key)}: done in {duration(event.seconds)}{f'; {scores}' if scores else ''}"
        if isinstance(event, Failed):
            return f"{self.name(event.key)}: failed: {event.error}"
        if isinstance(event, Note):
            return f"{self.name(event.key)}: {event.text}" if event.key else event.text
        return None


class Lines:
    """Plain lines: the start, the end of each run, and at intervals that grow how far each is."""

    def __init__(self, study: Study, results: Path):
        self.overview, self.results = Overview(study), results
        self.begin = time.perf_counter()
        self.printed: dict[str, float] = {}
        self.waiting = False

    def __call__(self, event: Event) -> None:
        view = self.overview
        view.note(event)
        if isinstance(event, Begun):
            self._print(view.opening(event, self.results))
        elif isinstance(event, Started):
            self.printed[event.key] = time.perf_counter()
            doing = "starts" if event.what == "train" else "is trained already, scoring what is new"
            self._print(f"{view.name(event.key)}: {doing}")
        elif isinstance(event, Advanced):
            self._advance(event)
        elif isinstance(event, Counted):
            if event.waiting and not self.waiting:
                held = event.counts["running"]
                self._print(f"waiting for {held} run{'s' if held != 1 else ''} that another command is at")
            self.waiting = event.waiting
        elif (said := view.said(event)) is not None:
            # the store counts after this event: the run itself is not in `over` yet
            number = f"[{min(view.total, view.over + 1)}/{view.total}] " if isinstance(event, (Done, Failed)) else ""
            self._print(f"{number}{said}{self._eta() if number else ''}")

    def _advance(self, event: Advanced) -> None:
        now = time.perf_counter()
        if now - self.printed.get(event.key, self.begin) < self._interval():
            return
        self.printed[event.key] = now
        self._print(f"{self.overview.name(event.key)}: {doing(event)}{self._eta()}")

    def _interval(self) -> float:
        """Seconds between two lines about a run: ten, later more."""
        return max(10.0, (time.perf_counter() - self.begin) / 30)

    def _eta(self) -> str:
        seconds = self.overview.eta()
        return f" (all: about {duration(seconds)} left)" if seconds is not None and seconds >= 1 else ""

    def _print(self, line: str) -> None:
        print(shown(line), file=sys.stderr, flush=True)


def doing(event: Advanced) -> str:
    """How far a run is, in words."""
    if event.phase == "evaluate":
        return f"scoring length {event.length} ({event.nth}/{event.lengths})"
    loss = f", loss {event.loss:.3f}" if event.loss is not None else ""
    rate = f", {figure(event.steps_per_second, 3)} steps/s" if event.steps_per_second else ""
    left = f", {duration(event.eta_seconds)} left" if event.eta_seconds else ""
    return f"step {event.step}/{event.steps}{loss}{rate}{left}"


class Live:
    """Bars: one for each run at work and one for the study, below lines for what has ended."""

    def __init__(self, study: Study, results: Path):
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self.overview, self.results = Overview(study), results
        terminal = console(stderr=True, highlight=False)
        self.bars = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=24 if terminal.width >= 110 else 8),
            TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=True)),
            console=terminal,
            refresh_per_second=4,
            transient=True,
        )
        self.rows: dict[str, TaskID] = {}
        self.all: TaskID | None = None

    @contextmanager
    def running(self) -> Iterator["Live"]:
        with self.bars:
            yield self

    def __call__(self, event: Event) -> None:
        view = self.overview
        view.note(event)
        if isinstance(event, Begun):
            self._print(view.opening(event, self.results))
            if event.workers:
                self.all = self.bars.add_task("all runs", total=view.total, words="starting")
        elif isinstance(event, Started):
            words = "starting" if event.what == "train" else "trained already"
            self._remove(event.key)
            self.rows[event.key] = self.bars.add_task(view.name(event.key), total=None, words=words)
            self._move_overall_down()
        elif isinstance(event, Advanced) and event.key in self.rows:
            self.bars.update(self.rows[event.key], completed=event.step, total=event.steps, words=doing(event))
        elif isinstance(event, (Done, Failed, Released)):
            self._remove(event.key)
        if (said := view.said(event)) is not None:
            self._print(said)
        self._overall(event)

    def _overall(self, event: Event) -> None:
        if self.all is None or isinstance(event, Begun):
            return
        view = self.overview
        eta = view.eta()
        words = f"{view.over} of {view.total} done"
        if view.counts["failed"]:
            words += f", {view.counts['failed']} failed"
        if isinstance(event, Counted) and event.waiting:
            words += f"; another command is at the last {view.counts['running']}"
        elif eta is not None and eta >= 1:
            words += f", about {duration(eta)} left"
        self.bars.update(self.all, completed=view.share(), words=words)

    def _move_overall_down(self) -> None:
        if self.all is not None:
            words = self.bars.tasks[self.bars.task_ids.index(self.all)].fields["words"]
            self.bars.remove_task(self.all)
            self.all = self.bars.add_task("all runs", total=self.overview.total, words=words)
            self.bars.update(self.all, completed=self.overview.share())

    def _remove(self, key: str) -> None:
        if key in self.rows:
            self.bars.remove_task(self.rows.pop(key))

    def _print(self, line: str) -> None:
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
